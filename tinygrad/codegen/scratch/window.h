/// \file Windows: panels of operands that slide over memory.
///
/// A convolution reads row y + ky, its input gradient row y - ky: the ranges appear in one sum only. A window is the
/// panel over the values of such sums, so every element is in it once, where a plain panel has it once for each pair
/// (im2col); padding is part of it, and what reads it has no masks.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/codegen/kernel_context.h"

namespace tg {

/// Ranges that a value depends on only through the sum of coefficient * range.
using Slide = std::vector<std::pair<UOp, int64_t>>;
/// Returns the ranges open in a value, each in one Slide; coefficients have no common factor, and one of them is 1 or
/// -1. Empty when a size is not constant.
std::vector<Slide> slides(UOp value);

/// An operand as a window holds it.
struct WindowOperand {
  UOp value;   ///< with the mask of its product: 0 where the product is masked
  UOp masked;  ///< the WHERE of the product that is not needed any more; empty: there is none
};
/// Returns operand `value` of stageable(sink) as a window holds it. A product with a masked operand is 0 there, so the
/// mask goes where the operand is loaded.
WindowOperand window_operand(UOp sink, UOp value);

/// Lowers a read of a STAGE of kind kWindow, whose coordinates are the sums: its memory, filled right before the loops
/// it ends begin. `lane`: the range of the kernel's lanes, empty without any.
UOp lower_window(UOp read, KernelContext& names, UOp lane);
/// Returns `value` with loads only where `gate` holds.
UOp gate_loads(UOp value, UOp gate);

}  // namespace tg
