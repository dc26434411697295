/// \file Grids: GLOBAL, LOCAL and GROUP_REDUCE ranges of an optimised kernel AST become indices of the grid.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Rewrites GLOBAL ranges to SPECIAL gidx0..2, LOCAL and GROUP_REDUCE ranges to lidx0..2. Where there are more than
/// three of a kind, or one is larger than the target's limit for its dimension, several share one by division. Throws
/// ShapeError for a grid beyond all limits. A reduce over GROUP_REDUCE ranges becomes a partial reduce per thread,
/// combined by shuffles within a warp where the target has them, else staged in the memory of the workgroup and reduced
/// by every thread; the first one stores.
/// Returns the same graph if there are no such ranges.
UOp add_grid(UOp sink, const Target& target, KernelContext& names);

}  // namespace tg
