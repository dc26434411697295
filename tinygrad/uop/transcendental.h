/// \file Functions that a target computes by formulas of its own, or of ours: their values differ in the last place.
/// Literals are not folded into them, so that a function of a literal is what the same function of a buffer is.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Functions with a polynomial of ours, which TRANSCENDENTAL=2 takes instead of the target's.
inline constexpr OpSet kTranscendental = OpSet(Ops::EXP2) | Ops::LOG2 | Ops::SIN | Ops::POW;

/// Returns y where x is computed as y / ln 2 (then 2^x is e^y), or as pi / 2 + y or pi / 2 - y (then sin x is cos y);
/// empty otherwise. From y neither loses the bits that rounding x would.
UOp natural_exponent(UOp x);
UOp cosine_argument(UOp x);

/// Returns true for an operation on literals that is left to the target: a function of floats, or an argument that
/// stands for another function.
bool is_left_to_target(UOp u);

}  // namespace tg
