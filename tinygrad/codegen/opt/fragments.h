/// \file Operands of matrix instructions that threads share: which thread computes or loads which element.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/uop/uop.h"

namespace tg {
class FinalRanges;

/// Gives each thread the elements of both operands that the layout of the instruction (target/tensor_core.h) says:
/// WMMA(a, b, 0), a value for each row, column and word, becomes WMMA(a, b, register, i, j), the registers of the
/// result of one instruction. i and j are new ranges, the registers of a and of b; `register` is an expression of the
/// UPCAST ranges of the result. What the instruction sums over leaves the list of its REDUCE. Returns the same graph
/// where there is no such instruction.
UOp distribute_fragments(UOp sink, const FinalRanges& ranges, KernelContext& names);

/// A word of two elements of 16 bits that memory has apart, `step` elements from each other.
struct Halves {
  UOp first;  ///< the LOAD of the lower one
  int64_t step;
};
/// Returns what a word is made of; empty: of something else.
std::optional<Halves> halves_of(UOp word);

/// A range whose value is some bits of the number of a thread or of a register.
struct FragmentDigit {
  UOp range;
  int bits;
};
/// Returns what the digits of a number, the lowest first, contribute to bits [bit, bit + bits) of the coordinate
/// `letter`, as a number of these bits; empty: nothing. `names` says what each bit of the number is (FragmentLayout).
UOp fragment_coordinate(const std::vector<FragmentDigit>& digits, std::string_view names, char letter, int bit,
                        int bits);

}  // namespace tg
