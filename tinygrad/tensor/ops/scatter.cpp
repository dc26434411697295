/// \file Gather and scatter along one axis.
#include <algorithm>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/index_parse.h"
#include "tinygrad/tensor/ops/index_range.h"
#include "tinygrad/tensor/ops/product.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/multi.h"

namespace tg {
using namespace tensor_detail;

namespace {
void check_index(const Tensor& t, int axis, const Tensor& index, const char* op) {
  const Shape x = t.shape(), i = index.shape();
  TG_CHECK(DTypeError, index.dtype().is_int(), "[", op, "] got an index of ", index.dtype(), ", expected integers");
  bool fits = x.size() == i.size() && !x.empty();
  for (size_t a = 0; fits && a < x.size(); a++)
    fits = static_cast<int>(a) == axis || i[a] == x[a] || i[a].max() <= x[a].value();
  TG_CHECK(ShapeError, fits, "[", op, "] got index ", i, " for shape ", x,
           ", expected as many axes, none larger except axis ", axis);
  const std::string &here = device_of(t.uop()), &there = device_of(index.uop());
  TG_CHECK(DeviceError, here.empty() || there.empty() || here == there, "[", op, "] got an index on ", there,
           " for a tensor on ", here, ", expected one device: move it with .to(device)");
  check_axis_index(index, static_cast<size_t>(axis), x, {.op = op});
}

bool is_scalar(const Tensor& t) { return t.ndim() == 0; }
/// Returns a tensor without axes as one with an axis of one element, which is how PyTorch gathers and scatters it.
Tensor as_line(const Tensor& t) { return is_scalar(t) ? t.unsqueeze(0) : t; }
}  // namespace

Tensor Tensor::gather(int axis, const Tensor& index) const {
  OpScope s;
  if (is_scalar(*this) || is_scalar(index))
    return s(as_line(*this).gather(axis, as_line(index)).reshape(index.shape()));
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "gather", sh);
  check_index(*this, a, index, "gather");
  const Shape is = index.shape();
  if (index.max_numel() == 0 || max_numel() == 0) return s(ops::full(is, 0, strong_dtype(dtype())));
  Tensor i = index.dtype().is_weak() || index.dtype().itemsize() < 4 ? index.cast(dtypes::int32) : index;
  const SInt& size = sh[static_cast<size_t>(a)];
  Tensor n = size_tensor(size);
  Bounds b = bounds_of(i.uop());
  Tensor valid;
  if (b.lo < 0 || size.symbolic() || b.hi >= size.value()) {
    valid = b.lo < 0 ? (i >= 0) & (i < n) : i < n;
    i = valid.where(i, 0);
  }
  UOps src{uop()};
  for (size_t k = 0; k < sh.size(); k++)
    src.push_back(static_cast<int>(k) == a ? i.uop() : number_line(is[k], k, sh.size()).uop());
  Tensor r = from_uop(UOp::make(Ops::INDEX, src[0].dtype(), src));
  return s(valid.defined() ? valid.where(r, Tensor(0).cast(r.dtype())) : r);
}

namespace {
/// The one-hot mask of indices: for each position along the (last) axis and each index, whether the index names the
/// position: (..., positions, indices).
struct OneHot {
  Tensor hit, src;
  std::vector<std::pair<SInt, SInt>> grow;  ///< from the index's leading sizes to the tensor's
};
void check_source(const Tensor& src, const Tensor& index, const char* op) {
  const Shape ss = src.shape(), xs = index.shape();
  bool fits = ss.empty() || ss.size() == xs.size();
  for (size_t a = 0; fits && a < ss.size(); a++) fits = ss[a] == xs[a] || ss[a].value() >= xs[a].max();
  TG_CHECK(ShapeError, fits, "[", op, "] got source ", ss, " and index ", xs,
           ", expected a number, or as many axes and none smaller");
}
OneHot hits_of(const Tensor& t, int axis, const Tensor& index, const Tensor& src, const char* op) {
  check_index(t, axis, index, op);
  check_source(src, index, op);
  const Shape ss = src.shape(), xs = index.shape();
  bool number = ops::constant_of(src.uop()) && src.dtype().is_weak();
  Tensor v = number || (ss.empty() && src.dtype().is_bool()) ? Tensor::from_uop(ops::cast(src.uop(), t.dtype())) : src;
  TG_CHECK(DTypeError, v.dtype() == t.dtype(), "[", op, "] got source ", v.dtype(), " for ", t.dtype(),
           ", expected the same type");
  v = ss.empty() ? v.expand(xs) : v.shrink_to(xs);
  OneHot h;
  Tensor i = index.transpose(axis, -1);
  h.hit = i.unsqueeze(-2) == Tensor::arange_symbolic(0, t.shape()[static_cast<size_t>(axis)]).unsqueeze(-1);
  h.src = v.transpose(axis, -1).unsqueeze(-2);
  const Shape ts = t.transpose(axis, -1).shape(), is = i.shape();
  for (size_t k = 0; k + 1 < ts.size(); k++) h.grow.push_back({0, ts[k] == is[k] ? SInt(0) : ops::minus(ts[k], is[k])});
  h.grow.push_back({0, 0});
  return h;
}
/// Returns the type that what is scattered to a tensor of `d` is added in: narrow floats are rounded once.
DType sum_dtype(DType d) { return d.is_float() ? wide_dtype(d) : d; }
/// Returns the sums of what is scattered to each position, in type `d`.
Tensor sum_of_hits(const OneHot& h, DType d) { return h.hit.where(h.src, 0).sum({.axis = -1, .dtype = d}).pad(h.grow); }
}  // namespace

Tensor Tensor::scatter(int axis, const Tensor& index, const Tensor& src) const {
  OpScope s;
  if (is_scalar(*this) || is_scalar(index))
    return s(as_line(*this).scatter(axis, as_line(index), src).reshape(shape()));
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "scatter", sh);
  if (index.max_numel() == 0) return *this;
  OneHot h = hits_of(*this, a, index, src, "scatter");
  // The number of the last write to each position, 0 for none. The value is read there, so its gradient adds up.
  Tensor number = arange_symbolic(0, h.hit.shape().back()) + 1, last = h.hit.where(number, 0).max(-1).contiguous();
  Tensor value = ops::constant_of(h.src.uop()) ? h.src.shrink_to(Shape(h.src.shape().size(), SInt(1))).reshape(Shape())
                                               : h.src.squeeze(-2).gather(-1, (last - 1).maximum(0)).pad(h.grow);
  return s((last > 0).pad(h.grow).where(value, transpose(a, -1)).transpose(a, -1));
}

namespace {
/// Returns t + the sum of the values at each position, in the type that sums of t's type are added in.
Tensor with_sums(const Tensor& t, int axis, const Tensor& index, const Tensor& src, const char* op) {
  const DType wide = sum_dtype(t.dtype());
  const auto add = [axis, op, wide](const Tensor& x, const Tensor& i, const Tensor& v) {
    return x.cast(wide) + sum_of_hits(hits_of(x, axis, i, v, op), wide).transpose(axis, -1);
  };
  const bool plain = !t.shape().symbolic() && !index.shape().symbolic() && !is_multi(t.uop()) && !is_multi(src.uop());
  if (!plain || !t.dtype().is_float() || src.dtype() != t.dtype() || src.ndim() != t.ndim()) return add(t, index, src);
  check_index(t, axis, index, op);
  check_source(src, index, op);
  // A value is added once, so its gradient is read at its position: no comparison with all positions.
  return custom_gradient(add, [axis](const Tensor& g, const Tensor& x, const Tensor& i, const Tensor& v) {
    return Tensors{g.cast(x.dtype()), Tensor(), g.gather(axis, i).cast(v.dtype())};
  })(t, index, src.shrink_to(index.shape()));
}
}  // namespace

Tensor Tensor::scatter_add(int axis, const Tensor& index, const Tensor& src) const {
  OpScope s;
  if (is_scalar(*this) || is_scalar(index))
    return s(as_line(*this).scatter_add(axis, as_line(index), src).reshape(shape()));
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "scatter_add", sh);
  if (index.max_numel() == 0) return *this;
  return s(with_sums(*this, a, index, src, "scatter_add").cast(dtype()));
}

Tensor Tensor::scatter_reduce(int axis, const Tensor& index, const Tensor& src, ScatterReduce how,
                              bool include_self) const {
  OpScope s;
  if (is_scalar(*this) || is_scalar(index))
    return s(as_line(*this).scatter_reduce(axis, as_line(index), src, how, include_self).reshape(shape()));
  const Shape sh = shape();
  int a = axis_of(axis, sh.size(), "scatter_reduce", sh);
  if (index.max_numel() == 0) return *this;
  OneHot h = hits_of(*this, a, index, src, "scatter_reduce");
  DType d = dtype();
  Tensor x = transpose(a, -1), written = h.hit.any(-1).pad(h.grow);
  auto literal = [&](ConstValue v) { return from_uop(UOp::constant(v, d)); };
  auto old = [&](const Tensor& neutral) { return include_self ? x : written.where(neutral, x); };
  Tensor zero = literal(0), one = literal(1), lowest = literal(identity_element(Ops::MAX, d)), r;
  if (d.is_float()) {
    zero = literal(0.0);
    one = literal(1.0);
  }
  auto spread = [&](const Tensor& t,
                    const Tensor& neutral) {  // t, reduced over the indices, in the tensor's whole shape
    return written.where(t.pad(h.grow), neutral);
  };
  auto sums = [&] { return with_sums(old(zero).transpose(a, -1), a, index, src, "scatter_reduce").transpose(a, -1); };
  switch (how) {
    case ScatterReduce::kSum: r = sums(); break;
    case ScatterReduce::kProd: r = old(one) * spread(h.hit.where(h.src, one).prod(-1), one); break;
    case ScatterReduce::kMax: r = old(lowest).maximum(spread(h.hit.where(h.src, lowest).max(-1), lowest)); break;
    case ScatterReduce::kMin: {
      Tensor highest = d.is_float() ? -lowest : ~lowest;
      r = old(highest).minimum(spread(h.hit.where(h.src, highest).min(-1), highest));
      break;
    }
    case ScatterReduce::kMean: {
      Tensor sum = sums();
      Tensor n = h.hit.sum(-1).pad(h.grow);
      n = include_self ? n + 1 : written.where(n, 1);
      r = d.is_float() ? sum / n.cast(sum.dtype()) : sum.floor_div(n.cast(d));
      break;
    }
  }
  return s(r.cast(d).transpose(a, -1));
}

}  // namespace tg
