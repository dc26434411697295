/// \file Arguments that stand for another function: 2^(x / ln 2) and sin(pi / 2 - x).
#include "tinygrad/uop/transcendental.h"

#include <cmath>
#include <numbers>

namespace tg {

UOp natural_exponent(UOp x) {
  if (!x.is(Ops::MUL) || !x.src(1).is_const() || !x.dtype().is_float()) return {};
  int power;
  const double factor = x.src(1).const_float() / truncate_float(1 / std::numbers::ln2, x.dtype());
  if (!std::isfinite(factor) || std::abs(std::frexp(factor, &power)) != 0.5) return {};
  return factor == 1 ? x.src(0) : x.src(0) * ConstValue(factor);
}
UOp cosine_argument(UOp x) {
  if (!x.is(Ops::ADD) || !x.src(1).is_const() || !x.dtype().is_float()) return {};
  if (x.src(1).const_float() != truncate_float(std::numbers::pi / 2, x.dtype())) return {};
  UOp v = x.src(0);
  return v.is(Ops::NEG) || (v.is(Ops::MUL) && v.src(1).is_const() && v.src(1).const_float() == -1) ? v.src(0) : v;
}
bool is_left_to_target(UOp u) {
  if (!u.dtype().is_float()) return false;
  if (u.in(kTranscendental)) return true;
  const bool narrow = !u.dtype().is_weak() && u.dtype().itemsize() < 4;  // exp and cos compute in float32
  return !narrow && (natural_exponent(u) || cosine_argument(u));
}

}  // namespace tg
