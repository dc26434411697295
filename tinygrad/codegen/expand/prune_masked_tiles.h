/// \file Reductions whose results a mask throws away: the upper triangle of causal attention.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Skips a reduce for register tiles in which nobody uses its result: of WHERE(condition, f(reduce), c) the outermost
/// loop of the reduce gets the end WHERE(the condition may hold somewhere in the tile, n, 0). Of the condition,
/// comparisons of affine expressions count, each at the corner of the tile where it holds first; everything else is
/// taken to hold.
UOp prune_masked_tiles(UOp sink);

}  // namespace tg
