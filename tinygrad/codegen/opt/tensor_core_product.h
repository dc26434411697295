/// \file Sums of products as sums of dot products: what OptOp::kTc does to a kernel.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/target/renderer.h"

namespace tg {

/// Returns true when a value reads memory whose elements follow each other along the range.
bool reads_adjacent(UOp value, UOp range);

/// Returns every way that fits a kernel with one sum of products: the reduce range to pack, and the instruction by its
/// row of tensor_core_table(). `inexact` is CodegenOptions::tensor_cores, `select` (or -1) allows only one row of the
/// table.
std::vector<std::pair<UOp, int>> tensor_core_choices(UOp sink, const Renderer& renderer, int inexact, int select);

/// Returns the kernel with its sum over `range` by instruction `number`: both factors are packed, k elements to a word
/// of 32 bits, and REDUCE(ADD, WMMA(words, words, 0)) sums over the words. Elements that are adjacent in memory are
/// loaded as words. Where the instruction takes one factor with the other sign, 128 is added to it or subtracted, and a
/// second sum corrects the result. Where several threads share an instruction, the words are padded to whole ones with
/// zeros, and factors whose elements are no less than a register stay as they are. Returns `sink` where it does not
/// fit.
UOp with_tensor_core(UOp sink, UOp range, int number, const Renderer& renderer);

}  // namespace tg
