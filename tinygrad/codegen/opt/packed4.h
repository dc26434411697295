/// \file 4-bit packed dot products: what OptOp::kPacked4 does to a kernel.
///
/// A byte holds two values of four bits. Four bytes are a 32-bit word, and a lane is a word: the values of a lane come
/// out of it by shifts and masks, without moving bytes between lanes.
#pragma once
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// A kernel whose lanes are 32-bit words: 64 bytes, of one block or of several neighbouring ones, fill a register, and
/// its bytes are unrolled.
struct Packed4Kernel {
  UOp sink;               ///< empty: the kernel has no such form
  UOp lanes;              ///< range of sixteen words
  UOp bytes;              ///< range of the four bytes of a word
  UOp registers;          ///< range of the registers; empty: one
  bool unrolled = false;  ///< registers must be: the last one is not full
  UOp factor;  ///< what the values are multiplied by, the same for all rows: its order is that of the lanes once it
               ///< is staged
};

/// Rewrites a kernel in which `range` is a reduce range of a sum of products, and one factor is computed from nothing
/// but groups of four bits (q & 15, q >> 4) of bytes that are contiguous along it, and from what is per block. Blocks
/// of less than 64 bytes share a register: their distance is a reduce range, too. Where blocks are left over, lanes of
/// the last register are zero.
Packed4Kernel packed4_kernel(UOp sink, UOp range, const Renderer& renderer);

}  // namespace tg
