/// \file Reductions, normalisations, prefix sums.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/elementary.h"
#include "tinygrad/tensor/ops/product.h"
#include "tinygrad/uop/eval.h"

namespace tg {
using namespace tensor_detail;

namespace {
Shape without(const Shape& shape, const std::vector<int>& axes) {
  Shape out;
  for (size_t i = 0; i < shape.size(); i++)
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<int>(i))) out.push_back(shape[i]);
  return out;
}

/// Reduces in type `acc`; the axes stay with size 1 with keepdim.
UOp reduced(Ops op, UOp u, const Axes& which, bool keepdim, DType acc, const char* name) {
  const Shape shape = shape_of(u);
  std::vector<int> axes = axes_of(which, name, shape);
  UOp r = ops::reduce(op, ops::cast(u, acc), axes);
  return keepdim ? r : ops::reshape(r, without(shape, axes));
}

/// Returns a result that was computed in the wide type of `d` in `d`.
Tensor narrowed(const Tensor& t, DType d) { return wide_dtype(d) == d ? t : t.cast(d); }
/// Returns x as the floats that statistics are computed in. Narrow floats are widened: squares of values above 256
/// overflow float16, and rounded means and deviations would be used as exact ones.
Tensor widened(const Tensor& x) {
  const Tensor f = as_float(x);
  return f.cast(wide_dtype(f.dtype()));
}

/// Checks axes for methods built from others: errors name the method that was called.
void check_axes(const Tensor& t, const Axes& axes, const char* name) { axes_of(axes, name, t.shape()); }

/// Returns the number of elements reduced to one result.
SInt count(const Shape& shape, const Axes& which, const char* name) {
  SInt n = 1;
  for (int a : axes_of(which, name, shape)) n = ops::times(n, shape[static_cast<size_t>(a)]);
  return n;
}
}  // namespace

Tensor Tensor::sum(const ReduceOptions& o) const {
  OpScope s;
  UOp u = uop_of(*this, "sum");
  DType in = ops::strong_type(u), acc = o.dtype.value_or(sum_acc_dtype(in));
  UOp r = reduced(Ops::ADD, u, o.axis, o.keepdim, acc, "sum");
  // Half precision accumulates in float32 and comes back.
  return s(!o.dtype && in.is_float() ? ops::cast(r, in) : r);
}
Tensor Tensor::prod(const ReduceOptions& o) const {
  OpScope s;
  UOp u = uop_of(*this, "prod");
  return s(reduced(Ops::MUL, u, o.axis, o.keepdim, o.dtype.value_or(ops::strong_type(u)), "prod"));
}
Tensor Tensor::max(const ReduceOptions& o) const {
  OpScope s;
  UOp u = uop_of(*this, "max");
  return s(reduced(Ops::MAX, u, o.axis, o.keepdim, ops::strong_type(u), "max"));
}
Tensor Tensor::min(const ReduceOptions& o) const {
  OpScope s;
  check_axes(*this, o.axis, "min");
  UOp u = uop_of(*this, "min");
  Tensor x = cast(ops::strong_type(u));
  auto inverse = [](const Tensor& t) { return t.dtype().is_float() ? -t : ~t; };
  return s(inverse(inverse(x).max({.axis = o.axis, .keepdim = o.keepdim})));
}
namespace {
/// The mean of integers: its integral part, rounded down, and what it lacks, from 0 to 1.
struct IntegerMean {
  Tensor whole, rest;
};
/// Returns the type that the sum of any n integers of type `d` fits in: the accumulation type of sum(), or one of 64
/// bits; nothing where neither holds it.
std::optional<DType> type_of_total(DType d, int64_t n) {
  for (const DType t : {sum_acc_dtype(d), d.is_unsigned() ? dtypes::uint64 : dtypes::int64})
    if (int_min(d) * n >= int_min(t) && int_max(d) * n <= int_max(t)) return t;
  return {};
}
IntegerMean integer_mean(const Tensor& x, const ReduceOptions& o, const Tensor& count, std::optional<DType> total) {
  const auto ratio = [&](const Tensor& part) { return part.to_float() / count.to_float(); };
  if (total) {
    const Tensor sum = x.cast(*total).sum(o), whole = sum.floor_div(count);
    return {whole, ratio(sum - whole * count)};
  }
  // Quotients and remainders add up in 64 bits.
  const Tensor rest = x.mod(count).sum(o), carry = rest.floor_div(count);
  return {x.floor_div(count).sum(o) + carry, ratio(rest - carry * count)};
}
}  // namespace

Tensor Tensor::mean(const ReduceOptions& o) const {
  OpScope s;
  UOp u = uop_of(*this, "mean");
  check_axes(*this, o.axis, "mean");
  DType in = ops::strong_type(u), out = u.dtype().is_float() ? u.dtype() : dtypes::float32, acc = sum_acc_dtype(in);
  const ReduceOptions over{.axis = o.axis, .keepdim = o.keepdim};
  SInt n = count(shape_of(u), o.axis, "mean");
  if (in.is_int()) {
    const std::optional<DType> total = type_of_total(in, n.max());
    if (!total) {
      const IntegerMean m = integer_mean(cast(in), over, from_uop(ops::scalar_of(n, in)), total);
      return s(m.whole.cast(out) + m.rest.cast(out));
    }
    acc = *total;
  }
  Tensor sum = cast(acc).sum(over);
  sum = sum.cast(least_upper_float(sum.dtype()));
  const Tensor of = n.symbolic() ? from_uop(ops::scalar_of(n, sum.dtype())) : Tensor(static_cast<double>(n.value()));
  return s((sum / of).cast(out));
}
Tensor Tensor::any(const ReduceOptions& o) const {
  OpScope s;
  check_axes(*this, o.axis, "any");
  return s(to_bool().max({.axis = o.axis, .keepdim = o.keepdim}));
}
Tensor Tensor::all(const ReduceOptions& o) const {
  OpScope s;
  check_axes(*this, o.axis, "all");
  return s(to_bool().prod({.axis = o.axis, .keepdim = o.keepdim}));
}

namespace {
/// Returns x minus its mean along the axes, and the mean, with the axes of size 1. Differences of integers are exact.
std::pair<Tensor, Tensor> centered(const Tensor& x, const Axes& axis) {
  const ReduceOptions over{.axis = axis, .keepdim = true};
  const DType d = x.stored_dtype();
  if (!d.is_int()) {
    const Tensor wide = widened(x), m = wide.mean(over);
    return {wide - m, m};
  }
  const SInt n = count(x.shape(), axis, "var");
  const std::optional<DType> total = type_of_total(d, n.max());
  const DType in = total.value_or(d);
  const IntegerMean m = integer_mean(x.cast(d), over, Tensor::from_uop(ops::scalar_of(n, in)), total);
  const Tensor v = x.cast(in);
  // As unsigned bits the difference of the larger and the smaller is right also where it wraps.
  const auto gap = [in](const Tensor& a, const Tensor& b) { return (a - b).cast(unsigned_dtype(in)).to_float(); };
  return {(v < m.whole).where(-gap(m.whole, v), gap(v, m.whole)) - m.rest, m.whole.to_float() + m.rest};
}
}  // namespace

std::pair<Tensor, Tensor> Tensor::var_mean(const VarOptions& o) const {
  OpScope s;
  check_axes(*this, o.axis, "var");
  const auto [difference, mean] = centered(*this, o.axis);
  const DType out = is_floating_point() ? dtype() : dtypes::float32, acc = sum_acc_dtype(difference.dtype());
  SInt all = count(shape(), o.axis, "var");
  Tensor n;
  if (all.symbolic()) n = (from_uop(ops::scalar_of(all, acc)) - o.correction).maximum(0);
  else n = std::max(0.0, static_cast<double>(all.value()) - o.correction);
  const Tensor sum = difference.square().cast(acc).sum({.axis = o.axis, .keepdim = o.keepdim});  // n may not fit half
  const Tensor v = (sum / n).cast(out), m = mean.cast(out);
  return {v, o.keepdim ? m : m.reshape(v.shape())};
}
Tensor Tensor::var(const VarOptions& o) const {
  OpScope s;
  return s(var_mean(o).first);
}
std::pair<Tensor, Tensor> Tensor::std_mean(const VarOptions& o) const {
  OpScope s;
  check_axes(*this, o.axis, "std");
  // The variance of float16 may overflow where its root does not.
  const DType out = is_floating_point() ? dtype() : dtypes::float32, wide = wide_dtype(out);
  auto [v, m] = is_floating_point() ? cast(wide).var_mean(o) : var_mean(o);
  return {v.sqrt().cast(out), m.cast(out)};
}
Tensor Tensor::std(const VarOptions& o) const {
  OpScope s;
  return s(std_mean(o).first);
}

Tensor Tensor::logsumexp(const ReduceOptions& o) const {
  OpScope s;
  check_axes(*this, o.axis, "logsumexp");
  Tensor x = as_float(*this);
  const DType out = x.dtype();
  x = x.cast(wide_dtype(out));
  Tensor m = x.max({.axis = o.axis, .keepdim = true}).detach();
  m = m.isinf().where(0, m);  // inf - inf is NaN
  Tensor r = (x - m).exp().sum({.axis = o.axis, .keepdim = o.keepdim}).log();
  return s(narrowed(r + (o.keepdim ? m : m.reshape(r.shape())), out));
}

Tensor Tensor::argmax(const ArgOptions& o) const {
  OpScope s;
  const Shape sh = shape();
  if (!o.axis) {
    TG_CHECK(ShapeError, max_numel() > 0, "[argmax] got shape ", sh, ", expected at least one element");
    Tensor r = flatten().argmax({.axis = 0});
    return s(o.keepdim ? r.reshape(Shape(sh.size(), SInt(1))) : r);
  }
  int a = axis_of(*o.axis, sh.size(), "argmax", sh);
  if (sh.empty()) return s(zeros_like(dtypes::int32));
  const SInt size = sh[static_cast<size_t>(a)];
  int64_t n = size.max();
  TG_CHECK(ShapeError, n > 0, "[argmax] got shape ", sh, ", expected at least one element along axis ", a);
  const DType d = place_dtype(n);
  if (max_numel() == 0) return s(sum({.axis = a, .keepdim = o.keepdim}).zeros_like(d));
  // Counts down, so that the first of equal elements has the largest position.
  Shape line(sh.size(), SInt(1));
  line[static_cast<size_t>(a)] = size;
  Tensor down = size.symbolic() ? n - arange_symbolic(0, size, 1, {.dtype = d}) : arange(n, 0, -1, {.dtype = d});
  down = down.reshape(line);
  Tensor top = from_uop(ops::detach_from_storage(uop_of(max({.axis = a, .keepdim = true}), "argmax")));
  Tensor is_top = *this == top;
  if (dtype().is_float()) is_top = is_top | isnan();
  return s(n - is_top.where(down, 0).max({.axis = a, .keepdim = o.keepdim}));
}
Tensor Tensor::argmin(const ArgOptions& o) const {
  OpScope s;
  if (o.axis) check_axes(*this, *o.axis, "argmin");
  const int64_t n = shape().empty() || !o.axis
                        ? max_numel()
                        : max_shape()[static_cast<size_t>(axis_of(*o.axis, shape().size(), "argmin", shape()))].value();
  TG_CHECK(ShapeError, n > 0, "[argmin] got shape ", shape(), ", expected at least one element along the axis");
  return s((dtype().is_float() ? -*this : ~*this).argmax(o));
}

// ---- normalisations ----

namespace {
/// Returns x minus its maximum, and the type of the result. Narrow floats are widened to their accumulation type: only
/// the result is rounded.
std::pair<Tensor, DType> below_top(const Tensor& t, const Axes& axis, std::optional<DType> dtype, const char* name) {
  check_axes(t, axis, name);
  Tensor x = !t.dtype().is_float() && dtype && dtype->is_float() ? t.cast(*dtype) : as_float(t);
  const DType out = dtype.value_or(x.dtype());
  x = x.cast(wide_dtype(x.dtype()));
  Tensor m = x - x.max({.axis = axis, .keepdim = true}).detach();
  return {dtype ? m.cast(wide_dtype(*dtype)) : m, out};
}
}  // namespace
Tensor Tensor::softmax(const Axes& axis, std::optional<DType> dtype) const {
  OpScope s;
  auto [m, out] = below_top(*this, axis, dtype, "softmax");
  // One division for each row instead of one for each element.
  Tensor e = m.exp(), inverse = e.sum({.axis = axis, .keepdim = true}).reciprocal();
  return s(narrowed(e * inverse, out));
}
Tensor Tensor::log_softmax(const Axes& axis, std::optional<DType> dtype) const {
  OpScope s;
  auto [m, out] = below_top(*this, axis, dtype, "log_softmax");
  return s(narrowed(m - m.exp().sum({.axis = axis, .keepdim = true}).log(), out));
}
Tensor Tensor::normalize(double p, int axis, double eps) const {
  OpScope s;
  check_axes(*this, axis, "normalize");
  const Tensor x = widened(*this);
  const ReduceOptions over{.axis = axis, .keepdim = true};
  Tensor n = p == 0   ? (x != 0).cast(x.dtype()).sum(over)
             : p == 1 ? x.abs().sum(over)
             : p == 2 ? x.square().sum(over).sqrt()
                      : x.abs().pow(p).sum(over).pow(1 / p);
  return s(narrowed(x / n.maximum(eps), as_float(*this).dtype()));
}
Tensor Tensor::layernorm(const Axes& axis, double eps) const {
  OpScope s;
  check_axes(*this, axis, "layernorm");
  const Tensor x = widened(*this), difference = x - x.mean({.axis = axis, .keepdim = true});
  const Tensor y = difference * (difference.square().mean({.axis = axis, .keepdim = true}) + eps).rsqrt();
  return s(narrowed(y, as_float(*this).dtype()));
}
Tensor Tensor::rms_norm(int axis, double eps) const {
  OpScope s;
  check_axes(*this, axis, "rms_norm");
  Tensor x = cast(least_upper_dtype(dtype(), dtypes::float32));
  return s((x * (x.square().mean({.axis = axis, .keepdim = true}) + eps).rsqrt()).cast(dtype()));
}
Tensor Tensor::batchnorm(const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& invstd,
                         const Axes& axis) const {
  OpScope s;
  const Shape sh = shape();
  Shape line(sh.size(), SInt(1));
  for (int a : axes_of(axis, "batchnorm", sh)) line[static_cast<size_t>(a)] = sh[static_cast<size_t>(a)];
  auto along = [&](const Tensor& t) {
    TG_CHECK(ShapeError, t.numel() == line.numel() || t.ndim() == static_cast<int64_t>(sh.size()),
             "[batchnorm] got statistics of shape ", t.shape(), " for ", sh, ", expected ", line.numel(), " elements");
    return t.numel() == line.numel() ? t.reshape(line) : t;
  };
  Tensors operands{*this, mean, invstd};
  for (const Tensor* t : {&weight, &bias})
    if (t->defined()) operands.push_back(*t);
  const DType out = common_dtype(operands), wide = wide_dtype(out);
  // One factor for both: the gradients of weight and deviation are made of one sum over the elements then.
  Tensor factor = along(invstd).cast(wide);
  if (weight.defined()) factor = along(weight) * factor;
  Tensor r = (cast(wide) - along(mean)) * factor;
  return s(narrowed(bias.defined() ? r + along(bias) : r, out));
}

// ---- prefixes ----

namespace {
constexpr int64_t kChunk = 16;                       // of a prefix: its elements are in registers
constexpr int64_t kLeastChunk = 8, kMostChunk = 24;  // of axes that 16 does not divide
constexpr int64_t kAtOnce = int64_t{1} << 16;        // with so few additions more kernels take longer

/// Returns the length of the chunks that a prefix of n is computed in: a divisor of n, if there is one.
int64_t prefix_chunk(int64_t n) {
  for (int64_t off = 0; off <= kMostChunk - kChunk; off++)
    for (int64_t c : {kChunk + off, kChunk - off})
      if (c >= kLeastChunk && n % c == 0) return c;
  return kChunk;
}

/// Reduces every prefix of the last axis. Short axes: as windows of n over the axis padded with n - 1 identity
/// elements. Others in chunks, each continuing from the reduce of all chunks before it: memory is read twice, once for
/// the chunk totals.
Tensor prefix(const Tensor& t, Ops op) {
  const Shape sh = t.shape();
  const int64_t n = sh.back().value(), c = prefix_chunk(n), chunks = (n + c - 1) / c;
  const ConstValue zero = identity_element(op, t.dtype());
  auto padded = [&](const Tensor& x, int64_t before, int64_t after) {
    if (!before && !after) return x;
    ops::Pairs p(static_cast<size_t>(x.ndim()), {0, 0});
    p.back() = {before, after};
    UOp v = ops::pad(x.uop(), p);
    if (op == Ops::ADD) return Tensor::from_uop(v);
    UOp inside = ops::pad(ops::full(x.shape(), true, dtypes::bool_), p);
    return Tensor::from_uop(inside.where(v, v.const_like(zero)));
  };
  auto over = [&](const Tensor& x) {
    return Tensor::from_uop(reduced(op, x.uop(), Axes(-1), false, x.dtype(), "prefix"));
  };
  auto windows = [&](const Tensor& x, int64_t length) {
    // Maxima are masked where they are read, so that nothing is stored with identity elements. The gradient of a
    // product would store all windows.
    if (op != Ops::MAX) return over(padded(x, length - 1, 0).pool_view(length));
    ops::Pairs p(static_cast<size_t>(x.ndim()), {0, 0});
    p.back() = {length - 1, 0};
    auto view = [&](UOp u) { return Tensor::from_uop(ops::pad(u, p)).pool_view(length).uop(); };
    UOp v = view(x.uop());
    return over(Tensor::from_uop(view(ops::full(x.shape(), true, dtypes::bool_)).where(v, v.const_like(zero))));
  };
  if (n <= c || t.max_numel() * n <= kAtOnce) return windows(t, n);
  Shape split = sh, totals = sh, flat = sh;
  split.back() = chunks;
  split.push_back(c);
  totals.back() = chunks;
  flat.back() = chunks * c;
  const Tensor parts = padded(t, 0, chunks * c - n).reshape(split);
  std::vector<std::pair<SInt, SInt>> keep;
  for (const SInt& d : totals) keep.push_back({0, d});
  keep.back() = {0, chunks - 1};
  const Tensor before = padded(prefix(over(parts).contiguous(), op).shrink(keep), 1, 0).unsqueeze(-1),
               inner = windows(parts, c);
  const Tensor both = op == Ops::ADD ? inner + before : op == Ops::MUL ? inner * before : inner.maximum(before);
  return both.reshape(flat).shrink_to(sh);
}

Tensor prefix_along(const Tensor& t, int axis, Ops op, DType acc, const char* name) {
  const Shape sh = t.shape();
  int a = axis_of(axis, sh.size(), name, sh), last = static_cast<int>(sh.size()) - 1;
  if (sh.empty() || t.max_numel() == 0) return t.cast(acc);
  Tensor x = t.cast(acc).transpose(a, last);
  const SInt n = x.shape().back();
  if (!n.symbolic()) return prefix(x, op).transpose(a, last);
  // Elements after a position do not affect it, so a symbolic axis is computed at its maximum size.
  std::vector<std::pair<SInt, SInt>> grow(sh.size(), {0, 0});
  grow.back() = {0, ops::minus(n.max(), n)};
  return prefix(x.pad(grow), op).shrink_to(x.shape()).transpose(a, last);
}
}  // namespace

Tensor Tensor::cumsum(int axis) const {
  OpScope s;
  DType d = stored_dtype(), acc = sum_acc_dtype(d);
  Tensor r = prefix_along(*this, axis, Ops::ADD, acc, "cumsum");
  return s(d.is_float() ? r.cast(d) : r);
}
Tensor Tensor::cumprod(int axis) const {
  OpScope s;
  return s(prefix_along(*this, axis, Ops::MUL, stored_dtype(), "cumprod"));
}
std::pair<Tensor, Tensor> Tensor::cummax(int axis) const {
  OpScope s;
  const Shape sh = shape();
  if (sh.empty() || max_numel() == 0)
    return {prefix_along(*this, axis, Ops::MAX, stored_dtype(), "cummax"), zeros_like(dtypes::int32)};
  const DType places = place_dtype(sh[static_cast<size_t>(axis_of(axis, sh.size(), "cummax", sh))].max());
  // Stored, since another kernel may round the same elements differently: the maximum changes only where a larger one
  // is seen.
  const Tensor v = prefix_along(contiguous(), axis, Ops::MAX, stored_dtype(), "cummax");
  const Tensor top = v.detach().transpose(axis, -1).contiguous();
  std::vector<std::pair<SInt, SInt>> shift(sh.size(), {0, 0});
  shift.back() = {1, 0};
  const Tensor earlier = top.pad(shift).shrink_to(top.shape()),
               number = arange_symbolic(0, top.shape().back(), 1, {.dtype = places});
  Tensor greater = top != earlier;
  if (top.dtype().is_float()) greater = greater & !(top.isnan() & earlier.isnan());
  const Tensor index = prefix_along(greater.where(number, 0), -1, Ops::MAX, places, "cummax");
  return {v, index.transpose(axis, -1)};
}
std::pair<Tensor, Tensor> Tensor::cummin(int axis) const {
  OpScope s;
  auto inverse = [](const Tensor& t) { return t.dtype().is_float() ? -t : ~t; };
  auto [v, i] = inverse(*this).cummax(axis);
  return {inverse(v), i};
}
namespace {
/// Returns the log-sum-exp of every prefix of the last axis, in chunks as prefix().
Tensor prefix_logsumexp(const Tensor& x) {
  const Shape sh = x.shape();
  const SInt n = sh.back();
  const double none = -std::numeric_limits<double>::infinity();
  auto direct = [&](const Tensor& t) {
    // Row i of the last two axes: the elements up to i.
    const Tensor number = Tensor::arange_symbolic(0, t.shape().back()), seen = number.unsqueeze(-1) >= number;
    return seen.where(t.unsqueeze(-2), none).logsumexp(-1);
  };
  if (n.symbolic() || x.max_numel() * n.value() <= kAtOnce || n.value() <= prefix_chunk(n.value())) return direct(x);
  if (x.dtype().is_float() && x.dtype().itemsize() < 4)
    return prefix_logsumexp(x.cast(dtypes::float32)).cast(x.dtype());  // rounded once
  const int64_t c = prefix_chunk(n.value()), chunks = (n.value() + c - 1) / c;
  auto padded = [&](const Tensor& t, int64_t before, int64_t after) {
    std::vector<std::pair<SInt, SInt>> p(static_cast<size_t>(t.ndim()), {0, 0});
    p.back() = {before, after};
    return before || after ? t.pad(p, {.value = none}) : t;
  };
  Shape split = sh, totals = sh, flat = sh;
  split.back() = chunks;
  split.push_back(c);
  totals.back() = chunks;
  flat.back() = chunks * c;
  const Tensor inner = direct(padded(x, 0, chunks * c - n.value()).reshape(split)).contiguous();
  std::vector<std::pair<SInt, SInt>> last, but_last;
  for (const SInt& d : split) last.push_back({0, d});
  for (const SInt& d : totals) but_last.push_back({0, d});
  last.back() = {c - 1, c};
  but_last.back() = {0, chunks - 1};
  const Tensor before =
      padded(prefix_logsumexp(inner.shrink(last).reshape(totals)).shrink(but_last), 1, 0).contiguous().unsqueeze(-1);
  return inner.logaddexp(before).reshape(flat).shrink_to(sh);
}
}  // namespace

Tensor Tensor::logcumsumexp(int axis) const {
  OpScope s;
  if (shape().empty()) return *this;
  return s(prefix_logsumexp(transpose(axis, -1)).transpose(axis, -1));
}

}  // namespace tg
