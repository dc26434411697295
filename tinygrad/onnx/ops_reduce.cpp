/// \file Operators that combine the elements along axes: sums, extrema, softmax, running sums.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

/// What a reduce works on: axes are inputs from version 18 on (13 for ReduceSum), attributes before.
struct ReduceOver {
  Axes axes;
  bool keep, nothing = false;
};
ReduceOver over(const NodeContext& c, int64_t rank, int64_t since) {
  ReduceOver out;
  out.keep = c.flag("keepdims", true);
  std::vector<int64_t> axes;
  if (c.opset() < since) axes = c.attr_ints("axes");
  else if (c.has(1)) axes = c.ints(1);
  if (axes.empty()) {
    out.nothing = c.flag("noop_with_empty_axes");
    return out;
  }
  out.axes = Axes(normal_axes(axes, rank));
  return out;
}

/// Applies a reduce of which the parts before and after are those of ReduceLogSum and the like.
Tensor reduced(const Tensor& x, const std::string& name, const ReduceOptions& o) {
  const auto sum = [&](const Tensor& t) { return t.sum({.axis = o.axis, .keepdim = o.keepdim, .dtype = t.dtype()}); };
  if (name == "ReduceSum") return sum(x);
  if (name == "ReduceMean") return x.mean(o).cast(x.dtype());
  if (name == "ReduceProd") return x.prod({.axis = o.axis, .keepdim = o.keepdim, .dtype = x.dtype()});
  if (name == "ReduceMax") return x.max(o);
  if (name == "ReduceMin") return x.min(o);
  if (name == "ReduceL1") return sum(x.abs());
  if (name == "ReduceSumSquare") return sum(x * x);
  if (name == "ReduceL2") return sum((x * x).cast(wide_float(x.dtype()))).sqrt().cast(x.dtype());
  if (name == "ReduceLogSum")
    return sum(x.cast(x.is_floating_point() ? x.dtype() : dtypes::float32)).log().cast(x.dtype());
  return x.logsumexp(o).cast(x.dtype());
}

/// Without elements an extremum is the smallest or greatest value of the type.
Tensor extremum_of_nothing(const Tensor& x, bool max, const ReduceOptions& o) {
  Shape s;
  for (int i = 0; i < x.ndim(); i++) {
    const bool gone = o.axis.all || std::ranges::find(o.axis.list, i) != o.axis.list.end();
    if (!gone) s.push_back(x.shape()[static_cast<size_t>(i)]);
    else if (o.keepdim) s.push_back(1);
  }
  const DType d = x.dtype();
  if (d.is_bool()) return Tensor::full(s, !max, {.dtype = d});
  if (d.is_float()) return Tensor::full(s, max ? lowest_float(d) : highest_float(d), {.dtype = d});
  return Tensor::full(s, static_cast<int64_t>(max ? int_min(d) : int_max(d)), {.dtype = d});
}

Values reduce(NodeContext& c) {
  const std::string name(c.node().op);
  const ReduceOver o = over(c, static_cast<int64_t>(c.value(0).shape().size()), name == "ReduceSum" ? 13 : 18);
  const Tensor x = c.tensor(0);
  // Axes that are no axes: each element is reduced by itself.
  const ReduceOptions options{.axis = o.nothing ? Axes(std::vector<int>()) : o.axes, .keepdim = o.keep};
  if (o.nothing && (name == "ReduceSum" || name == "ReduceMean" || name == "ReduceProd" || name == "ReduceMax" ||
                    name == "ReduceMin"))
    return {x};
  const bool empty = std::ranges::any_of(x.shape(), [](const SInt& n) { return n == 0; });
  if ((name == "ReduceMax" || name == "ReduceMin") && empty)
    return {extremum_of_nothing(x, name == "ReduceMax", options)};
  if (o.nothing) {
    if (name == "ReduceSumSquare") return {x * x};
    if (name == "ReduceL1" || name == "ReduceL2") return {x.abs()};
    return {name == "ReduceLogSum" ? x.log() : x};
  }
  return {reduced(x, name, options)};
}

/// Returns the reduced numbers of a row that the host has: products and sums of sizes.
Values reduce_sizes(NodeContext& c) {
  const HostArray* h = c.known(0);
  const std::string name(c.node().op);
  const bool row = h && h->shape.size() == 1 && !h->dtype.is_float() && h->count() > 0;
  if (row && h->symbolic() && name == "ReduceProd" && !over(c, 1, 18).nothing) {
    GraphScope scope;
    Shape sizes;
    for (const HostInt& n : h->ints) sizes.push_back(n.value);
    const HostInt all(product(sizes, 0, sizes.size()));
    return {over(c, 1, 18).keep ? HostArray::of_ints({all}, h->dtype) : HostArray::scalar(all, h->dtype)};
  }
  if (row && !h->symbolic() &&
      (name == "ReduceProd" || name == "ReduceSum" || name == "ReduceMax" || name == "ReduceMin")) {
    const ReduceOver o = over(c, 1, name == "ReduceSum" ? 13 : 18);
    if (!o.nothing) {
      std::vector<int64_t> v;
      for (const HostInt& i : h->ints) v.push_back(i.value.value());
      int64_t out = name == "ReduceMax"    ? *std::ranges::max_element(v)
                    : name == "ReduceMin"  ? *std::ranges::min_element(v)
                    : name == "ReduceProd" ? 1
                                           : 0;
      if (name == "ReduceProd")
        for (const int64_t n : v) out *= n;
      if (name == "ReduceSum")
        for (const int64_t n : v) out += n;
      return {o.keep ? HostArray::of_ints({out}, h->dtype) : HostArray::scalar(out, h->dtype)};
    }
  }
  return reduce(c);
}

/// argmax or argmin; the last of equal elements by looking from the other end.
Values arg_extremum(NodeContext& c) {
  Tensor x = c.tensor(0);
  const int axis = normal_axis(c.attr("axis", int64_t{0}), x.ndim());
  const bool last = c.flag("select_last_index"), keep = c.flag("keepdims", true);
  if (last) x = x.flip(axis);
  const Tensor at = c.node().op == "ArgMax" ? x.argmax(axis, keep) : x.argmin(axis, keep);
  const Tensor i = at.cast(dtypes::int64);
  return {last ? (x.shape(axis) - 1 - i).cast(dtypes::int64) : i};
}

/// Before version 13 all axes from `axis` on are one.
template <class F> Values along_last(const NodeContext& c, F&& f) {
  const Tensor x = c.tensor(0);
  if (c.opset() >= 13) return {f(x, normal_axis(c.attr("axis", int64_t{-1}), x.ndim()))};
  const int64_t axis = c.attr("axis", int64_t{1});
  const Shape s = x.shape();
  const auto at = static_cast<size_t>(axis < 0 ? axis + x.ndim() : axis);
  c.check(at <= s.size(), "axis ", axis, " is none of shape ", s);
  GraphScope scope;
  const Tensor rows = x.reshape(Shape{product(s, 0, at), product(s, at, s.size())});
  return {f(rows, 1).reshape(s)};
}
Values softmax(NodeContext& c) {
  return along_last(c, [](const Tensor& x, int axis) { return x.softmax(axis); });
}
Values log_softmax(NodeContext& c) {
  return along_last(c, [](const Tensor& x, int axis) { return x.log_softmax(axis); });
}
Values hardmax(NodeContext& c) {
  return along_last(c, [&](const Tensor& x, int axis) {
    const Tensor at = count_along(x.shape(axis), axis, x.ndim(), dtypes::int32, c.device());
    return at.eq(x.argmax(axis, true).cast(dtypes::int32)).cast(x.dtype());
  });
}

/// A running sum or product: from either end, with or without the element itself.
Values running(NodeContext& c) {
  Tensor x = c.tensor(0);
  const bool product = c.node().op == "CumProd";
  const int axis = normal_axis(c.integer(1), x.ndim());
  const DType d = x.dtype();
  if (c.flag("reverse")) x = x.flip(axis);
  if (c.flag("exclusive")) {
    const int64_t n = x.shape(axis);
    std::vector<std::pair<int64_t, int64_t>> amounts(static_cast<size_t>(x.ndim()), {0, 0});
    amounts[static_cast<size_t>(axis)] = {1, 0};
    x = x.slice(axis, 0, std::max<int64_t>(0, n - 1)).pad(amounts, {.value = static_cast<int64_t>(product)});
  }
  Tensor out = (product ? x.cumprod(axis) : x.cumsum(axis)).cast(d);
  return {c.flag("reverse") ? out.flip(axis) : out};
}

const OperatorRow kRows[] = {
    {"", "ReduceSum", 1, reduce_sizes}, {"", "ReduceMean", 1, reduce},      {"", "ReduceProd", 1, reduce_sizes},
    {"", "ReduceMax", 1, reduce_sizes}, {"", "ReduceMin", 1, reduce_sizes}, {"", "ReduceL1", 1, reduce},
    {"", "ReduceL2", 1, reduce},        {"", "ReduceSumSquare", 1, reduce}, {"", "ReduceLogSum", 1, reduce},
    {"", "ReduceLogSumExp", 1, reduce}, {"", "ArgMax", 1, arg_extremum},    {"", "ArgMin", 1, arg_extremum},
    {"", "Softmax", 1, softmax},        {"", "LogSoftmax", 1, log_softmax}, {"", "Hardmax", 1, hardmax},
    {"", "CumSum", 11, running},        {"", "CumProd", 26, running},
};

}  // namespace

OperatorRows reduce_operators() { return kRows; }

}  // namespace tg::onnx
