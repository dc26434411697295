/// \file Numbers of four bits, several bytes to a lane: what OptOp::kTc with kWords does to a kernel.
#pragma once
#include "tinygrad/codegen/opt.h"

namespace tg {

/// OptOp::kTc with this number: the axis walks bytes that hold two numbers each; four bytes become a lane.
constexpr int64_t kWords = 64;

/// A kernel whose lanes are words: 64 bytes, of one block or of several neighbouring ones, fill a register, and its
/// bytes are unrolled.
struct WordKernel {
  UOp sink;       ///< empty: the kernel has no such form
  UOp lanes;      ///< range of sixteen words
  UOp bytes;      ///< range of the four bytes of a word
  UOp registers;  ///< range of the registers; empty: one
  UOp factor;  ///< what the numbers are multiplied with, the same for all rows: its order is that of the lanes once it
               ///< is staged
};

/// `range` is a reduce range of a sum of products, and one factor is computed from nothing but groups of four bits (q &
/// 15, q >> 4) of bytes that lie side by side along it, and from what is per block. Blocks of less than 64 bytes share
/// a register: their distance is a reduce range, too.
WordKernel word_kernel(UOp sink, UOp range, const Renderer& renderer);

/// Applies kWords and the axes that belong to it where the kernel has that form and rows enough to put the factor in
/// order. False: nothing is done.
bool choose_words(KernelAxes& kernel, const Renderer& renderer);

}  // namespace tg
