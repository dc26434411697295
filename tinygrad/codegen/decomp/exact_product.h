/// \file Products of floats that need no rounding.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Returns whether a * b of float32 is exact for all values that the expressions of a and b can have, as far as types
/// and bounds show it: a half times a small integer is, for example. Infinities and NaN are the same either way.
bool is_exact_product(UOp a, UOp b);

/// Returns whether a float32 is always a whole number of at most eight bits, as far as types and bounds show it.
bool is_small_integer(UOp u);

}  // namespace tg
