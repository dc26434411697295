/// \file The gradient rules: one line for each differentiable op.
#include <cmath>
#include <numbers>

#include "tinygrad/tensor/grad/gradient.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/multi/world_shards.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/conv.h"
#include "tinygrad/tensor/ops/dot_product_attention.h"

namespace tg {
namespace {

UOp zero_like(UOp u) { return u.const_like(0); }
UOp log2(UOp u) { return UOp::alu(Ops::LOG2, {u}); }
UOp eq(UOp a, UOp b) { return a.ne(b).logical_not(); }

/// Returns what x gets of the gradient of max(x, y): it goes to the larger, half to each of two equals.
UOp max_share(UOp g, UOp x, UOp y) { return (y < x).where(g, eq(x, y).where(g * ConstValue(0.5), zero_like(g))); }

/// Whether u is relu x: x where it is positive or NaN, else 0.
bool is_relu(UOp u) {
  const UOp kept = u.src(0), x = u.src(1), other = ops::literal_of(u.src(2));
  if (!other || other.const_float() != 0 || !kept.is(Ops::OR)) return false;
  const UOp positive = kept.src(0), nan = kept.src(1),
            zero = positive.nsrc() ? ops::literal_of(positive.src(0)) : UOp();
  return positive.is(Ops::CMPLT) && zero && zero.const_float() == 0 && positive.src(1) == x && nan.is(Ops::CMPNE) &&
         nan.src(0) == x && nan.src(1) == x;
}

/// Returns what x gets of the gradient of u = relu x. Where it is not 0, u has the sign of x: the next layer reads u,
/// and so x need not be kept as well.
UOp grad_relu(UOp g, UOp u) { return ((zero_like(u) < u) | u.ne(u)).where(g, zero_like(g)); }

/// Returns cos u; for u = pi / 2 - y, which is how cos y is written, sin y: adding pi / 2 again would round once more.
UOp cos_of(UOp u) {
  for (int i : {0, 1}) {
    UOp c = u.is(Ops::ADD) ? ops::literal_of(u.src(i)) : UOp(), y = c ? u.src(1 - i) : UOp();
    if (!c || !y.is(Ops::MUL) || std::abs(c.const_float() - std::numbers::pi / 2) > 1e-6) continue;
    if (UOp minus = ops::literal_of(y.src(1)); minus && minus.const_float() == -1)
      return UOp::alu(Ops::SIN, {y.src(0)});
  }
  return UOp::alu(Ops::SIN, {u * ConstValue(-1.0) + u.const_like(std::numbers::pi / 2)});
}

UOp grad_reciprocal(UOp g, UOp u) { return g * u * u * ConstValue(-1.0); }

/// Whether u is 1 + x.
bool is_one_plus(UOp u, UOp x) {
  for (size_t i : {size_t{0}, size_t{1}})
    if (u.is(Ops::ADD) && u.src(1 - i) == x)
      if (UOp one = ops::literal_of(u.src(i)); one && one.const_float() == 1) return true;
  return false;
}

/// Returns what x gets of the gradient of u = 2^x. Where u has it from r = 1 / (1 + u), as in a sigmoid, r * u is
/// written as 1 - r, which stays a number where u is infinite.
UOp grad_exp2(UOp g, UOp u) {
  UOp square = g.is(Ops::MUL) ? g.src(0) : UOp(), once = square && square.is(Ops::MUL) ? square.src(0) : UOp();
  if (once && once.is(Ops::MUL)) {
    UOp up = once.src(0), r = once.src(1);
    if (r.is(Ops::RECIPROCAL) && is_one_plus(r.src(0), u) && grad_reciprocal(up, r) == g)
      return up * (r * (r.const_like(1) - r)) * ConstValue(-std::numbers::ln2);
  }
  return g * u * ConstValue(std::numbers::ln2);
}

Grads grad_pow(UOp g, UOp u, UOp b, UOp e) {
  UOp db = eq(e, zero_like(e)).where(zero_like(u), g * e * UOp::alu(Ops::POW, {b, e + e.const_like(-1)}));
  UOp at_zero = (e < zero_like(e)).where(u.const_like(-std::numeric_limits<double>::infinity()), zero_like(u));
  return {db, g * eq(b, zero_like(b)).where(at_zero, u * log2(b) * ConstValue(std::numbers::ln2))};
}

Grads grad_reduce(UOp g, UOp u, UOp x) {
  const ReduceArg& r = u.arg<ReduceArg>();
  std::vector<int> axes(r.axes.begin(), r.axes.end());
  const Shape& shape = shape_of(x);
  if (r.op == Ops::ADD) return {ops::expand(g, shape)};
  if (r.op == Ops::MAX) {  // equals share; half types do not count them
    const DType d = g.dtype(), wide = sum_acc_dtype(d);
    UOp mask = ops::cast(eq(x, ops::detach_from_storage(u)), wide);
    return {ops::cast(mask * (ops::cast(g, wide) / ops::reduce(Ops::ADD, mask, axes)), d)};
  }
  // d prod / dx_j is the product of the others: u / x_j, or, where x_j is the only zero, the product of the rest.
  UOp is_zero = eq(x, zero_like(x)), safe = is_zero.where(x.const_like(1), x);
  UOp zeros = ops::reduce(Ops::ADD, ops::cast(is_zero, dtypes::int32), axes), rest = ops::reduce(Ops::MUL, safe, axes);
  return {g * is_zero.where(eq(zeros, zeros.const_like(1)).where(rest, zero_like(rest)), u / safe)};
}

UOp grad_permute(UOp g, UOp u) {
  const auto& order = u.arg<std::vector<int64_t>>();
  std::vector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); i++) inverse[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return ops::permute(g, inverse);
}
UOp grad_pad(UOp g, UOp u) {
  ops::Pairs p;
  const Shape &s = shape_of(u.src(0)), at = dims_of(u.src(1));
  for (size_t i = 0; i < s.size(); i++) p.push_back({at[i], s[i]});
  return ops::shrink(g, p);
}
UOp grad_shrink(UOp g, UOp u) {
  const Shape at = dims_of(u.src(1));
  return UOp::make(Ops::PAD, g.dtype(), {g, at.stack(), shape_of(u.src(0)).stack()});
}
UOp grad_flip(UOp g, UOp u) {
  const auto& a = u.arg<std::vector<int64_t>>();
  return ops::flip(g, std::vector<int>(a.begin(), a.end()));
}
/// Copies the gradient back to the device of the source of a COPY; a literal has none: to the first device.
UOp grad_copy(UOp g, UOp x) {
  const std::string& device = device_of(x).empty() ? device_of(g) : device_of(x);
  if (is_multi(x)) return tensor_detail::distribute(g, device, shard_axes(x));
  return device.empty() ? g : UOp::make(Ops::COPY, g.dtype(), {g}, Arg(split_devices(device)[0]));
}
UOp shard_of(UOp g, uint32_t device) {
  return UOp::make(Ops::MSELECT, g.dtype(), {g}, Arg(static_cast<int64_t>(device)));
}
UOps shards_of(UOp g, uint32_t count) {
  UOps parts;
  for (uint32_t i = 0; i < count; i++) parts.push_back(shard_of(g, i));
  return parts;
}
UOp grad_unshard(UOp g, UOp u) {
  g = tensor_detail::distribute(g, device_of(u), shard_axes(u));
  return join_shards(shards_of(g, static_cast<uint32_t>(split_devices(device_of(u)).size())), {}, device_of(u));
}
Grads grad_stack(UOp g, UOp u) {
  UOps out;
  const Shape& s = shape_of(u.src(0));
  for (uint32_t i = 0; i < u.nsrc(); i++) {
    ops::Pairs p{{SInt(static_cast<int64_t>(i)), SInt(1)}};
    for (const SInt& n : s) p.push_back({0, n});
    out.push_back(ops::reshape(ops::shrink(g, p), s));
  }
  return Grads(std::move(out));
}

/// The gradients of a strided convolution's input and weight, which the node names next to its value.
Grads grad_conv(UOp g, UOp u, UOp x, UOp w) {
  auto [dx, dw] =
      conv::gradients(Tensor::from_uop(g), Tensor::from_uop(x), Tensor::from_uop(w), u.arg<std::vector<int64_t>>());
  return {UOp(), dx.uop(), dw.uop()};
}

/// Returns the axis of the batch along which an index is 0, 1, 2, ...; -1 for any other index.
int arange_axis(UOp index, size_t batch) {
  UOp u = index;
  while (u.is(Ops::RESHAPE) || u.is(Ops::CAST)) u = u.src(0);
  if (!u.is(Ops::ARANGE)) return -1;
  const Shape& s = shape_of(index);
  int axis = -1;
  for (size_t i = 0; i < s.size(); i++)
    if (s[i] != 1) {
      if (axis >= 0) return -1;
      axis = static_cast<int>(batch - s.size() + i);
    }
  return axis;
}

/// The gradient of x[i0, i1, ...]: each row of g is added to the element its indices name, found by comparing all
/// positions with them. An index that only counts along an axis of the batch needs no comparison: that axis is the
/// position.
class IndexGradient {
 public:
  IndexGradient(UOp g, UOp u) : g_(g), u_(u), xs_(shape_of(u.src(0))), gs_(shape_of(u)) {
    const size_t k = u.nsrc() - 1;
    rest_ = xs_.size() - k;
    batch_ = gs_.size() - rest_;
    along_.assign(k, -1);
    std::vector<bool> taken(batch_, false);
    for (size_t i = 0; i < k; i++) {
      const int axis = arange_axis(u.src(i + 1), batch_);
      if (axis < 0 || taken[at(axis)] || shape_of(u.src(i + 1)).numel() != gs_[at(axis)].value()) continue;
      along_[i] = axis;
      taken[at(axis)] = true;
    }
    for (size_t i = 0; i < k; i++)
      if (along_[i] >= 0) batch_order_.push_back(along_[i]);
      else compared_.push_back(static_cast<int>(i));
    counted_ = batch_order_.size();
    for (size_t a = 0; a < batch_; a++)
      if (!taken[a]) batch_order_.push_back(static_cast<int>(a));
  }

  UOp run() const {
    UOp v = arranged();
    if (UOp m = mask()) v = m.where(v, zero_like(v));
    return restored(summed(v));
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }

  /// g with the axes of the work: the counted ones, the other batch axes (to be summed), one of size 1 for each
  /// compared index, the rest.
  UOp arranged() const {
    std::vector<int> order = batch_order_;
    for (size_t i = 0; i < rest_; i++) order.push_back(static_cast<int>(batch_ + i));
    UOp v = ops::permute(g_, order);
    Shape shape = shape_of(v);
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(batch_), compared_.size(), SInt(1));
    return ops::reshape(v, shape);
  }

  /// Where every compared index names the position; empty where none is compared.
  UOp mask() const {
    UOp mask;
    for (size_t c = 0; c < compared_.size(); c++) {
      UOp index = u_.src(at(compared_[c]) + 1);
      Shape is = shape_of(index);
      is.insert(is.begin(), batch_ - is.size(), SInt(1));
      index = ops::permute(ops::reshape(index, is), batch_order_);
      Shape wide = shape_of(index), line(batch_ + compared_.size() + rest_, SInt(1));
      wide.insert(wide.end(), compared_.size() + rest_, SInt(1));
      const int64_t n = xs_[at(compared_[c])].value();
      line[batch_ + c] = n;
      const DType d = index.dtype();
      UOp hit = eq(ops::reshape(index, wide), ops::reshape(ops::arange(n, d.is_weak() ? dtypes::int32 : d), line));
      mask = mask ? mask & hit : hit;
    }
    return mask;
  }

  UOp summed(UOp v) const {
    std::vector<int> axes;
    for (size_t a = counted_; a < batch_; a++) axes.push_back(static_cast<int>(a));
    const DType d = g_.dtype(), acc = axes.empty() ? d : sum_acc_dtype(d);
    return ops::cast(ops::reduce(Ops::ADD, ops::cast(v, acc), axes), d);
  }

  /// Drops the summed axes, puts the positions in the order of x, and pads the counted ones to x's size.
  UOp restored(UOp v) const {
    const size_t k = along_.size();
    Shape expanded = shape_of(v), out;
    for (size_t c = 0; c < compared_.size(); c++) expanded[batch_ + c] = xs_[at(compared_[c])];
    std::vector<int> order(k);
    int next = 0;
    for (size_t i = 0; i < k; i++)
      if (along_[i] >= 0) {
        order[i] = next++;
        out.push_back(gs_[at(along_[i])]);
      }
    for (int c : compared_) {
      order[at(c)] = next++;
      out.push_back(xs_[at(c)]);
    }
    for (size_t i = 0; i < rest_; i++) {
      order.push_back(next++);
      out.push_back(xs_[k + i]);
    }
    v = ops::permute(ops::reshape(ops::expand(v, expanded), out), order);
    ops::Pairs grow;
    const Shape now = shape_of(v);
    for (size_t i = 0; i < xs_.size(); i++)
      grow.push_back({0, xs_[i] == now[i] ? SInt(0) : SInt(xs_[i].value() - now[i].value())});
    return ops::pad(v, grow);
  }

  UOp g_, u_;
  Shape xs_, gs_;
  size_t rest_ = 0, batch_ = 0;   // axes after the indexed ones; of the indices
  std::vector<int> along_;        // by index: the axis of the batch it counts along; -1: it is compared
  std::vector<int> batch_order_;  // the counted axes, then the others
  std::vector<int> compared_;     // indices
  size_t counted_ = 0;
};

}  // namespace

// clang-format off
const PatternMatcher<Grads>& pm_gradient() {
  using namespace upat;
  using enum Ops;
  using Up = const Upstream&;
  static const auto* pm = new PatternMatcher<Grads>{
    rule(op<CAST>(x),                [](Up c, X x) -> Grads { return {ops::cast(c.g, x.dtype())}; }),
    rule(op<BITCAST>(x),             [](X) -> Grads { return {UOp()}; }),
    rule(u = op<RECIPROCAL>(x),      [](Up c, U u, X) -> Grads { return {grad_reciprocal(c.g, u)}; }),
    rule(op<SIN>(x),                 [](Up c, X x) -> Grads { return {cos_of(x) * c.g}; }),
    rule(op<LOG2>(x),                [](Up c, X x) -> Grads { return {c.g / (x * ConstValue(std::numbers::ln2))}; }),
    rule(u = op<EXP2>(x),            [](Up c, U u, X) -> Grads { return {grad_exp2(c.g, u)}; }),
    rule(u = op<SQRT>(x),            [](Up c, U u, X) -> Grads { return {c.g / (u * ConstValue(2.0))}; }),
    rule(op<TRUNC>(x),               [](X) -> Grads { return {UOp()}; }),
    rule(op<NEG>(x),                 [](Up c, X) -> Grads { return {c.g.neg()}; }),
    rule(op<ADD>(x, y),              [](Up c, X, Y) -> Grads { return {c.g, c.g}; }),
    rule(op<SUB>(x, y),              [](Up c, X, Y) -> Grads { return {c.g, c.g.neg()}; }),
    rule(op<MUL>(x, y),              [](Up c, X x, Y y) -> Grads { return {y * c.g, x * c.g}; }),
    rule(op<MULACC>(x, y, z),        [](Up c, X x, Y y, Z) -> Grads { return {y * c.g, x * c.g, c.g}; }),
    rule(u = op<FDIV>(x, y),         [](Up c, U u, X, Y y) -> Grads { return {c.g / y, c.g * (u / y) * ConstValue(-1.0)}; }),
    rule(op<MAX>(x, y),              [](Up c, X x, Y y) -> Grads { return {max_share(c.g, x, y), max_share(c.g, y, x)}; }),
    rule(u = op<POW>(x, y),          [](Up c, U u, X x, Y y) -> Grads { return grad_pow(c.g, u, x, y); }),
    rule(when(u = op<WHERE>(a, x, y), [](UOp r) { return is_relu(r); }),
                                     [](Up c, U u, A, X, Y) -> Grads { return {UOp(), grad_relu(c.g, u), UOp()}; }),
    rule(op<WHERE>(a, x, y),         [](Up c, A a, X, Y) -> Grads { return {UOp(), a.where(c.g, zero_like(c.g)), a.where(zero_like(c.g), c.g)}; }),
    rule(any_of(CMPLT | CMPNE | CMPEQ | FLOORDIV, x, y), [](X, Y) -> Grads { return {UOp(), UOp()}; }),
    // f(x, y) = x - k * y for a whole k.
    rule(when(u = any_of(CMOD | FLOORMOD, x, y), [](UOp r) { return r.dtype().is_float(); }),
                                     [](Up c, U u, X x, Y y) -> Grads { return {c.g, c.g * ((u - x) / y)}; }),
    rule(u = op<REDUCE>(x),          [](Up c, U u, X x) -> Grads { return grad_reduce(c.g, u, x); }),
    rule(op<CONTIGUOUS>(x),          [](Up c, X) -> Grads { return {c.g}; }),
    rule(op<CONTIGUOUS_BACKWARD>(x), [](Up c, X) -> Grads { return {UOp::make(CONTIGUOUS, c.g.dtype(), {c.g})}; }),
    rule(when(u = op<CUSTOM_GRADIENT>(x, y, z), [](UOp r) { return attention::is_attention(r); }),
                                     [](Up c, U u, X, Y y, Z z) -> Grads { return attention::gradients(c.g, u, y, z); }),
    rule(u = op<CUSTOM_GRADIENT>(x, y, z), [](Up c, U u, X, Y y, Z z) -> Grads { return grad_conv(c.g, u, y, z); }),
    rule(op<RESHAPE>(x, y),          [](Up c, X x, Y) -> Grads { return {ops::reshape(c.g, shape_of(x)), UOp()}; }),
    rule(op<EXPAND>(x, y),           [](Up c, X, Y) -> Grads { return {c.g, UOp()}; }),
    rule(u = op<PERMUTE>(x),         [](Up c, U u, X) -> Grads { return {grad_permute(c.g, u)}; }),
    rule(u = op<PAD>(x, y, z),       [](Up c, U u, X, Y, Z) -> Grads { return {grad_pad(c.g, u), UOp(), UOp()}; }),
    rule(u = op<SHRINK>(x, y, z),    [](Up c, U u, X, Y, Z) -> Grads { return {grad_shrink(c.g, u), UOp(), UOp()}; }),
    rule(u = op<FLIP>(x),            [](Up c, U u, X) -> Grads { return {grad_flip(c.g, u)}; }),
    rule(u = node<STACK>(),          [](Up c, U u) -> Grads { return grad_stack(c.g, u); }),
    rule(u = op<INDEX>(x, rest),     [](Up c, U u, X) -> Grads { UOps g(u.nsrc()); g[0] = IndexGradient(c.g, u).run(); return Grads(std::move(g)); }),
    rule(u = node<COPY>(),           [](Up c, U u) -> Grads { UOps g(u.nsrc()); g[0] = grad_copy(c.g, u.src(0)); return Grads(std::move(g)); }),
    rule(u = op<COLLECTIVE>(x),      [](Up c, U u, X) -> Grads { return {tensor_detail::grad_collective(c.g, u)}; }),
    rule(u = op<UNSHARD>(x),         [](Up c, U u, X) -> Grads { return {grad_unshard(c.g, u)}; }),
    rule(u = node<MSTACK>(),         [](Up c, U u) { return Grads(shards_of(c.g, u.nsrc())); }),
  };
  return *pm;
}
// clang-format on

}  // namespace tg
