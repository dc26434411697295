/// \file Movement: reshape, expand, permute, pad, shrink, flip and what is built from them. Nothing is copied.
#include <algorithm>
#include <numeric>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// Returns the axis whose size is -1; -1: there is none.
int unknown_axis(const Shape& to, const Shape& want, const Shape& from) {
  int unknown = -1;
  for (size_t i = 0; i < to.size(); i++) {
    if (to[i].symbolic()) continue;
    const int64_t n = to[i].value();
    TG_CHECK(ShapeError, n >= -1, "[reshape] got ", want, " for shape ", from,
             ", expected sizes of 0 or more, or one -1");
    if (n != -1) continue;
    TG_CHECK(ShapeError, unknown < 0, "[reshape] got ", want, " for shape ", from, ", expected at most one -1");
    unknown = static_cast<int>(i);
  }
  return unknown;
}

/// Returns the size that `from` leaves for one more axis beside `known` ones. Symbolic sizes on both sides cancel.
SInt missing_size(Shape known, const Shape& want, const Shape& from) {
  Shape rest = from;
  std::erase_if(known, [&](const SInt& k) {
    auto it = k.symbolic() ? std::find(rest.begin(), rest.end(), k) : rest.end();
    if (it == rest.end()) return false;
    rest.erase(it);
    return true;
  });
  if (known.symbolic() || rest.symbolic()) {
    const SInt k = ops::product(known), n = ops::product(rest);
    return k == 1 ? n : ops::simplified(SInt(n.uop() / k.uop()));
  }
  const int64_t k = known.numel(), n = rest.numel();
  TG_CHECK(ShapeError, k > 0 && n % k == 0, "[reshape] got ", want, " for shape ", from,
           ", expected sizes whose product divides ", n);
  return n / k;
}
}  // namespace

Tensor Tensor::reshape(const Shape& want) const {
  OpScope s;
  UOp u = uop_of(*this, "reshape");
  const Shape from = shape_of(u);
  Shape to = ops::const_last(want);
  if (const int axis = unknown_axis(to, want, from); axis >= 0) {
    Shape known = to;
    known.erase(known.begin() + axis);
    to[static_cast<size_t>(axis)] = missing_size(known, want, from);
  }
  if (!from.symbolic() && !to.symbolic())
    TG_CHECK(ShapeError, from.numel() == to.numel(), "[reshape] got ", want, " (", to.numel(), " elements) for shape ",
             from, ", expected ", from.numel(), " elements");
  else
    TG_CHECK(ShapeError, ops::product(from) == ops::product(to), "[reshape] got ", want, " for shape ", from,
             ", expected as many elements");
  return from == to ? *this : s(ops::reshape(u, to));
}

Tensor Tensor::expand(const Shape& want) const {
  OpScope s;
  UOp u = uop_of(*this, "expand");
  const Shape from = shape_of(u);
  TG_CHECK(ShapeError, want.size() >= from.size(), "[expand] got ", want, " for shape ", from,
           ", expected at least as many axes");
  Shape to = ops::const_last(want);
  size_t lead = to.size() - from.size();
  for (size_t i = 0; i < to.size(); i++) {
    SInt have = i < lead ? SInt(1) : from[i - lead];
    if (to[i] == -1) to[i] = have;
    TG_CHECK(ShapeError, have == to[i] || have == 1, "[expand] got ", want, " for shape ", from,
             ", expected sizes equal to the old ones where those are not 1");
    TG_CHECK(ShapeError, to[i].symbolic() || to[i].value() >= 0, "[expand] got ", want,
             ", expected sizes that are not negative");
  }
  if (!to.symbolic()) to.numel();
  return from == to ? *this : s(ops::expand(u, to));
}

Tensor Tensor::permute(const std::vector<int>& order) const {
  OpScope s;
  UOp u = uop_of(*this, "permute");
  const Shape shape = shape_of(u);
  std::vector<int> axes, seen;
  for (int a : order) axes.push_back(axis_of(a, shape.size(), "permute", shape));
  seen = axes;
  std::sort(seen.begin(), seen.end());
  bool ok = axes.size() == shape.size();
  for (size_t i = 0; i < seen.size(); i++) ok &= seen[i] == static_cast<int>(i);
  TG_CHECK(ShapeError, ok, "[permute] got order ", Shape(order.begin(), order.end()), " for shape ", shape,
           ", expected each axis once");
  return s(ops::permute(u, axes));
}

Tensor Tensor::transpose(int a, int b) const {
  OpScope s;
  const Shape sh = shape();
  std::vector<int> order(sh.size());
  std::iota(order.begin(), order.end(), 0);
  int i = axis_of(a, sh.size(), "transpose", sh), j = axis_of(b, sh.size(), "transpose", sh);
  if (!order.empty()) std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  return s(permute(order));
}

Tensor Tensor::shrink(const std::vector<std::pair<SInt, SInt>>& ranges) const {
  OpScope s;
  UOp u = uop_of(*this, "shrink");
  const Shape shape = shape_of(u);
  TG_CHECK(ShapeError, ranges.size() == shape.size(), "[shrink] got ", ranges.size(), " ranges for shape ", shape,
           ", expected ", shape.size());
  ops::Pairs offset_size;
  for (size_t i = 0; i < ranges.size(); i++) {
    auto& [begin, end] = ranges[i];
    if (!begin.symbolic() && !end.symbolic()) {
      TG_CHECK(ShapeError, 0 <= begin.value() && begin.value() <= end.value() && end.value() <= shape[i].max(),
               "[shrink] got [", begin, ", ", end, ") for axis ", i, " of shape ", shape,
               ", expected 0 <= begin <= end <= size");
      offset_size.push_back({begin, end.value() - begin.value()});
    } else {
      // begin + n keeps its size n when begin is symbolic.
      UOp b = begin.uop(), e = end.uop();
      SInt size;
      if (e.is(Ops::ADD) && e.src(0) == b) size = SInt(e.src(1));
      else if (e.is(Ops::ADD) && e.src(1) == b) size = SInt(e.src(0));
      else size = ops::minus(end, begin);
      size = ops::simplified(size);
      offset_size.push_back({begin, size});
    }
  }
  return s(ops::shrink(u, offset_size));
}

Tensor Tensor::shrink_to(const Shape& want) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, want.size() == sh.size(), "[shrink_to] got ", want, " for shape ", sh,
           ", expected as many axes");
  std::vector<std::pair<SInt, SInt>> r;
  for (size_t i = 0; i < sh.size(); i++) r.push_back({0, want[i] == -1 ? sh[i] : want[i]});
  return s(shrink(r));
}

namespace {
using PadList = std::vector<std::pair<int64_t, int64_t>>;

Tensor pad_constant(const OpScope& s, const Tensor& t, const PadList& p, const Scalar& value) {
  const Shape sh = t.shape();
  std::vector<std::pair<SInt, SInt>> keep;
  ops::Pairs grow;
  for (size_t i = 0; i < p.size(); i++) {
    auto [a, b] = p[i];
    if (sh[i].symbolic()) {
      TG_CHECK(ShapeError, a >= 0 && b >= 0, "[pad] got (", a, ", ", b, ") for the symbolic axis ", i, " of shape ", sh,
               ", expected sizes that are not negative");
      keep.push_back({0, sh[i]});
    } else {
      int64_t n = sh[i].value();
      TG_CHECK(ShapeError, n + std::min<int64_t>(a, 0) + std::min<int64_t>(b, 0) >= 0, "[pad] got (", a, ", ", b,
               ") for axis ", i, " of shape ", sh, ", expected to keep 0 or more elements");
      keep.push_back({std::max<int64_t>(-a, 0), n + std::min<int64_t>(b, 0)});
    }
    grow.push_back({std::max<int64_t>(a, 0), std::max<int64_t>(b, 0)});
  }
  Tensor x = t.shrink(keep);
  UOp base = ops::pad(x.uop(), grow);
  if (value.value.as_double() == 0) return s(base);
  Tensor inside = s(ops::pad(ops::full(x.shape(), true, dtypes::bool_), grow));
  return inside.where(s(base), Tensor::scalar(value));
}

Tensor pad_edges(Tensor x, const PadList& p, bool reflect) {
  for (size_t d = 0; d < p.size(); d++) {
    const int64_t before = std::max<int64_t>(p[d].first, 0), after = std::max<int64_t>(p[d].second, 0);
    if (before + after == 0) continue;
    const int64_t n = x.shape(static_cast<int>(d));
    TG_CHECK(ShapeError, !reflect || (before < std::max<int64_t>(n, 1) && after < std::max<int64_t>(n, 1)),
             "[pad] got (", before, ", ", after, ") to reflect an axis of ", n, ", expected less than its size");
    TG_CHECK(ShapeError, n > 0, "[pad] got an empty axis ", d, " of shape ", x.shape(),
             ", expected elements to repeat");
    auto part = [&](int64_t from, int64_t to) {
      std::vector<std::pair<SInt, SInt>> r;
      for (const SInt& m : x.shape()) r.push_back({0, m});
      r[d] = {from, to};
      return x.shrink(r);
    };
    auto repeated = [&](const Tensor& t, int64_t k) {
      Shape sh = t.shape();
      sh[d] = k;
      return t.expand(sh);
    };
    Tensors pieces;
    if (before)
      pieces.push_back(reflect ? part(1, before + 1).flip(static_cast<int>(d)) : repeated(part(0, 1), before));
    pieces.push_back(x);
    if (after)
      pieces.push_back(reflect ? part(n - 1 - after, n - 1).flip(static_cast<int>(d))
                               : repeated(part(n - 1, n), after));
    x = Tensor::cat(pieces, static_cast<int>(d));
  }
  PadList shrinks;
  for (auto [a, b] : p) shrinks.push_back({std::min<int64_t>(a, 0), std::min<int64_t>(b, 0)});
  return x.pad(shrinks);
}
}  // namespace

Tensor Tensor::pad(const PadList& padding, const PadOptions& o) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, padding.size() == sh.size(), "[pad] got ", padding.size(), " pairs for shape ", sh,
           ", expected ", sh.size());
  for (auto [before, after] : padding) {
    constexpr int64_t kLimit = int64_t{1} << 60;
    TG_CHECK(ShapeError, before < kLimit && before > -kLimit && after < kLimit && after > -kLimit, "[pad] got (",
             before, ", ", after, ") for shape ", sh, ", which is too many elements");
  }
  if (o.mode == PadOptions::kConstant) return s(pad_constant(s, *this, padding, o.value));
  if (o.mode != PadOptions::kCircular) return s(pad_edges(*this, padding, o.mode == PadOptions::kReflect));
  PadList shrinks, grow;
  for (auto [a, b] : padding) {
    shrinks.push_back({std::min<int64_t>(a, 0), std::min<int64_t>(b, 0)});
    grow.push_back({std::max<int64_t>(a, 0), std::max<int64_t>(b, 0)});
  }
  Tensor x = pad(shrinks);
  Ints repeats;
  std::vector<std::pair<SInt, SInt>> range;
  for (size_t i = 0; i < grow.size(); i++) {
    auto [a, b] = grow[i];
    if (a == 0 && b == 0) {
      repeats.push_back(1);
      range.push_back({0, x.shape()[i]});
      continue;
    }
    const int64_t n = x.shape(static_cast<int>(i));
    TG_CHECK(ShapeError, a <= n && b <= n, "[pad] got (", a, ", ", b, ") to wrap an axis of ", n,
             ", expected at most its size");
    repeats.push_back(1 + (a > 0) + (b > 0));
    range.push_back({a > 0 ? n - a : 0, (a > 0 ? n : 0) + n + b});
  }
  return s(x.repeat(repeats).shrink(range));
}

Tensor Tensor::pad(const std::vector<std::pair<SInt, SInt>>& padding, const PadOptions& o) const {
  OpScope s;
  PadList numbers;
  for (auto& [a, b] : padding)
    if (!a.symbolic() && !b.symbolic()) numbers.push_back({a.value(), b.value()});
  if (numbers.size() == padding.size()) return s(pad(numbers, o));
  const Shape sh = shape();
  TG_CHECK(ShapeError, padding.size() == sh.size() && o.mode == PadOptions::kConstant, "[pad] got ", padding.size(),
           " symbolic pairs for shape ", sh, ", expected ", sh.size(), " and a constant");
  for (auto& [a, b] : padding)
    for (const SInt& n : {a, b})
      TG_CHECK(ShapeError, n.symbolic() || n.value() >= 0, "[pad] got ", n,
               " beside symbolic amounts, expected 0 or more");
  UOp r = ops::pad(uop(), padding);
  if (o.value.value.as_double() == 0) return s(r);
  Tensor inside = s(ops::pad(ops::full(sh, true, dtypes::bool_), padding));
  return s(inside.where(s(r), Tensor::scalar(o.value)));
}

Tensor Tensor::pad(const Ints& padding, const PadOptions& o) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, padding.size() % 2 == 0 && padding.size() <= 2 * sh.size(), "[pad] got ", padding.size(),
           " numbers for shape ", sh, ", expected pairs for at most ", sh.size(), " axes");
  PadList p(sh.size(), {0, 0});
  for (size_t i = 0; i < padding.size() / 2; i++) p[sh.size() - 1 - i] = {padding[2 * i], padding[2 * i + 1]};
  return s(pad(p, o));
}

Tensor Tensor::pad_to(const Shape& want, const Scalar& value) const {
  OpScope s;
  const Shape sh = shape();
  TG_CHECK(ShapeError, want.size() == sh.size(), "[pad_to] got ", want, " for shape ", sh, ", expected as many axes");
  PadList p;
  for (size_t i = 0; i < sh.size(); i++) {
    int64_t grow = want[i] == -1 ? 0 : want[i].value() - sh[i].value();
    TG_CHECK(ShapeError, grow >= 0, "[pad_to] got ", want, " for shape ", sh, ", expected sizes that are not smaller");
    p.push_back({0, grow});
  }
  return s(pad(p, {.value = value}));
}

Tensor Tensor::flip(const std::vector<int>& axes) const {
  OpScope s;
  UOp u = uop_of(*this, "flip");
  return s(ops::flip(u, axes_of(Axes(axes), "flip", shape_of(u))));
}

Tensor Tensor::squeeze() const {
  OpScope s;
  Shape out;
  for (const SInt& n : shape())
    if (n != 1) out.push_back(n);
  return s(reshape(out));
}
Tensor Tensor::squeeze(int axis) const {
  OpScope s;
  Shape out = shape();
  int a = axis_of(axis, out.size(), "squeeze", out);
  if (out.empty() || out[static_cast<size_t>(a)] != 1) return *this;
  out.erase(out.begin() + a);
  return s(reshape(out));
}
Tensor Tensor::unsqueeze(int axis) const {
  OpScope s;
  Shape out = shape();
  int a = axis_of(axis, out.size() + 1, "unsqueeze", out);
  out.insert(out.begin() + a, SInt(1));
  return s(reshape(out));
}
Tensor Tensor::flatten(int start, int end) const {
  OpScope s;
  const Shape sh = shape();
  if (sh.empty()) return s(reshape({1}));
  int a = axis_of(start, sh.size(), "flatten", sh), b = axis_of(end, sh.size(), "flatten", sh);
  TG_CHECK(ShapeError, a <= b, "[flatten] got axes ", start, " to ", end, " for shape ", sh,
           ", expected the first before the last");
  Shape out(sh.begin(), sh.begin() + a);
  out.push_back(ops::product(Shape(sh.begin() + a, sh.begin() + b + 1)));
  out.insert(out.end(), sh.begin() + b + 1, sh.end());
  return s(reshape(out));
}
Tensor Tensor::unflatten(int axis, const Shape& sizes) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "unflatten", sh);
  Shape out(sh.begin(), sh.begin() + a);
  out.insert(out.end(), sizes.begin(), sizes.end());
  out.insert(out.end(), sh.begin() + a + 1, sh.end());
  return s(reshape(out));
}

Tensor Tensor::repeat(const Ints& repeats) const {
  OpScope s;
  Shape base = shape();
  TG_CHECK(ShapeError, repeats.size() >= base.size(), "[repeat] got ", repeats.size(), " numbers for shape ", base,
           ", expected one for each axis");
  base.insert(base.begin(), repeats.size() - base.size(), SInt(1));
  Shape split, wide, out;
  for (size_t i = 0; i < base.size(); i++) {
    TG_CHECK(ShapeError, repeats[i] >= 0, "[repeat] got ", repeats[i], ", expected 0 or more repeats");
    split.push_back(1);
    split.push_back(base[i]);
    wide.push_back(repeats[i]);
    wide.push_back(base[i]);
    out.push_back(ops::times(base[i], repeats[i]));
  }
  return s(reshape(split).expand(wide).reshape(out));
}

Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int> axis) const {
  OpScope s;
  TG_CHECK(ShapeError, repeats >= 0, "[repeat_interleave] got ", repeats, ", expected 0 or more repeats");
  Tensor x = axis ? *this : flatten();
  Shape sh = x.shape(), wide;
  size_t a = static_cast<size_t>(axis_of(axis.value_or(0), sh.size(), "repeat_interleave", sh));
  TG_CHECK(ShapeError, !sh.empty(), "[repeat_interleave] got a tensor without axes");
  wide = sh;
  wide.insert(wide.begin() + static_cast<long>(a) + 1, SInt(repeats));
  sh[a] = ops::times(sh[a], repeats);
  return s(x.unsqueeze(static_cast<int>(a) + 1).expand(wide).reshape(sh));
}

Tensors Tensor::split(const std::vector<int64_t>& sizes, int axis) const {
  OpScope s;
  const Shape sh = shape();
  size_t a = static_cast<size_t>(axis_of(axis, sh.size(), "split", sh));
  TG_CHECK(ShapeError, !sh.empty(), "[split] got a tensor without axes");
  const int64_t n = number_of(sh, static_cast<int>(a), "split");
  int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  TG_CHECK(ShapeError, total == n, "[split] got sizes that add up to ", total, " for axis ", axis, " of shape ", sh,
           ", expected ", sh[a]);
  std::vector<std::pair<SInt, SInt>> r;
  for (const SInt& d : sh) r.push_back({0, d});
  Tensors out;
  int64_t at = 0;
  for (int64_t size : sizes) {
    r[a] = {at, at + size};
    at += size;
    out.push_back(shrink(r));
  }
  return out;
}
Tensors Tensor::split(int64_t size, int axis) const {
  OpScope s;
  const Shape sh = shape();
  size_t a = static_cast<size_t>(axis_of(axis, sh.size(), "split", sh));
  TG_CHECK(ShapeError, !sh.empty() && size > 0, "[split] got size ", size, " for shape ", sh,
           ", expected 1 or more, and an axis");
  std::vector<int64_t> sizes;
  int64_t n = number_of(sh, static_cast<int>(a), "split");
  for (int64_t at = 0; at < n; at += size) sizes.push_back(std::min(size, n - at));
  if (sizes.empty()) sizes.push_back(0);
  return split(sizes, axis);
}
Tensors Tensor::chunk(int64_t chunks, int axis) const {
  OpScope s;
  TG_CHECK(ValueError, chunks > 0, "[chunk] got ", chunks, " chunks, expected 1 or more");
  const Shape sh = shape();
  TG_CHECK(IndexError, !sh.empty(), "[chunk] got a tensor without axes");
  int64_t n = number_of(sh, axis_of(axis, sh.size(), "chunk", sh), "chunk");
  if (n == 0) return Tensors(static_cast<size_t>(chunks), *this);
  return split((n + chunks - 1) / chunks, axis);
}

Tensor Tensor::unfold(int axis, int64_t size, int64_t step) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "unfold", sh), last = static_cast<int>(sh.size()) - 1;
  TG_CHECK(IndexError, !sh.empty(), "[unfold] got a tensor without axes");
  int64_t n = number_of(sh, a, "unfold");
  TG_CHECK(ShapeError, size >= 0 && size <= n && step > 0, "[unfold] got size ", size, " and step ", step, " for axis ",
           axis, " of shape ", sh, ", expected 0 <= size <= ", n, " and step > 0");
  if (size == 0) {
    Shape out = sh;
    out[static_cast<size_t>(a)] = n / step + 1;
    out.push_back(0);
    return s(ops::full(out, 0, dtype()));
  }
  // transpose(pool of the last axis): (..., o, k) with o back in its position.
  return s(transpose(a, last).pool_view(size, step).transpose(a, last));
}

Tensor Tensor::roll(const Ints& shifts, const Axes& axes) const {
  OpScope s;
  const Shape sh = shape();
  if (axes.all) {
    TG_CHECK(ShapeError, shifts.size() == 1, "[roll] got ", shifts.size(), " shifts and no axes, expected one");
    return s(flatten().roll(shifts, Axes(0)).reshape(sh));
  }
  TG_CHECK(ShapeError, shifts.size() == axes.list.size(), "[roll] got ", shifts.size(), " shifts for ",
           axes.list.size(), " axes, expected one for each");
  Tensor x = *this;
  for (size_t i = 0; i < shifts.size(); i++) {
    int a = axis_of(axes.list[i], sh.size(), "roll", sh);
    TG_CHECK(IndexError, !sh.empty(), "[roll] got a tensor without axes");
    int64_t n = number_of(sh, a, "roll");
    if (n == 0) continue;
    int64_t k = (shifts[i] % n + n) % n;
    if (k) {
      Tensors p = x.split({n - k, k}, a);
      x = cat({p[1], p[0]}, a);
    }
  }
  return s(x);
}

Tensor Tensor::diagonal(int offset, int axis1, int axis2) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis1, sh.size(), "diagonal", sh), b = axis_of(axis2, sh.size(), "diagonal", sh);
  TG_CHECK(ShapeError, a != b && sh.size() >= 2, "[diagonal] got axes ", axis1, " and ", axis2, " for shape ", sh,
           ", expected two different ones");
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(sh.size()); i++)
    if (i != a && i != b) order.push_back(i);
  order.push_back(a);
  order.push_back(b);
  Tensor x = permute(order);
  int64_t rows = x.shape(-2), cols = x.shape(-1),
          n = std::max<int64_t>(0, offset >= 0 ? std::min(rows, cols - offset) : std::min(rows + offset, cols));
  Shape lead = x.shape();
  lead.resize(lead.size() - 2);
  auto with = [&](std::initializer_list<int64_t> tail) {
    Shape t = lead;
    for (int64_t v : tail) t.push_back(v);
    return t;
  };
  if (n == 0) return s(ops::full(with({0}), 0, dtype()));
  std::vector<std::pair<SInt, SInt>> r;
  for (const SInt& m : lead) r.push_back({0, m});
  int64_t r0 = std::max(0, -offset), c0 = std::max(0, offset);
  r.push_back({r0, r0 + n});
  r.push_back({c0, c0 + n});
  // Rows one element longer: the diagonal becomes a column.
  x = x.shrink(r).reshape(with({n * n}));
  PadList p(lead.size(), {0, 0});
  p.push_back({0, n});
  x = x.pad(p).reshape(with({n, n + 1}));
  return s(x.shrink_to(with({n, 1})).reshape(with({n})));
}

Tensor Tensor::diag() const {
  OpScope s;
  TG_CHECK(ShapeError, ndim() == 1, "[diag] got shape ", shape(), ", expected one axis");
  int64_t n = numel();
  return s(eye(n, n, {.dtype = dtypes::bool_}).where(unsqueeze(-1), zeros_like()));
}

Tensor Tensor::cat(const Tensors& tensors, int axis) {
  OpScope s;
  TG_CHECK(ValueError, !tensors.empty(), "[cat] got no tensors, expected at least one");
  const Shape first = tensors[0].shape();
  size_t a = static_cast<size_t>(axis_of(axis, first.size(), "cat", first));
  TG_CHECK(IndexError, !first.empty(), "[cat] got tensors without axes, expected at least one axis: use stack");
  const DType d = common_dtype(tensors);
  bool equal = true;
  SInt total = 0;
  for (const Tensor& t : tensors) {
    const Shape sh = t.shape();
    bool fits = sh.size() == first.size();
    for (size_t i = 0; fits && i < sh.size(); i++) fits = i == a || sh[i] == first[i];
    TG_CHECK(ShapeError, fits, "[cat] got shapes ", first, " and ", sh, ", expected equal sizes except along axis ",
             axis);
    equal &= sh == first && !sh[a].symbolic();
    total = ops::plus(total, sh[a]);
  }
  if (tensors.size() == 1) return tensors[0];
  if (equal) {  // a new axis next to `a`, merged with it
    UOps parts;
    for (const Tensor& t : tensors) parts.push_back(ops::cast(t.uop(), d));
    std::vector<int> order;
    for (size_t i = 0; i < first.size(); i++) {
      if (i == a) order.push_back(0);
      order.push_back(static_cast<int>(i) + 1);
    }
    Shape out = first;
    out[a] = total;
    return s(ops::reshape(ops::permute(UOp::stack(parts), order), out));
  }
  UOp sum;
  SInt at = 0;
  Shape out = first, offset(first.size(), SInt(0));
  out[a] = total;
  for (const Tensor& t : tensors) {
    SInt n = shape_of(t.uop())[a];
    offset[a] = at;
    at = ops::plus(at, n);
    if (n == 0) continue;
    UOp v = ops::cast(t.uop(), d), u = n == total ? v : UOp::make(Ops::PAD, d, {v, offset.stack(), out.stack()});
    sum = !sum ? u : d.is_bool() ? sum | u : sum + u;
  }
  return s(sum);
}

Tensor Tensor::stack(const Tensors& tensors, int axis) {
  OpScope s;
  TG_CHECK(ValueError, !tensors.empty(), "[stack] got no tensors, expected at least one");
  const Shape first = tensors[0].shape();
  int a = axis_of(axis, first.size() + 1, "stack", first);
  const DType d = common_dtype(tensors);
  for (const Tensor& t : tensors) {
    TG_CHECK(ShapeError, t.shape() == first, "[stack] got shapes ", first, " and ", t.shape(),
             ", expected equal shapes");
  }
  UOps parts;
  for (const Tensor& t : tensors) parts.push_back(ops::cast(t.uop(), d));
  std::vector<int> order;
  for (int i = 1; i <= static_cast<int>(first.size()); i++) order.push_back(i);
  order.insert(order.begin() + a, 0);
  return s(ops::permute(UOp::stack(parts), order));
}

}  // namespace tg
