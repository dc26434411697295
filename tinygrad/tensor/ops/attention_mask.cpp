/// \file Masks of attention.
#include "tinygrad/tensor/ops/attention_mask.h"

#include <cmath>
#include <limits>

namespace tg::attention {
namespace {
double lowest_finite(DType d) {
  const FloatInfo f = finfo(strong_dtype(d));
  return -std::ldexp(2 - std::ldexp(1.0, -f.mantissa), (1 << (f.exponent - 1)) - 1);
}
}  // namespace

Tensor masked(const Tensor& scores, const Tensors& masks, bool causal) {
  constexpr double kMasked = -std::numeric_limits<double>::infinity();
  Tensor s = scores;
  for (const Tensor& m : masks) s = m.dtype().is_bool() ? m.where(s, kMasked) : s + m;
  if (!causal) return s;
  const Shape shape = scores.shape();
  return Tensor::full(Shape(shape.end() - 2, shape.end()), true).tril().where(s, kMasked);
}

Tensor bounded_top(const Tensor& scores) {
  return scores.max(-1, true).maximum(lowest_finite(scores.dtype())).detach();
}
Tensor bounded_total(const Tensor& powers) { return powers.sum(-1, true).maximum(0.5); }

Tensor softmax_or_zero(const Tensor& scores) {
  const Tensor powers = (scores - bounded_top(scores)).exp();
  return powers / bounded_total(powers);
}

}  // namespace tg::attention
