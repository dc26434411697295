/// \file Indexing: integers, slices, new axes, integer and bool tensors; selection by a mask.
#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/index_parse.h"
#include "tinygrad/tensor/ops/index_range.h"
#include "tinygrad/tensor/ops/steps.h"
#include "tinygrad/uop/multi.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
using namespace tensor_detail;

namespace tensor_detail {

bool ParsedIndex::whole() const {
  if (result.size() != axes.size()) return false;
  for (size_t i = 0; i < axes.size(); i++) {
    const AxisIndex& a = axes[i];
    if (result[i] != static_cast<int>(i) || a.rows.defined() || a.flip || !(a.begin == 0) || !(a.size == shape[i]))
      return false;
  }
  return true;
}

Shape ParsedIndex::basic_shape() const {
  Shape s;
  for (int axis : result) s.push_back(axis < 0 ? SInt(1) : axes[static_cast<size_t>(axis)].size);
  return s;
}

std::vector<int> ParsedIndex::gathered() const {
  std::vector<int> out;
  for (size_t i = 0; i < result.size(); i++)
    if (result[i] >= 0 && axes[static_cast<size_t>(result[i])].rows.defined()) out.push_back(static_cast<int>(i));
  return out;
}

namespace {
Bounds bounds(const SInt& v) { return v.symbolic() ? bounds_of(v.uop()) : Bounds{v.value(), v.value()}; }

/// Returns e - b when that is known to be 0 or more.
SInt distance(const SInt& b, const SInt& e, const char* op, const Shape& shape) {
  if (b == 0) return e;
  UOp ub = b.uop(), ue = e.uop();
  if (ue.is(Ops::ADD) && ue.src(0) == ub) return SInt(ue.src(1));
  if (ue.is(Ops::ADD) && ue.src(1) == ub) return SInt(ue.src(0));
  UOp d = simplify(ue - ub);
  TG_CHECK(ValueError, bounds_of(d).lo >= 0, "[", op, "] got the slice ", b, " to ", e, " for shape ", shape,
           ", which is not supported: expected an end that is never before the start");
  return SInt(d);
}

AxisIndex parse_integer(const SInt& i, const SInt& n, int axis, const Shape& shape, const char* op) {
  Bounds bi = bounds(i), bn = bounds(n);
  TG_CHECK(IndexError, bi.lo < bn.hi && bi.hi >= -bn.hi, "[", op, "] got index ", i, " for axis ", axis, " of shape ",
           shape, ", which is out of bounds, expected ", -n.max(), " to ", n.max() - 1);
  AxisIndex a;
  a.begin = bi.lo >= 0 || (i.symbolic() && bi.hi >= 0) ? i : ops::plus(i, n);
  a.size = 1;
  a.drop = true;
  return a;
}

AxisIndex parse_slice(const Slice& s, const SInt& n, int axis, const Shape& shape, const char* op) {
  int64_t step = s.step.value_or(1);
  TG_CHECK(ValueError, step != 0, "[", op, "] got a slice of step 0 for axis ", axis, ", expected another step");
  AxisIndex a;
  const std::optional<SInt>& start = s.start.value;
  std::optional<SInt> stop = s.stop.value;
  if (n.symbolic() && stop && step > 0 && !stop->symbolic() && stop->value() >= n.max()) stop.reset();  // the end
  bool symbolic = (start && start->symbolic()) || (stop && stop->symbolic());
  // A negative bound counts from a symbolic end.
  auto negative = [](const std::optional<SInt>& v) { return v && !v->symbolic() && v->value() < 0; };
  if (n.symbolic()) symbolic |= !stop || negative(start) || negative(stop);
  if (symbolic) {
    TG_CHECK(ValueError, step == 1, "[", op, "] got a slice of step ", step, " with symbolic bounds for axis ", axis,
             " of shape ", shape, ", which is not supported: expected step 1");
    auto bound = [&](const std::optional<SInt>& v, SInt without) {
      if (!v) return without;
      return negative(v) ? ops::plus(n, *v) : *v;
    };
    a.begin = bound(start, 0);
    SInt end = bound(stop, n);
    a.size = distance(a.begin, end, op, shape);
    return a;
  }
  int64_t size = n.max();
  bool back = step < 0;
  auto bound = [&](const std::optional<SInt>& v, int64_t without) {
    if (!v) return without;
    int64_t k = v->value() < 0 ? v->value() + size : v->value();
    return std::clamp<int64_t>(k, back ? -1 : 0, back ? size - 1 : size);
  };
  int64_t from = bound(start, back ? size - 1 : 0), to = bound(stop, back ? -1 : size);
  int64_t reach = back ? from - to : to - from,
          k = back ? -std::max(step, -std::max<int64_t>(size, 1)) : std::min(step, std::max<int64_t>(size, 1));
  int64_t count = reach > 0 ? (reach + k - 1) / k : 0;
  // Backwards from `from` are the same positions forwards, flipped.
  a.begin = count == 0 ? std::min(from < 0 ? 0 : from, size) : back ? from - (count - 1) * k : from;
  a.size = count;
  a.step = k;
  a.flip = back && count > 1;
  return a;
}

/// Returns where the first window of `step` elements per row begins so that all windows are inside the axis; -1 when
/// they do not fit.
int64_t window_of(const AxisIndex& a, int64_t n) {
  int64_t rows = a.size.value(), begin = a.begin.value();
  if (rows * a.step > n) return -1;
  return std::min(begin, n - rows * a.step);
}
bool strided(const AxisIndex& a) { return a.step > 1 && a.size != 0 && a.size != 1; }
bool is_mask(const Index& i) { return i.kind == Index::kTensor && i.tensor.dtype().is_bool(); }

/// Returns the axes an index tensor stands for, from `axis` on: one for integers, all of its own for a mask.
std::vector<AxisIndex> parse_tensor(const Index& i, int axis, const Tensor& source, const Shape& shape,
                                    const char* op) {
  Tensor t = i.list && i.tensor.device() != source.device() ? i.tensor.to(source.device()) : i.tensor;
  if (i.list && t.numel() == 0 && t.dtype().is_float()) t = t.cast(dtypes::default_int());
  const std::string &here = device_of(source.uop()), &there = device_of(t.uop());
  TG_CHECK(DeviceError, here.empty() || there.empty() || here == there, "[", op, "] got an index on ", there,
           " for a tensor on ", here, ", expected one device: move it with .to(device)");
  const auto sizes = shape.begin() + axis;
  std::vector<AxisIndex> axes(1);
  if (!is_mask(i)) {
    TG_CHECK(IndexError, t.dtype().is_int(), "[", op, "] got an index of ", t.dtype(), " for axis ", axis,
             ", which is not supported: expected integers, or bools as a mask");
    axes[0].size = *sizes;
    axes[0].rows = t;
    return axes;
  }
  const Shape ms = t.shape();
  TG_CHECK(IndexError, !ms.empty() && std::equal(ms.begin(), ms.end(), sizes), "[", op, "] got a mask of shape ", ms,
           " for axis ", axis, " of shape ", shape, ", expected the sizes of the axes");
  const Tensor where = t.nonzero();
  axes.resize(ms.size());
  for (size_t k = 0; k < ms.size(); k++) {
    axes[k].size = ms[k];
    axes[k].rows = where(Slice(), k);
  }
  return axes;
}
}  // namespace

ParsedIndex parse_index(const std::vector<Index>& indices, const Tensor& source, const char* op) {
  ParsedIndex p;
  p.shape = source.shape();
  const Shape& shape = p.shape;
  size_t used = 0, dots = 0;
  for (const Index& i : indices) {
    if (i.kind == Index::kEllipsis) dots++;
    else if (i.kind != Index::kNone) used += is_mask(i) ? static_cast<size_t>(i.tensor.ndim()) : 1;
  }
  TG_CHECK(IndexError, dots <= 1, "[", op, "] got ", dots, " ellipses, expected a single ellipsis");
  TG_CHECK(IndexError, used <= shape.size(), "[", op, "] got too many indices (", used, ") for shape ", shape,
           ", expected at most ", shape.size());
  auto add = [&](AxisIndex a) {
    if (!a.drop) p.result.push_back(static_cast<int>(p.axes.size()));
    p.axes.push_back(std::move(a));
  };
  auto whole = [&](size_t count) {
    for (size_t k = 0; k < count; k++) {
      AxisIndex a;
      a.size = shape[p.axes.size()];
      add(std::move(a));
    }
  };
  for (const Index& i : indices) {
    int axis = static_cast<int>(p.axes.size());
    for (const UOpRef* r : {&i.slice.start.keep, &i.slice.stop.keep})
      if (*r) p.keep.push_back(*r);
    if (i.kind == Index::kNone) p.result.push_back(-1);
    else if (i.kind == Index::kEllipsis) whole(shape.size() - used);
    else if (i.kind == Index::kInt) add(parse_integer(*i.slice.start.value, shape[p.axes.size()], axis, shape, op));
    else if (i.kind == Index::kSlice) add(parse_slice(i.slice, shape[p.axes.size()], axis, shape, op));
    else
      for (AxisIndex& a : parse_tensor(i, axis, source, shape, op)) add(std::move(a));
  }
  whole(shape.size() - p.axes.size());
  return p;
}

Tensor basic_view(const Tensor& t, const ParsedIndex& p) {
  std::vector<std::pair<SInt, SInt>> range;
  std::vector<std::pair<int64_t, int64_t>> grow;
  Shape split;
  std::vector<std::pair<SInt, SInt>> first;
  std::vector<int> back;
  Shape out;
  bool any = false, grows = false;
  for (size_t i = 0; i < p.axes.size(); i++) {
    const AxisIndex& a = p.axes[i];
    out.push_back(a.size);
    if (a.flip) back.push_back(static_cast<int>(i));
    if (!strided(a)) {
      range.push_back({a.begin, ops::plus(a.begin, a.size)});
      grow.push_back({0, 0});
      split.push_back(a.size);
      split.push_back(1);
      first.push_back({0, a.size});
      first.push_back({0, 1});
      continue;
    }
    any = true;
    // Rows of `step` elements, of which one is used.
    int64_t n = p.shape[i].value(), rows = a.size.value(), window = window_of(a, n), at = 0, over = 0;
    if (window >= 0) {
      at = a.begin.value() - window;
      range.push_back({window, window + rows * a.step});
    } else {
      over = a.begin.value() + rows * a.step - n;
      grows = true;
      range.push_back({a.begin, n});
    }
    grow.push_back({0, over});
    split.push_back(rows);
    split.push_back(a.step);
    first.push_back({0, rows});
    first.push_back({at, at + 1});
  }
  Tensor x = t.shrink(range);
  if (any) {
    if (grows) x = x.pad(grow);
    x = x.reshape(split).shrink(first).reshape(out);
  }
  return x.flip(back).reshape(p.basic_shape());
}

Tensor number_line(const SInt& n, size_t axis, size_t ndim) {
  Shape line(ndim, SInt(1));
  line[axis] = n;
  return Tensor::arange_symbolic(0, n).reshape(line);
}

Tensor size_tensor(const SInt& n) {
  return n.symbolic() ? Tensor::from_uop(ops::scalar_of(n, dtypes::default_int())) : Tensor(n.value());
}

Gathered gathered_of(const ParsedIndex& p, const char* op) {
  Gathered g;
  g.places = p.gathered();
  UOps nodes;
  std::vector<const Shape*> shapes;
  for (int place : g.places) {
    const auto axis = static_cast<size_t>(p.result[static_cast<size_t>(place)]);
    const AxisIndex& a = p.axes[axis];
    check_axis_index(a.rows, axis, p.shape, {.op = op, .wraps = true});
    Tensor i = a.rows, n = size_tensor(a.size);
    if (i.dtype().is_weak() || i.dtype().itemsize() < 4) i = i.cast(dtypes::int32);
    Bounds b = bounds_of(i.uop());
    if (b.lo < 0) i = (i < 0).where(i + n, i);
    if (b.lo < 0 || a.size.symbolic() || b.hi >= a.size.value()) {
      Tensor valid = i < n;
      if (b.lo < 0) valid = valid & (i >= 0);
      i = valid.where(i, 0);
      shapes.push_back(&shape_of(valid.uop()));
      g.rows.push_back(i);
      try {
        g.valid = g.valid.defined() ? g.valid & valid : valid;
      } catch (const ShapeError& e) {
        throw IndexError(str("[", op, "] got indices that do not broadcast: ", e.what()));
      }
    } else {
      g.rows.push_back(i);
      shapes.push_back(&shape_of(i.uop()));
    }
  }
  try {
    if (!shapes.empty()) g.shape = broadcast_shapes(shapes, op);
  } catch (const ShapeError& e) { throw IndexError(str("[", op, "] got indices that do not broadcast: ", e.what())); }
  if (!g.places.empty()) g.together = g.places.back() - g.places.front() + 1 == static_cast<int>(g.places.size());
  return g;
}

}  // namespace tensor_detail

Tensor Tensor::index(const std::vector<Index>& indices) const {
  OpScope s;
  uop_of(*this, "index");
  ParsedIndex p = parse_index(indices, *this, "index");
  if (p.whole()) return *this;
  Tensor x = basic_view(*this, p);
  Gathered g = gathered_of(p, "index");
  if (g.places.empty()) return s(x);
  // The gathered axes first, then the others.
  std::vector<int> order = g.places;
  for (int i = 0; i < static_cast<int>(p.result.size()); i++)
    if (!contains(g.places, i)) order.push_back(i);
  UOps src{x.permute(order).uop()};
  for (const Tensor& r : g.rows) src.push_back(r.uop());
  UOp u = UOp::make(Ops::INDEX, src[0].dtype(), src);
  const Shape full = shape_of(u);
  bool empty = !p.shape.symbolic() && !full.symbolic() && (p.shape.numel() == 0 || full.numel() == 0);
  Tensor r = empty ? from_uop(ops::full(full, 0, strong_dtype(src[0].dtype()))) : from_uop(u);
  if (empty && full.numel() == 0)
    r = x.flatten().shrink({{0, 0}}).reshape(full).cast(r.dtype());  // has a gradient: zeros
  if (g.valid.defined() && !empty) {
    Shape wide = g.valid.shape();
    wide.insert(wide.begin(), g.shape.size() - wide.size(), SInt(1));
    wide.insert(wide.end(), full.size() - g.shape.size(), SInt(1));
    r = g.valid.reshape(wide).where(r, Tensor(0).cast(r.dtype()));
  }
  if (g.together && g.places[0] > 0) {
    std::vector<int> back;
    int nb = static_cast<int>(g.shape.size()), lead = g.places[0];
    for (int i = 0; i < lead; i++) back.push_back(nb + i);
    for (int i = 0; i < nb; i++) back.push_back(i);
    for (int i = nb + lead; i < static_cast<int>(full.size()); i++) back.push_back(i);
    r = r.permute(back);
  }
  return s(r);
}

Tensor Tensor::operator[](int64_t i) const { return index({Index(i)}); }
Tensor Tensor::operator[](const Tensor& rows) const { return index({Index(rows)}); }
Tensor Tensor::operator[](const Slice& s) const { return index({Index(s)}); }
Tensor Tensor::slice(int axis, const Slice::Bound& start, const Slice::Bound& stop, std::optional<int64_t> step) const {
  OpScope s;
  const Shape& shape = shape_of(uop_of(*this, "slice"));
  TG_CHECK(IndexError, !shape.empty(), "[slice] got axis ", axis, " for shape ", shape, ", which has no axes");
  std::vector<Index> at(static_cast<size_t>(axis_of(axis, shape.size(), "slice", shape)), Index(Slice()));
  at.push_back(Slice(start, stop, step));
  return index(at);
}

namespace {
/// Returns the positions at which a flat mask holds, in order; what else fits into `count` is undefined.
Tensor places_of(const Tensor& mask, int64_t count) {
  const int64_t n = mask.numel();
  const DType d = place_dtype(n);
  Tensor m = mask;
  if (const UOp u = m.uop(); is_multi(u) && !shard_axes(u).none())
    m = Tensor::from_uop(distribute(u, device_of(u), {}));
  auto kernel = [&](const UOps& p) {
    Steps s;
    const UOp seen = s.registers(1, d), zero = UOp::constant(int64_t{0});
    s.write(seen, {zero}, UOp::constant(0, d));
    s.loop(n, [&](UOp i) {
      // Every position is written, over the previous one unless that one is kept: no branch to predict. The last slot
      // takes what is discarded.
      const UOp at = s.read(seen, {zero});
      s.write(p[0], {at.minimum(UOp::constant(count, d)).cast(dtypes::weakint)}, i.cast(d));
      s.write(seen, {zero}, at + s.read(p[1], {i}).cast(d));
    });
    return s.sink("places");
  };
  return custom_kernel({Tensor::empty({count + 1}, {.dtype = d, .device = m.device()}), m}, kernel)[0].shrink(
      {{0, count}});
}

/// Returns the number of elements of a selection: the size asked for, or as many as the mask holds.
int64_t selected(const Tensor& mask, std::optional<int64_t> size, const char* op) {
  TG_CHECK(ShapeError, !size || *size >= 0, "[", op, "] got size ", *size, ", expected 0 or more");
  return size ? *size : mask.numel() ? mask.sum({.dtype = dtypes::int64}).item<int64_t>() : 0;
}

/// Returns `r` with `fill` after the last selected element, where fewer are selected than its first axis has.
Tensor filled(const Tensor& r, const Tensor& mask, const Tensor& fill) {
  Tensor some = Tensor::arange(r.shape(0)) < mask.sum({.dtype = dtypes::int64});
  return some
      .reshape([&] {
        Shape line(r.shape().size(), SInt(1));
        line[0] = r.shape(0);
        return line;
      }())
      .where(r, fill)
      .cast(r.dtype());
}
}  // namespace

Tensor Tensor::masked_select(const Tensor& mask, std::optional<int64_t> size, const Tensor& fill) const {
  OpScope s;
  TG_CHECK(DTypeError, mask.dtype().is_bool(), "[masked_select] got a mask of ", mask.dtype(), ", expected bool");
  const Tensor x = flatten(), m = mask.expand(shape()).flatten();
  const int64_t count = selected(m, size, "masked_select");
  if (count == 0 || x.numel() == 0) return s(fill.cast(stored_dtype()).expand({count}));
  if (!size) return s(x[places_of(m, count)]);
  return s(filled(x[filled(places_of(m, count), m, 0)], m, fill));
}

Tensor Tensor::nonzero(std::optional<int64_t> size, const Tensor& fill) const {
  OpScope s;
  const Shape sh = shape();
  if (sh.empty()) return s(ops::full({size ? *size : (*this != 0).item<bool>() ? 1 : 0, 0}, 0, dtypes::int32));
  const Tensor mask = (*this != 0).flatten();
  const int64_t count = selected(mask, size, "nonzero"), axes = static_cast<int64_t>(sh.size());
  DType d = dtypes::int32;
  for (const SInt& n : sh)
    if (n.value() > INT32_MAX) d = dtypes::int64;
  if (count == 0 || mask.numel() == 0) return s(fill.cast(d).expand({count, axes}));
  const Tensor place = places_of(mask, count);
  Tensors columns;
  int64_t below = mask.numel();  // elements that differ in the remaining axes
  for (const SInt& n : sh) {
    const int64_t above = below;
    below /= n.value();
    Tensor c = columns.empty() ? place : place % above;
    columns.push_back((below > 1 ? c.floor_div(below) : c).cast(d));
  }
  const Tensor r = stack(columns, -1);
  return s(size ? filled(r, mask, fill) : r);
}

Tensor Tensor::one_hot(int64_t classes) const {
  OpScope s;
  TG_CHECK(DTypeError, dtype().is_int(), "[one_hot] got ", dtype(), ", expected integers");
  TG_CHECK(ValueError, classes >= 0, "[one_hot] got ", classes, " classes, expected 0 or more");
  check_classes(*this, classes, "one_hot");
  if (classes == 0) {
    Shape out = shape();
    out.push_back(0);
    return s(ops::full(out, 0, dtypes::default_int()));
  }
  return s((unsqueeze(-1) == arange(classes)).cast(dtypes::default_int()));
}

}  // namespace tg
