/// \file Indexing: integers, slices, new axes and integer tensors; gather, scatter, one-hot.
#include <algorithm>

#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/ops.h"

namespace tg {
using namespace tensor_detail;

namespace {
/// What one axis of the source becomes.
struct AxisIndex {
  int64_t begin = 0, end = 0, step = 1;
  bool drop = false;  ///< an integer
  Tensor rows;        ///< defined: gather
};
struct Parsed {
  std::vector<AxisIndex> axes;  ///< one for each axis of the source
  std::vector<int> result;      ///< axes of the result before gathering: source axis, or -1 for a new one
};

Parsed parse(const std::vector<Index>& indices, const Shape& shape, const char* op) {
  size_t used = 0, dots = 0;
  for (const Index& i : indices) used += i.kind != Index::kNone && i.kind != Index::kEllipsis, dots += i.kind == Index::kEllipsis;
  TG_CHECK(IndexError, dots <= 1, "[", op, "] got ", dots, " ellipses, expected at most one");
  TG_CHECK(IndexError, used <= shape.size(), "[", op, "] got ", used, " indices for shape ", shape, ", expected at most ", shape.size());
  std::vector<Index> all;
  for (const Index& i : indices) {
    if (i.kind == Index::kEllipsis) all.insert(all.end(), shape.size() - used, Index(Slice()));
    else all.push_back(i);
  }
  if (!dots) all.insert(all.end(), shape.size() - used, Index(Slice()));
  Parsed p;
  for (const Index& i : all) {
    if (i.kind == Index::kNone) {
      p.result.push_back(-1);
      continue;
    }
    int axis = static_cast<int>(p.axes.size());
    int64_t n = shape[static_cast<size_t>(axis)].value();
    AxisIndex a;
    a.end = n;
    if (i.kind == Index::kInt) {
      TG_CHECK(IndexError, i.integer >= -n && i.integer < n, "[", op, "] got index ", i.integer, " for axis ", axis, " of shape ", shape,
               ", expected ", -n, " to ", n - 1);
      a.begin = i.integer < 0 ? i.integer + n : i.integer, a.end = a.begin + 1, a.drop = true;
    } else if (i.kind == Index::kSlice) {
      a.step = i.slice.step.value_or(1);
      TG_CHECK(ValueError, a.step != 0, "[", op, "] got a slice of step 0 for axis ", axis, ", expected another step");
      bool back = a.step < 0;
      auto bound = [&](std::optional<int64_t> v, int64_t without) {
        if (!v) return without;
        int64_t k = *v < 0 ? *v + n : *v;
        return std::clamp<int64_t>(k, back ? -1 : 0, back ? n - 1 : n);
      };
      int64_t start = bound(i.slice.start, back ? n - 1 : 0), stop = bound(i.slice.stop, back ? -1 : n);
      // Backwards from start down to stop + 1 is the same range forwards, flipped.
      a.begin = back ? stop + 1 : start, a.end = back ? start + 1 : stop;
      if (a.end < a.begin) a.end = a.begin;
    } else {
      TG_CHECK(DTypeError, i.tensor.dtype().is_int(), "[", op, "] got an index of ", i.tensor.dtype(), " for axis ", axis, ", expected integers",
               i.tensor.dtype().is_bool() ? ": use where" : "");
      a.rows = i.tensor;
    }
    if (!a.drop) p.result.push_back(axis);
    p.axes.push_back(std::move(a));
  }
  return p;
}

/// The basic part: slices, integers, new axes. Tensor indices stay whole axes.
Tensor basic(const Tensor& t, const Parsed& p) {
  std::vector<std::pair<SInt, SInt>> range;
  std::vector<int> back;
  for (size_t i = 0; i < p.axes.size(); i++) {
    range.push_back({p.axes[i].begin, p.axes[i].end});
    if (p.axes[i].step < 0) back.push_back(static_cast<int>(i));
  }
  Tensor x = t.shrink(range).flip(back);
  bool strided = false;
  for (const AxisIndex& a : p.axes) strided |= std::abs(a.step) != 1;
  if (strided) {  // rows of `step` elements, of which the first counts
    std::vector<std::pair<int64_t, int64_t>> grow;
    Shape split, first, out;
    for (size_t i = 0; i < p.axes.size(); i++) {
      int64_t k = std::abs(p.axes[i].step), n = x.shape(static_cast<int>(i)), rows = (n + k - 1) / k;
      grow.push_back({0, rows * k - n});
      split.push_back(rows), split.push_back(k), first.push_back(rows), first.push_back(std::min<int64_t>(k, 1)), out.push_back(rows);
    }
    x = x.pad(grow).reshape(split).shrink_to(first).reshape(out);
  }
  Shape out;
  for (int axis : p.result) out.push_back(axis < 0 ? SInt(1) : SInt(x.shape(axis)));
  return x.reshape(out);
}

/// An index tensor with negative values counted from the end, and where it is valid (undefined: everywhere). Invalid ones become 0.
std::pair<Tensor, Tensor> in_bounds(const Tensor& rows, int64_t n) {
  Tensor i = rows;
  if (i.dtype().is_weak() || i.dtype().itemsize() < 4) i = i.cast(dtypes::int32);
  Bounds b = bounds_of(i.uop());
  if (b.lo < 0) i = (i < 0).where(i + n, i);
  if (b.lo >= 0 && b.hi < n) return {i, {}};
  Tensor valid = (i < n);
  if (b.lo < 0) valid = valid & (i >= 0);
  return {valid.where(i, 0), valid};
}

/// A line of indices 0..n-1 along one of `ndim` axes.
Tensor along(int64_t n, size_t axis, size_t ndim) {
  Shape line(ndim, SInt(1));
  line[axis] = n;
  return Tensor::arange(n).reshape(line);
}

void check_gather(const Tensor& t, int axis, const Tensor& index, const char* op) {
  const Shape x = t.shape(), i = index.shape();
  TG_CHECK(DTypeError, index.dtype().is_int(), "[", op, "] got an index of ", index.dtype(), ", expected integers");
  bool fits = x.size() == i.size() && !x.empty();
  for (size_t a = 0; fits && a < x.size(); a++) fits = static_cast<int>(a) == axis || i[a].value() <= x[a].value();
  TG_CHECK(ShapeError, fits, "[", op, "] got index ", i, " for shape ", x, ", expected as many axes, none larger except axis ", axis);
}
}  // namespace

Tensor Tensor::index(const std::vector<Index>& indices) const {
  OpScope s;
  const Shape shape = this->shape();
  Parsed p = parse(indices, shape, "index");
  Tensor x = basic(*this, p);
  std::vector<int> places;  // axes of x that are gathered
  Tensors rows, valids;
  for (size_t i = 0; i < p.result.size(); i++)
    if (p.result[i] >= 0 && p.axes[static_cast<size_t>(p.result[i])].rows.defined()) {
      places.push_back(static_cast<int>(i));
      auto [row, valid] = in_bounds(p.axes[static_cast<size_t>(p.result[i])].rows, x.shape(static_cast<int>(i)));
      rows.push_back(row);
      if (valid.defined()) valids.push_back(valid);
    }
  if (places.empty()) return s(x);
  // The gathered axes first, then the others.
  std::vector<int> order = places;
  for (int i = 0; i < static_cast<int>(x.ndim()); i++)
    if (std::find(places.begin(), places.end(), i) == places.end()) order.push_back(i);
  UOps src{x.permute(order).uop()};
  std::vector<const Shape*> shapes;
  for (const Tensor& r : rows) src.push_back(r.uop()), shapes.push_back(&shape_of(r.uop()));
  const Shape big = broadcast_shapes(shapes, "index");
  UOp u = UOp::make(Ops::INDEX, src[0].dtype(), src);
  const Shape full = shape_of(u);
  Tensor r = shape.numel() == 0 || full.numel() == 0 ? from_uop(ops::full(full, 0, src[0].dtype())) : from_uop(u);
  Tensor valid;
  for (const Tensor& v : valids) valid = valid.defined() ? valid & v : v;
  if (valid.defined()) {
    Shape wide = valid.shape();
    wide.insert(wide.begin(), big.size() - wide.size(), SInt(1));
    wide.insert(wide.end(), full.size() - big.size(), SInt(1));
    r = valid.reshape(wide).where(r, 0);
  }
  // Neighbouring gathered axes are replaced in place, others go to the front.
  bool together = places.back() - places.front() + 1 == static_cast<int>(places.size());
  if (together && places[0] > 0) {
    std::vector<int> back;
    int nb = static_cast<int>(big.size()), lead = places[0];
    for (int i = 0; i < lead; i++) back.push_back(nb + i);
    for (int i = 0; i < nb; i++) back.push_back(i);
    for (int i = nb + lead; i < static_cast<int>(full.size()); i++) back.push_back(i);
    r = r.permute(back);
  }
  return s(r);
}

Tensor Tensor::operator[](int64_t i) const { return index({Index(i)}); }
Tensor Tensor::operator[](const Tensor& rows) const { return index({Index(rows)}); }
Tensor Tensor::operator[](const Slice& slice) const { return index({Index(slice)}); }

void Tensor::setitem(const std::vector<Index>& indices, const Tensor& value) {
  OpScope s;
  Parsed p = parse(indices, shape(), "setitem");
  bool gathers = false;
  for (const AxisIndex& a : p.axes) gathers |= a.rows.defined();
  DType d = strong_dtype(dtype());
  Tensor v = value.dtype().is_weak() ? value.cast(d) : value;
  TG_CHECK(DTypeError, v.dtype() == d, "[setitem] got a value of ", value.dtype(), " for ", d, ", expected the same type: cast it");
  if (gathers) {
    Tensor places = arange(numel()).reshape(shape()).index(indices).flatten();
    Tensor flat = flatten().scatter(0, places, v.expand(index(indices).shape()).flatten());
    assign(flat.reshape(shape()));
    return;
  }
  if (!has_buffer_identity(base_of(uop())) || !base_of(uop()).is(Ops::BUFFER)) {
    Tensor own = clone();
    set_uop(*impl_, own.uop());
  }
  bool strided = false;
  for (const AxisIndex& a : p.axes) strided |= std::abs(a.step) != 1;
  if (!strided) {
    basic(*this, p).assign(v);
    return;
  }
  // A strided view passes through a padded one, which cannot be written: selects by position instead.
  Tensor mask = full(shape(), true), places;
  Tensor hit = arange(numel()).reshape(shape()).index(indices).flatten();
  Tensor flat = flatten().scatter(0, hit, v.expand(index(indices).shape()).flatten());
  assign(flat.reshape(shape()));
}

Tensor Tensor::gather(int axis, const Tensor& index) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "gather", sh);
  check_gather(*this, a, index, "gather");
  auto [i, valid] = in_bounds(index, sh[static_cast<size_t>(a)].value());
  const Shape is = index.shape();
  if (is.numel() == 0 || sh.numel() == 0) return s(ops::full(is, 0, strong_dtype(dtype())));
  UOps src{uop()};
  for (size_t k = 0; k < sh.size(); k++) src.push_back(static_cast<int>(k) == a ? i.uop() : along(is[k].value(), k, sh.size()).uop());
  Tensor r = from_uop(UOp::make(Ops::INDEX, src[0].dtype(), src));
  return s(valid.defined() ? valid.where(r, 0) : r);
}

namespace {
/// For each place along the (last) axis and each index: does the index name the place? (..., places, indices)
struct Hits {
  Tensor hit, src;
  std::vector<std::pair<int64_t, int64_t>> grow;  ///< from the index's leading sizes to the tensor's
};
Hits hits_of(const Tensor& t, int axis, const Tensor& index, const Tensor& src, const char* op) {
  check_gather(t, axis, index, op);
  TG_CHECK(ShapeError, src.shape() == index.shape() || src.ndim() == 0, "[", op, "] got source ", src.shape(), " and index ", index.shape(),
           ", expected equal shapes");
  Tensor v = src.ndim() == 0 ? src.cast(src.dtype().is_weak() ? strong_dtype(t.dtype()) : src.dtype()).expand(index.shape()) : src;
  TG_CHECK(DTypeError, v.dtype() == t.dtype(), "[", op, "] got source ", v.dtype(), " for ", t.dtype(), ", expected the same type");
  Hits h;
  int64_t n = t.shape(axis);
  Tensor i = index.transpose(axis, -1);
  Tensor row = i.dtype().is_unsigned() ? i : (i < 0).where(i + n, i);
  h.hit = row.unsqueeze(-2) == Tensor::arange(n).unsqueeze(-1);
  h.src = v.transpose(axis, -1).unsqueeze(-2);
  const Shape ts = t.transpose(axis, -1).shape(), is = i.shape();
  for (size_t k = 0; k + 1 < ts.size(); k++) h.grow.push_back({0, ts[k].value() - is[k].value()});
  h.grow.push_back({0, 0});
  return h;
}
}  // namespace

Tensor Tensor::scatter(int axis, const Tensor& index, const Tensor& src) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "scatter", sh);
  if (index.numel() == 0) return *this;
  Hits h = hits_of(*this, a, index, src, "scatter");
  int64_t n = h.hit.shape(-1);
  Tensor number = arange(1, n + 1), last = h.hit.where(number, 0).max(-1, true);
  Tensor chosen = h.hit & (number == last);
  Tensor value = chosen.where(h.src, 0).sum({.axis = -1, .dtype = dtype()}).pad(h.grow);
  if (dtype().is_bool()) value = chosen.where(h.src, false).any(-1).pad(h.grow);
  Tensor written = (last.squeeze(-1) > 0).pad(h.grow);
  return s(written.where(value, transpose(a, -1)).transpose(a, -1));
}

Tensor Tensor::scatter_add(int axis, const Tensor& index, const Tensor& src) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "scatter_add", sh);
  if (index.numel() == 0) return *this;
  Hits h = hits_of(*this, a, index, src, "scatter_add");
  Tensor value = h.hit.where(h.src, 0).sum({.axis = -1, .dtype = dtype()}).pad(h.grow);
  return s(*this + value.transpose(a, -1));
}

Tensor Tensor::scatter_reduce(int axis, const Tensor& index, const Tensor& src, ScatterReduce how, bool include_self) const {
  OpScope s;
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "scatter_reduce", sh);
  if (index.numel() == 0) return *this;
  Hits h = hits_of(*this, a, index, src, "scatter_reduce");
  DType d = dtype();
  Tensor x = transpose(a, -1), written = h.hit.any(-1).pad(h.grow);
  auto literal = [&](ConstValue v) { return from_uop(UOp::constant(v, d)); };
  auto old = [&](const Tensor& neutral) { return include_self ? x : written.where(neutral, x); };
  Tensor zero = literal(0), one = literal(1), lowest = literal(ops::identity_of(Ops::MAX, d)), r;
  if (d.is_float()) zero = literal(0.0), one = literal(1.0);
  auto spread = [&](const Tensor& t, const Tensor& neutral) {  // t (reduced over the indices) on the tensor's whole shape
    return written.where(t.pad(h.grow), neutral);
  };
  switch (how) {
    case ScatterReduce::kSum: r = old(zero) + spread(h.hit.where(h.src, zero).sum({.axis = -1, .dtype = d}), zero); break;
    case ScatterReduce::kProd: r = old(one) * spread(h.hit.where(h.src, one).prod(-1), one); break;
    case ScatterReduce::kMax: r = old(lowest).maximum(spread(h.hit.where(h.src, lowest).max(-1), lowest)); break;
    case ScatterReduce::kMin: {
      Tensor highest = d.is_float() ? -lowest : ~lowest;
      r = old(highest).minimum(spread(h.hit.where(h.src, highest).min(-1), highest));
      break;
    }
    case ScatterReduce::kMean: {
      Tensor sum = old(zero) + spread(h.hit.where(h.src, zero).sum({.axis = -1, .dtype = d}), zero);
      Tensor n = h.hit.sum(-1).pad(h.grow);
      n = include_self ? n + 1 : written.where(n, 1);
      r = d.is_float() ? sum / n.cast(d) : sum.floor_div(n.cast(d));
      break;
    }
  }
  return s(r.transpose(a, -1));
}

Tensor Tensor::masked_select(const Tensor& mask, std::optional<int64_t> size, const Tensor& fill) const {
  OpScope s;
  TG_CHECK(DTypeError, mask.dtype().is_bool(), "[masked_select] got a mask of ", mask.dtype(), ", expected bool");
  Tensor x = flatten(), m = mask.expand(shape()).flatten();
  int64_t n = x.numel(), count = size ? *size : n ? m.sum().item<int64_t>() : 0;
  TG_CHECK(ShapeError, count >= 0, "[masked_select] got size ", count, ", expected 0 or more");
  if (count == 0 || n == 0) return s(ops::full({n == 0 ? count : 0}, 0, strong_dtype(dtype())));
  // The k-th selected element lies where the running count first exceeds k: as many elements have a count of at most k.
  Tensor seen = m.cumsum().contiguous();
  Tensor place = (seen <= arange(count).unsqueeze(-1)).sum({.axis = -1, .dtype = dtypes::int32});
  Tensor r = x[place];
  return s(size ? (arange(count) < m.sum()).where(r, fill).cast(dtype()) : r);
}

Tensor Tensor::nonzero(std::optional<int64_t> size, const Tensor& fill) const {
  OpScope s;
  const Shape sh = shape();
  if (sh.empty()) return s(ops::full({size ? *size : (*this != 0).item<bool>() ? 1 : 0, 0}, 0, dtypes::int32));
  Tensor mask = (*this != 0).flatten();
  Tensors columns;
  for (size_t i = 0; i < sh.size(); i++)
    columns.push_back(along(sh[i].value(), i, sh.size()).cast(dtypes::int32).expand(sh).flatten().masked_select(mask, size, fill));
  return s(stack(columns, -1));
}

Tensor Tensor::one_hot(int64_t classes) const {
  OpScope s;
  TG_CHECK(DTypeError, dtype().is_int(), "[one_hot] got ", dtype(), ", expected integers");
  TG_CHECK(ValueError, classes >= 0, "[one_hot] got ", classes, " classes, expected 0 or more");
  if (classes == 0) {
    Shape out = shape();
    out.push_back(0);
    return s(ops::full(out, 0, dtypes::default_int()));
  }
  return s((unsqueeze(-1) == arange(classes)).cast(dtypes::default_int()));
}

}  // namespace tg
