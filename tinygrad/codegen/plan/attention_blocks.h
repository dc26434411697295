/// \file Attention in blocks (online softmax): the scores never leave the cache.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/schedule/attention_form.h"
#include "tinygrad/target/renderer.h"

namespace tg {

/// Returns the kernel with its loops and scratch memory. For a tile of rows, blocks of `over` one after another:
///
///     s = scores of the block                      (rows x block; operands that depend on the block alone: panels)
///     top' = max(top, max s), c = exp(top - top')  (a row)
///     p = exp(s - top'), total = total c + sum p
///     acc = acc c + p w                            (rows x columns)
///
/// and acc / total in the end. While the maximum is -inf, 0 is subtracted in its place, so that exp is 0; a row of
/// nothing but -inf is 0 / 0 as in the plain form, and NaN and +inf propagate from block to block. Blocks that a mask
/// like i < j hides from all rows of the tile are skipped, except for 0 w, which is NaN where w is not finite. The
/// sizes of the caches fix the order of all sums.
UOp attention_blocks(UOp sink, const AttentionForm& form, const Renderer& renderer, KernelContext& names);

}  // namespace tg
