/// \file Grids: GLOBAL, LOCAL and GROUP_REDUCE ranges of an optimised kernel AST become indices of the grid.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

/// GLOBAL ranges become SPECIAL gidx0..2, LOCAL and GROUP_REDUCE ranges lidx0..2 (more than three of a kind share the
/// last one by division). A reduce over GROUP_REDUCE ranges becomes: a partial reduce per thread, stored in memory of
/// the group; a barrier; a reduce over the partials by every thread; stores by the first. Without such ranges the graph
/// comes back unchanged.
UOp add_grid(UOp sink);

}  // namespace tg
