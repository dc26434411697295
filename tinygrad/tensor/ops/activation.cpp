/// \file Activation functions, composed of elementwise operations.
#include <cmath>
#include <numbers>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops/elementary.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Returns where an activation passes its argument through: above 0, and for NaN.
Tensor positive(const Tensor& x) { return x.dtype().is_float() ? (x > 0) | x.isnan() : x > 0; }
/// Returns relu(x) cut off at `limit`, with gradient 0 where it is cut.
Tensor ramp(const Tensor& x, const Tensor& limit) { return (x >= limit).where(limit, x.relu()); }
/// Returns x above 0 and f(min(x, 0)) below; 0 and NaN go to f as well.
template <class F> Tensor bent(const Tensor& x, F&& f) {
  Tensor up = x > 0;
  return up.where(x, f(up.where(0.0, x)));
}
}  // namespace

// Not maximum(0): the gradient at 0 is 0, not one half.
Tensor Tensor::relu() const {
  OpScope s;
  return s(positive(*this).where(*this, 0));
}
Tensor Tensor::relu6() const {
  OpScope s;
  return s(ramp(*this, 6));
}
Tensor Tensor::sigmoid() const {
  OpScope s;
  return s((1 + (*this * (-1 / std::numbers::ln2)).exp2()).reciprocal());
}
Tensor Tensor::silu() const {
  OpScope s;
  return s(*this * sigmoid());
}
Tensor Tensor::quick_gelu() const {
  OpScope s;
  return s(*this * (*this * 1.702).sigmoid());
}
Tensor Tensor::gelu(bool tanh_approximation) const {
  OpScope s;
  if (!tanh_approximation) return s(exact_gelu(*this));
  // (1 + tanh(u)) / 2 is the sigmoid of 2 u.
  Tensor x = as_float(*this);
  if (x.dtype() == dtypes::float16)
    return s(x.cast(dtypes::float32).gelu().cast(x.dtype()));  // the cube of 41 is infinite
  return s(x * (2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x.pow(3))).sigmoid());
}
Tensor Tensor::elu(double alpha) const {
  OpScope s;
  return s(bent(*this, [&](const Tensor& v) { return alpha * expm1_of_negative(v); }));
}
Tensor Tensor::celu(double alpha) const {
  OpScope s;
  return s(bent(*this, [&](const Tensor& v) { return alpha * expm1_of_negative(v / alpha); }));
}
Tensor Tensor::selu(double alpha, double gamma) const {
  OpScope s;
  return s(gamma * bent(*this, [&](const Tensor& v) { return alpha * expm1_of_negative(v); }));
}
Tensor Tensor::leaky_relu(double slope) const {
  OpScope s;
  return s((*this < 0).where(slope * *this, *this));
}
Tensor Tensor::hardtanh(double lo, double hi) const {
  OpScope s;
  if (!dtype().is_float() && lo == std::floor(lo) && hi == std::floor(hi) &&
      std::max(std::abs(lo), std::abs(hi)) < 1e18)
    return s(clamp(static_cast<int64_t>(lo), static_cast<int64_t>(hi)));  // integer bounds keep an integer type
  return s(clamp(lo, hi));
}
Tensor Tensor::hardsigmoid(double alpha, double beta) const {
  OpScope s;
  if (alpha <= 0) return s(ramp(alpha * *this + beta, 1));
  return s(ramp(as_float(*this) + beta / alpha, 1 / alpha) * alpha);  // corners where no rounding moves them
}
Tensor Tensor::hardswish() const {
  OpScope s;
  Tensor x = as_float(*this);
  return s(x * ((x + 3).relu6() / 6));
}
Tensor Tensor::softplus(double beta) const {
  OpScope s;
  return s((*this * beta).logaddexp(0.0) / beta);
}
Tensor Tensor::softsign() const {
  OpScope s;
  Tensor x = as_float(*this);
  return s(x / (1 + x.abs()));
}
Tensor Tensor::logsigmoid() const {
  OpScope s;
  return s(-(-as_float(*this)).softplus());
}
Tensor Tensor::mish() const {
  OpScope s;
  return s(*this * softplus().tanh());
}

}  // namespace tg
