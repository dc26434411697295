/// \file Reductions whose results a mask throws away: the upper triangle of causal attention.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// A reduce that is used only where a condition holds, WHERE(condition, f(reduce), c), does not run for register tiles
/// in which it holds nowhere: its outermost loop gets the end WHERE(the condition somewhere in the tile, n, 0). Of the
/// condition, comparisons of sums of multiples of ranges count, each at the corner of the tile where it holds first;
/// what is anything else is taken to hold.
UOp skip_masked(UOp sink);

}  // namespace tg
