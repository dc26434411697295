/// \file Recognising softmax(s) @ v, and its gradient.
#include "tinygrad/tensor/ops/dot_product_attention.h"

#include <cmath>
#include <limits>

#include "tinygrad/target/device_traits.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/multi.h"

namespace tg::attention {
using namespace tensor_detail;

namespace {
constexpr int64_t kScores = 4 << 20;  // bytes of scores from which on they are recomputed: fewer stay in the cache

/// Returns what a value over rows is broadcast from.
UOp unrepeated(UOp u) {
  while (u.in(Ops::EXPAND | Ops::RESHAPE | Ops::DETACH)) u = u.src(0);
  return u;
}
bool reduces_last(UOp u, Ops op, UOp x) {
  if (!u.is(Ops::REDUCE) || u.src(0) != x || u.arg<ReduceArg>().op != op) return false;
  const auto& axes = u.arg<ReduceArg>().axes;
  return axes.size() == 1 && static_cast<size_t>(axes[0]) + 1 == shape_of(x).size();
}
/// Returns s where p = exp(s - max s) / sum exp(s - max s) over the last axis; empty: p is something else.
UOp scores_of(UOp p) {
  if (!p.is(Ops::FDIV)) return {};
  UOp power = p.src(0);
  if (!power.is(Ops::EXP2) || !reduces_last(unrepeated(p.src(1)), Ops::ADD, power)) return {};
  UOp exponent = power.src(0), factor = exponent.is(Ops::MUL) ? ops::literal_of(exponent.src(1)) : UOp();
  if (!factor || std::abs(factor.const_float() * std::log(2.0) - 1) > 1e-6 || !exponent.src(0).is(Ops::ADD)) return {};
  UOp s = exponent.src(0).src(0), negative = exponent.src(0).src(1);
  UOp minus = negative.is(Ops::MUL) ? ops::literal_of(negative.src(1)) : UOp();
  if (!minus || minus.const_float() != -1) return {};
  return reduces_last(unrepeated(negative.src(0)), Ops::MAX, s) ? s : UOp();
}
/// Whether blocked kernels exist for scores and values of these shapes, forward and backward, and it pays.
bool pays(UOp s, UOp v) {
  const Shape &shape = shape_of(s), &values = shape_of(v);
  if (shape.symbolic() || values.symbolic() || shape.size() < 2 || values.size() < 2) return false;
  if (s.dtype() != dtypes::float32 || v.dtype().is_weak() || is_multi(s) || is_multi(v) ||
      !device_traits(device_of(s)).attention_kernels)
    return false;
  const auto fits = [](const SInt& n) { return n.value() >= 128 || n.value() % 64 == 0; };
  return fits(shape.back()) && fits(shape[shape.size() - 2]) && values.back().value() % 16 == 0 &&
         shape.numel() * s.dtype().itemsize() >= kScores;
}
}  // namespace

bool is_attention(UOp u) { return u.is(Ops::CUSTOM_GRADIENT) && u.arg_kind() == ArgKind::kString; }

Tensor with_gradient(const Tensor& product, const Tensor& weights, const Tensor& value) {
  UOp p = uop_of(weights, "dot"), s = scores_of(p), o = uop_of(product, "dot"), v = uop_of(value, "dot");
  if (!s || !pays(s, v) || o.dtype() != dtypes::float32) return product;
  return Tensor::from_uop(UOp::make(Ops::CUSTOM_GRADIENT, o.dtype(), {o, s, v}, Arg(std::string("attention"))));
}

Grads gradients(UOp g, UOp o, UOp s, UOp v) {
  // Stored once, in the type it has.
  const bool widened =
      g.is(Ops::CAST) && g.src(0).dtype().is_float() && g.src(0).dtype().itemsize() < g.dtype().itemsize();
  const Tensor grad = Tensor::from_uop(widened ? g.src(0) : g).contiguous().cast(g.dtype()), out = Tensor::from_uop(o),
               scores = Tensor::from_uop(s), value = Tensor::from_uop(v);
  // The same nodes as in the softmax, so that nothing is computed for it alone.
  const Tensor top = scores.max({.axis = -1, .keepdim = true}).detach();
  const Tensor total = (scores - top).exp().sum({.axis = -1, .keepdim = true}),
               log_sum = (top + total.log()).contiguous();
  const Tensor mean = (grad * out).sum({.axis = -1, .keepdim = true}).contiguous();
  // Masked positions have the probability 0, whatever a row is.
  const bool masked = s.is(Ops::WHERE) && ops::literal_of(s.src(2)) &&
                      ops::literal_of(s.src(2)).const_float() == -std::numeric_limits<double>::infinity();
  const Tensor below = (masked ? Tensor::from_uop(s.src(1)) : scores) - log_sum;
  const Tensor open = masked ? Tensor::from_uop(s.src(0)) : Tensor(), power = below.exp(),
               p = masked ? open.where(power, 0.0) : power;
  const Tensor dv = p.transpose(-1, -2).dot(grad).cast(value.dtype());
  const Tensor dp = grad.dot(value.transpose(-1, -2), dtypes::float32), slope = power * (dp - mean),
               ds = masked ? open.where(slope, 0.0) : slope;
  return {UOp(), ds.uop(), dv.uop()};
}

}  // namespace tg::attention
