/// \file Weighted means below a maximum in blocks: attention whose scores never leave the cache.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/schedule/online.h"
#include "tinygrad/target/renderer.h"

namespace tg {

/// Returns the kernel with its loops and scratch memory. For a tile of rows, blocks of `over` one after another:
///
///     s = scores of the block                      (rows x block; operands that depend on the block alone: panels)
///     top' = max(top, max s), c = exp(top - top')  (a row)
///     p = exp(s - top'), total = total c + sum p
///     acc = acc c + p w                            (rows x columns)
///
/// and acc / total in the end. Where nothing is below a maximum of -inf yet, exp is of s and top - 0, so that it is 0;
/// a row that ends so is 0 / 0 as in the plain form, and NaN and +inf go on from block to block. Blocks that a mask
/// like i < j closes for all rows of the tile are skipped but for 0 w, which is NaN where w is not finite. The order
/// of all sums is fixed by the sizes of the caches.
UOp online_blocks(UOp sink, const OnlineForm& form, const Renderer& renderer, KernelContext& names);

}  // namespace tg
