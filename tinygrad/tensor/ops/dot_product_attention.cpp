/// \file Recognising softmax(s) @ v, and its gradient.
#include "tinygrad/tensor/ops/dot_product_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tinygrad/target/device_traits.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/attention_mask.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/multi.h"

namespace tg::attention {
using namespace tensor_detail;

namespace {
constexpr int64_t kScores = 4 << 20;     // bytes of scores from which on they are recomputed: fewer stay in the cache
constexpr int64_t kFewScores = 1 << 20;  // bytes of scores below which they may well be stored

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
/// Returns a reduce from below the bound that masked rows give it, and whether it has one.
std::pair<UOp, bool> unbounded(UOp u) {
  u = unrepeated(u);
  const bool bounded = u.is(Ops::MAX) && ops::literal_of(u.src(1));
  return {bounded ? unrepeated(u.src(0)) : u, bounded};
}
/// The scores of a softmax; `bounded`: one that is zero where a row is masked whole.
struct Scores {
  UOp s{};
  bool bounded = false;
};
/// Returns s where p = exp(s - max s) / sum exp(s - max s) over the last axis, maximum and sum perhaps bounded, or
/// nothing where p is something else.
Scores scores_of(UOp p) {
  const bool product = p.is(Ops::MUL) && p.src(1).is(Ops::RECIPROCAL);
  if (!product && !p.is(Ops::FDIV)) return {};
  UOp power = p.src(0);
  const auto [total, bounded] = unbounded(product ? p.src(1).src(0) : p.src(1));
  if (!power.is(Ops::EXP2) || !reduces_last(total, Ops::ADD, power)) return {};
  UOp exponent = power.src(0), factor = exponent.is(Ops::MUL) ? ops::literal_of(exponent.src(1)) : UOp();
  if (!factor || std::abs(factor.const_float() * std::log(2.0) - 1) > 1e-6 || !exponent.src(0).is(Ops::ADD)) return {};
  UOp s = exponent.src(0).src(0), negative = exponent.src(0).src(1);
  UOp minus = negative.is(Ops::MUL) ? ops::literal_of(negative.src(1)) : UOp();
  if (!minus || minus.const_float() != -1) return {};
  const auto [top, bounded_top] = unbounded(negative.src(0));
  return reduces_last(top, Ops::MAX, s) && bounded == bounded_top ? Scores{s, bounded} : Scores{};
}
constexpr const char *kPlain = "attention", *kBounded = "attention of masked rows";
/// Whether blocked kernels exist for scores and values of these shapes, forward and backward, and there are so many
/// bytes of scores that they pay.
bool pays(UOp s, UOp v, int64_t bytes = kScores) {
  const Shape &shape = shape_of(s), &values = shape_of(v);
  if (shape.symbolic() || values.symbolic() || shape.size() < 2 || values.size() < 2) return false;
  if (s.dtype() != dtypes::float32 || v.dtype().is_weak() || is_multi(s) || is_multi(v) ||
      !device_traits(device_of(s)).attention_kernels)
    return false;
  const auto fits = [](const SInt& n) { return n.value() >= 128 || n.value() % 64 == 0; };
  return fits(shape.back()) && fits(shape[shape.size() - 2]) && values.back().value() % 16 == 0 &&
         shape.numel() * s.dtype().itemsize() >= bytes;
}
/// Whether a value is a sum, or what a few operations make of one: stored in any case, since it is read often.
bool is_sum(UOp u, int operations = 3) {
  while (u.in(groups::kMovement)) u = u.src(0);
  if (u.is(Ops::REDUCE)) return true;
  if (operations == 0 || !u.in(groups::kElementwise)) return false;
  const UOps sources(u.srcs().begin(), u.srcs().end());
  return std::any_of(sources.begin(), sources.end(), [&](UOp s) { return is_sum(s, operations - 1); });
}
}  // namespace

Tensor stored_in_rows(const Tensor& weights, const Tensor& value) {
  const UOp v = uop_of(value, "dot"), s = scores_of(uop_of(weights, "dot")).s;
  return s && pays(s, v, kFewScores) && is_sum(v) ? value.contiguous() : value;
}

bool is_attention(UOp u) { return u.is(Ops::CUSTOM_GRADIENT) && u.arg_kind() == ArgKind::kString; }

Tensor with_gradient(const Tensor& product, const Tensor& weights, const Tensor& value) {
  const auto [s, bounded] = scores_of(uop_of(weights, "dot"));
  UOp o = uop_of(product, "dot"), v = uop_of(value, "dot");
  if (!s || !pays(s, v) || o.dtype() != dtypes::float32) return product;
  const std::string name = bounded ? kBounded : kPlain;
  return Tensor::from_uop(UOp::make(Ops::CUSTOM_GRADIENT, o.dtype(), {o, s, v}, Arg(name)));
}

Grads gradients(UOp g, UOp o, UOp s, UOp v) {
  // Stored once, in the type it has.
  const bool widened =
      g.is(Ops::CAST) && g.src(0).dtype().is_float() && g.src(0).dtype().itemsize() < g.dtype().itemsize();
  const Tensor grad = Tensor::from_uop(widened ? g.src(0) : g).contiguous().cast(g.dtype()), out = Tensor::from_uop(o),
               scores = Tensor::from_uop(s), value = Tensor::from_uop(v);
  // The same nodes as in the softmax, so that nothing is computed for it alone.
  const bool bounded = o.arg<std::string>() == kBounded;
  const Tensor top = bounded ? bounded_top(scores) : scores.max(-1, true).detach(), powers = (scores - top).exp(),
               total = bounded ? bounded_total(powers) : powers.sum(-1, true);
  const Tensor log_sum = (top + total.log()).contiguous();
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
