/// \file Pooling over windows and over whole axes.
#include <algorithm>
#include <cmath>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/uop/symbolic.h"

namespace tg::onnx {
namespace {

/// Returns the padding that gives every window all its elements: windows at the end may reach beyond.
Pads whole_pads(const Window& w, const Shape& x) {
  Pads out = w.pads;
  for (size_t i = 0; i < w.kernel.size(); i++) {
    const int64_t size = x[i + 2].value();
    const int64_t reach = (w.output_size(i, size) - 1) * w.strides[i] + w.dilations[i] * (w.kernel[i] - 1) + 1;
    out[i].second = std::max(out[i].second, reach - size - out[i].first);
  }
  return out;
}

/// Returns images whose symbolic sizes are the greatest ones, with `value` in what they do not have.
Tensor at_greatest_size(const Tensor& x, const Scalar& value) {
  std::vector<std::pair<SInt, SInt>> more(x.shape().size(), {0, 0});
  bool any = false;
  GraphScope scope;
  for (size_t i = 2; i < more.size(); i++) {
    const SInt n = x.shape()[i];
    if (!n.symbolic()) continue;
    more[i].second = SInt(simplify(UOp::constant(n.max()) - n.uop()));
    any = true;
  }
  return any ? x.pad(more, {.value = value}).cast(x.dtype()) : x;
}

/// Returns the windows of `x`, padded by `value`: (batch, channels, windows..., taps...), and the axes of the taps.
/// `outputs`: how many there are, where it does not follow from `w`.
struct Windows {
  Tensor view;
  std::vector<int> taps;
  Shape outputs;  ///< the windows' number along each axis
};
Windows windows_of(const Window& w, const Tensor& x, const Scalar& value, const Shape& outputs = {}) {
  const Tensor most = at_greatest_size(x, value);
  const Tensor padded =
      most.pad(pads_with_lead(whole_pads(w, most.shape()), x.ndim()), {.value = value}).cast(x.dtype());
  Windows out{padded.pool_view(Ints(w.kernel), Ints(w.strides), Ints(w.dilations)), {}, {}};
  const size_t n = w.kernel.size();
  Shape kept = out.view.shape();
  GraphScope scope;
  for (size_t i = 0; i < n; i++) {
    const SInt size = outputs.empty() ? w.output_size(i, x.shape()[i + 2]) : outputs[i];
    out.outputs.push_back(size);
    kept[i + 2] = size;
    out.taps.push_back(static_cast<int>(2 + n + i));
  }
  out.view = out.view.shrink_to(kept);
  return out;
}

Scalar least(DType d) {
  if (d.is_float()) return lowest_float(d);
  return static_cast<int64_t>(int_min(d));
}

/// Returns for each element its number in the spatial axes: row-major, or with the first axis the fastest.
Tensor element_numbers(const Tensor& x, bool columns_first, const std::string& device) {
  Tensor out;
  int64_t step = 1;
  const int64_t rank = x.ndim();
  for (int64_t k = 0; k < rank - 2; k++) {
    const int64_t axis = columns_first ? 2 + k : rank - 1 - k;
    const Tensor part = count_along(x.shape(static_cast<int>(axis)), axis, rank, dtypes::int64, device) * step;
    out = out.defined() ? out + part : part;
    step *= x.shape(static_cast<int>(axis));
  }
  Shape s = x.shape();
  s[0] = 1;
  s[1] = 1;
  return out.expand(s);
}

/// Returns the place of each maximum among all elements, the first of equals.
Tensor max_places(const NodeContext& c, const Window& w, const Tensor& x, const Windows& v, const Tensor& best) {
  const Tensor numbers =
      windows_of(w, element_numbers(x, c.flag("storage_order"), c.device()), int64_t{INT64_MAX}).view;
  Shape wide = best.shape();
  for (size_t i = 0; i < v.taps.size(); i++) wide.push_back(1);
  const Tensor hit = v.view.eq(best.reshape(wide));
  const Tensor place = hit.where(numbers, Tensor(int64_t{INT64_MAX})).min({.axis = Axes(v.taps)});
  int64_t plane = 1;
  for (int i = 2; i < x.ndim(); i++) plane *= x.shape(i);
  const Tensor first = count_along(x.shape(0), 0, x.ndim(), dtypes::int64, c.device()) * x.shape(1) +
                       count_along(x.shape(1), 1, x.ndim(), dtypes::int64, c.device());
  return (place + first * plane).cast(dtypes::int64);
}

Values max_pool(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const Window w = window_of(c, x.shape());
  const Windows v = windows_of(w, x, least(x.dtype()));
  const Tensor best = v.view.max({.axis = Axes(v.taps)});
  if (!c.wants(1)) return {best};
  return {best, max_places(c, w, x, v, best)};
}

Values average_pool(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const Window w = window_of(c, x.shape());
  const Windows v = windows_of(w, x, 0);
  const Tensor sum = v.view.sum({.axis = Axes(v.taps)});
  // Elements beyond the padding count for nothing, those of the padding if they are asked for.
  Tensor ones = Tensor::ones(x.shape(), {.dtype = x.dtype(), .device = c.device()}).slice(0, 0, 1).slice(1, 0, 1);
  Window inner = w;
  if (c.flag("count_include_pad")) {
    ones = ones.pad(pads_with_lead(w.pads, x.ndim()), {.value = 1}).cast(x.dtype());
    for (auto& p : inner.pads) p = {0, 0};
  }
  const Windows counted = windows_of(inner, ones, 0, v.outputs);
  return {(sum / counted.view.sum({.axis = Axes(counted.taps)})).cast(x.dtype())};
}

Values lp_pool(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const auto p = static_cast<double>(c.attr("p", int64_t{2}));
  const Windows v = windows_of(window_of(c, x.shape()), x.abs().pow(Tensor(p)), 0);
  return {v.view.sum({.axis = Axes(v.taps)}).pow(Tensor(1 / p)).cast(x.dtype())};
}

ReduceOptions spatial(const Tensor& x) {
  std::vector<int> axes;
  for (int i = 2; i < x.ndim(); i++) axes.push_back(i);
  return {.axis = Axes(axes), .keepdim = true};
}
Values global_average(NodeContext& c) {
  const Tensor x = c.tensor(0);
  return {x.mean(spatial(x)).cast(x.dtype())};
}
Values global_max(NodeContext& c) {
  const Tensor x = c.tensor(0);
  return {x.max(spatial(x))};
}
Values global_lp(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const auto p = static_cast<double>(c.attr("p", int64_t{2}));
  return {x.abs().pow(Tensor(p)).sum(spatial(x)).pow(Tensor(1 / p)).cast(x.dtype())};
}

/// Puts maxima back to their places, which are numbers among all elements of the output.
Values max_unpool(NodeContext& c) {
  const Tensor x = c.tensor(0), places = c.tensor(1);
  const Window w = window_of(c, x.shape());
  Shape natural{x.shape()[0], x.shape()[1]};
  for (size_t i = 0; i < w.kernel.size(); i++)
    natural.push_back((x.shape(static_cast<int>(i) + 2) - 1) * w.strides[i] + w.kernel[i] - w.pads[i].first -
                      w.pads[i].second);
  // Places count the elements of the result, as in PyTorch and ONNX Runtime; in the standard's reference those of the
  // natural shape, whatever shape is asked for.
  const Shape shape = c.has(2) ? shape_of(c.ints(2)) : natural;
  return {Tensor::zeros(Shape{shape.numel()}, {.dtype = x.dtype(), .device = c.device()})
              .scatter(0, places.reshape(Shape{x.numel()}), x.reshape(Shape{x.numel()}))
              .reshape(shape)};
}

const OperatorRow kRows[] = {
    {"", "MaxPool", 1, max_pool},         {"", "AveragePool", 1, average_pool},
    {"", "LpPool", 1, lp_pool},           {"", "GlobalAveragePool", 1, global_average},
    {"", "GlobalMaxPool", 1, global_max}, {"", "GlobalLpPool", 1, global_lp},
    {"", "MaxUnpool", 9, max_unpool},
};

}  // namespace

OperatorRows pool_operators() { return kRows; }

}  // namespace tg::onnx
