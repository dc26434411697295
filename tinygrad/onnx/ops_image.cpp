/// \file Resized and resampled images.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tinygrad/io/picture.h"
#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/sampling.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::onnx {
namespace {

/// How an image is resized: the attributes of Resize, in the meaning of each version.
struct ResizeRules {
  std::string mode, coordinates, nearest;
  double cubic = -0.75, extrapolation = 0;
  bool antialias = false, exclude_outside = false;
};
ResizeRules resize_rules(const NodeContext& c) {
  ResizeRules r;
  r.mode = c.choice("mode", "nearest", {"nearest", "linear", "cubic", "bilinear"});
  if (r.mode == "bilinear") r.mode = "linear";
  const bool first = c.opset() < 11 || c.node().op == "Upsample";
  r.coordinates = first ? "asymmetric" : c.attr("coordinate_transformation_mode", "half_pixel");
  r.nearest = first ? "floor" : c.attr("nearest_mode", "round_prefer_floor");
  r.cubic = c.attr("cubic_coeff_a", -0.75);
  r.extrapolation = c.attr("extrapolation_value", 0.0);
  r.antialias = c.flag("antialias");
  r.exclude_outside = c.flag("exclude_outside");
  return r;
}

/// Longest axis that is made: the host computes where each element comes from.
constexpr int64_t kMostElements = 1 << 22;

/// One axis that is resized.
struct ResizedAxis {
  int axis;
  int64_t from, to;
  double scale, roi_start = 0, roi_end = 1;
};

/// Returns the coordinate in the input of element `i` of the output.
double source_of(const NodeContext& c, const ResizeRules& r, const ResizedAxis& a, int64_t i) {
  const auto x = static_cast<double>(i), n = static_cast<double>(a.from);
  const double m = n * a.scale;  // of the output, before it is rounded down
  if (r.coordinates == "half_pixel") return (x + 0.5) / a.scale - 0.5;
  if (r.coordinates == "asymmetric") return x / a.scale;
  // As PyTorch and ONNX Runtime; the standard's reference divides by the size before it is rounded down.
  if (r.coordinates == "align_corners") return a.to == 1 ? 0 : x * (n - 1) / static_cast<double>(a.to - 1);
  if (r.coordinates == "pytorch_half_pixel") return a.to == 1 ? 0 : (x + 0.5) / a.scale - 0.5;
  if (r.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / a.scale;
  if (r.coordinates == "half_pixel_symmetric") {
    const double center = n / 2 * (1 - static_cast<double>(a.to) / m);
    return center + (x + 0.5) / a.scale - 0.5;
  }
  c.check(r.coordinates == "tf_crop_and_resize", "coordinate_transformation_mode \"", r.coordinates, "\" is not known");
  if (a.to == 1) return 0.5 * (a.roi_start + a.roi_end) * (n - 1);
  return a.roi_start * (n - 1) + x * (a.roi_end - a.roi_start) * (n - 1) / (m - 1);
}

double nearest_of(const NodeContext& c, const std::string& mode, double x) {
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  if (mode == "round_prefer_floor") return std::ceil(x - 0.5);
  c.check(mode == "round_prefer_ceil", "nearest_mode \"", mode, "\" is not known");
  return std::floor(x + 0.5);
}

double cubic_weight(double t, double a) {
  t = std::fabs(t);
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

/// The elements that each element of the output is made of, and their weights: rows of equal length.
struct Filter {
  size_t taps = 0;
  std::vector<int64_t> index;
  std::vector<double> weight;
};

/// Adds the taps around `x`; those outside are the elements at the edge, or left out.
void add_taps(const ResizeRules& r, const ResizedAxis& a, double x, Filter& f) {
  const bool linear = r.mode == "linear";
  const double scale = r.antialias ? std::min(a.scale, 1.0) : 1.0, reach = (linear ? 1 : 2) / scale;
  // Elements from here on can have a weight; of two at the same distance the lower one counts.
  const auto base = whole(std::ceil(x)) - 1;
  const auto first = whole(std::floor(-reach)) + 1;
  const auto count = static_cast<size_t>(2 - 2 * first);
  f.taps = count;
  std::vector<double> weights;
  double sum = 0;
  for (size_t k = 0; k < count; k++) {
    const int64_t i = base + first + static_cast<int64_t>(k);
    const double t = (static_cast<double>(i) - x) * scale;
    double w = linear ? std::max(0.0, 1 - std::fabs(t)) : cubic_weight(t, r.cubic);
    if (r.exclude_outside && (i < 0 || i >= a.from)) w = 0;
    f.index.push_back(std::clamp<int64_t>(i, 0, a.from - 1));
    weights.push_back(w);
    sum += w;
  }
  const bool normalizes = r.antialias || r.exclude_outside;
  for (const double w : weights) f.weight.push_back(normalizes && sum != 0 ? w / sum : w);
}

Filter filter_of(const NodeContext& c, const ResizeRules& r, const ResizedAxis& a) {
  Filter f;
  for (int64_t i = 0; i < a.to; i++) {
    const double x = source_of(c, r, a, i);
    if (r.mode != "nearest") {
      add_taps(r, a, x, f);
      continue;
    }
    f.taps = 1;
    f.index.push_back(std::clamp<int64_t>(whole(nearest_of(c, r.nearest, x)), 0, a.from - 1));
    f.weight.push_back(1);
  }
  return f;
}

/// Returns how often each element is repeated in order, if that is what the filter does.
std::optional<int64_t> repeats(const Filter& f, const ResizedAxis& a) {
  if (f.taps != 1 || a.to % a.from != 0) return {};
  const int64_t n = a.to / a.from;
  for (int64_t i = 0; i < a.to; i++)
    if (f.index[static_cast<size_t>(i)] != i / n) return {};
  return n;
}

/// Applies a filter along its axis: a gather and a product for each tap.
Tensor filtered(const NodeContext& c, const Tensor& x, const ResizedAxis& a, const Filter& f) {
  if (const std::optional<int64_t> n = repeats(f, a)) return x.repeat_interleave(*n, a.axis);
  Tensor out;
  for (size_t k = 0; k < f.taps; k++) {
    std::vector<int64_t> index;
    std::vector<double> weight;
    for (size_t i = k; i < f.index.size(); i += f.taps) {
      index.push_back(f.index[i]);
      weight.push_back(f.weight[i]);
    }
    if (std::ranges::all_of(weight, [](double w) { return w == 0; })) continue;
    std::vector<Index> at(static_cast<size_t>(a.axis), Index(Slice()));
    at.emplace_back(Tensor::from(index, {.device = c.device()}));
    Tensor v = x.index(at);
    if (f.taps > 1) v = v * along_axis(Tensor::from(weight, {.device = c.device()}).cast(x.dtype()), a.axis, x.ndim());
    out = out.defined() ? out + v : v;
  }
  return out;
}

/// Makes what lies outside of the input along an axis the extrapolation value.
Tensor extrapolated(const NodeContext& c, const Tensor& x, const ResizeRules& r, const ResizedAxis& a) {
  std::vector<bool> outside;
  for (int64_t i = 0; i < a.to; i++) {
    const double at = source_of(c, r, a, i);
    outside.push_back(at < 0 || at > static_cast<double>(a.from - 1));
  }
  if (std::ranges::find(outside, true) == outside.end()) return x;
  const Tensor mask = along_axis(Tensor::from(outside, {.device = c.device()}), a.axis, x.ndim());
  return mask.where(Tensor(r.extrapolation), x).cast(x.dtype());
}

/// Reads scales or sizes of the axes that are named, by default all.
std::vector<ResizedAxis> resized_axes(const NodeContext& c, const Shape& s) {
  const bool first = c.opset() < 11 || c.node().op == "Upsample";
  std::vector<int64_t> named(s.size());
  std::iota(named.begin(), named.end(), int64_t{0});
  const std::vector<int> axes = normal_axes(c.attr_ints("axes", named), static_cast<int64_t>(s.size()));
  std::vector<double> scales, roi;
  std::vector<int64_t> sizes;
  if (first) scales = c.opset() < 9 ? c.attr_floats("scales") : c.numbers(1);
  else {
    if (c.has(1)) roi = c.numbers(1);
    if (c.has(2)) scales = c.numbers(2);
    if (scales.empty()) sizes = c.ints(3);
  }
  c.check(std::max(scales.size(), sizes.size()) == axes.size(), "got ", scales.size(), " scales and ", sizes.size(),
          " sizes for ", axes.size(), " axes");
  const std::string policy = c.attr("keep_aspect_ratio_policy", "stretch");
  std::vector<ResizedAxis> out;
  double common = policy == "not_larger" ? 1e30 : 0;
  for (size_t i = 0; i < axes.size(); i++) {
    const int64_t n = s[static_cast<size_t>(axes[i])].value();
    ResizedAxis a{axes[i], n, 0, 1};
    if (!sizes.empty()) {
      a.to = sizes[i];
      a.scale = static_cast<double>(sizes[i]) / static_cast<double>(n);
      common = policy == "not_larger" ? std::min(common, a.scale) : std::max(common, a.scale);
    } else {
      a.scale = scales[i];
      a.to = whole(std::floor(static_cast<double>(n) * a.scale));
    }
    c.check(std::isfinite(a.scale) && a.scale >= 0 && a.to >= 0 && a.to <= kMostElements && n > 0 && n <= kMostElements,
            "axis ", axes[i], " of ", n, " elements gets ", a.to);
    if (roi.size() == 2 * axes.size()) {
      a.roi_start = roi[i];
      a.roi_end = roi[i + axes.size()];
    }
    out.push_back(a);
  }
  if (policy != "stretch" && !sizes.empty())
    for (ResizedAxis& a : out) {
      a.scale = common;
      a.to = whole(std::floor(common * static_cast<double>(a.from) + 0.5));
      c.check(a.to >= 0 && a.to <= kMostElements, "axis ", a.axis, " of ", a.from, " elements gets ", a.to);
    }
  return out;
}

Values resize(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const ResizeRules r = resize_rules(c);
  const DType d = x.dtype();
  const bool crops = r.coordinates == "tf_crop_and_resize";
  Tensor out = r.mode == "nearest" ? x : x.cast(wide_float(d));
  const std::vector<ResizedAxis> axes = resized_axes(c, x.shape());
  for (const ResizedAxis& a : axes) {
    if (a.to == 0)
      return {Tensor::zeros(
          [&] {
            Shape s = x.shape();
            for (const ResizedAxis& b : axes) s[static_cast<size_t>(b.axis)] = b.to;
            return s;
          }(),
          {.dtype = d, .device = c.device()})};
    if (a.to != a.from || a.scale != 1 || crops) out = filtered(c, out, a, filter_of(c, r, a));
  }
  if (crops)
    for (const ResizedAxis& a : axes) out = extrapolated(c, out, r, a);
  return {d.is_int() && out.is_floating_point() ? out.round().cast(d) : out.cast(d)};
}

/// Coordinates from -1 to 1 in elements.
Tensor in_elements(const Tensor& x, int64_t size, bool corners) {
  const auto n = static_cast<double>(size);
  return corners ? (x + 1) * ((n - 1) / 2) : ((x + 1) * n - 1) / 2;
}

Values grid_sample(NodeContext& c) {
  const Tensor x = c.tensor(0), grid = c.tensor(1);
  const std::string mode =
      c.choice("mode", c.opset() >= 20 ? "linear" : "bilinear", {"linear", "nearest", "cubic", "bilinear", "bicubic"});
  const std::string padding = c.choice("padding_mode", "zeros", {"zeros", "border", "reflection"});
  const bool corners = c.flag("align_corners");
  const int64_t n = x.ndim() - 2, batch = x.shape(0);
  c.check(n >= 1 && grid.shape(-1) == n, "got a grid of ", grid.shape(-1), " coordinates for ", n, " axes");
  Tensors at;
  for (int64_t i = 0; i < n; i++) {  // the last axis comes first
    const Tensor one = grid.slice(-1, n - 1 - i, n - i).reshape(Shape{batch, 1, -1});
    at.push_back(in_elements(one, x.shape(static_cast<int>(2 + i)), corners));
  }
  const SampleMode how = mode == "nearest"         ? SampleMode::kNearest
                         : mode.ends_with("cubic") ? SampleMode::kCubic
                                                   : SampleMode::kLinear;
  const Outside outside = padding == "zeros"    ? Outside::kZeros
                          : padding == "border" ? Outside::kBorder
                                                : Outside::kReflect;
  Shape out{x.shape()[0], x.shape()[1]};
  for (int64_t i = 0; i < n; i++) out.push_back(grid.shape(static_cast<int>(1 + i)));
  return {sample(x, at, how, outside, corners).cast(x.dtype()).reshape(out)};
}

/// Points of a regular grid from -1 to 1, moved by a matrix of each batch.
Values affine_grid(NodeContext& c) {
  const Tensor theta = c.tensor(0);
  const std::vector<int64_t> size = c.ints(1);
  const bool corners = c.flag("align_corners");
  const auto n = static_cast<int64_t>(size.size()) - 2;
  c.check(n >= 1 && *std::ranges::min_element(size) > 0, "got a size of ", size.size(),
          " numbers, expected 3 or more above 0");
  Shape sizes(size.begin() + 2, size.end()), out{size[0]};
  Tensors axes;
  for (int64_t i = n - 1; i >= 0; i--) {
    const int64_t m = size[static_cast<size_t>(2 + i)];
    const Tensor k = Tensor::arange(0, m, 1, {.dtype = theta.dtype(), .device = c.device()});
    const Tensor at = corners ? k * (2.0 / static_cast<double>(std::max<int64_t>(m - 1, 1))) - 1
                              : (k * 2 + 1) / static_cast<double>(m) - 1;
    axes.push_back(along_axis(at, i, n).expand(sizes));
  }
  axes.push_back(axes[0].ones_like());
  out.insert(out.end(), sizes.begin(), sizes.end());
  out.push_back(n);
  const Tensor points = Tensor::stack(axes, -1).reshape(Shape{-1, n + 1});
  return {points.dot(theta.transpose(1, 2)).reshape(out)};
}

/// Decodes a file of bytes, which the host reads: (height, width, channels). The kinds are those of io/picture.h.
Values image_decoder(NodeContext& c) {
  const std::string format = c.choice("pixel_format", "RGB", {"RGB", "BGR", "Grayscale"});
  const Tensor encoded = c.tensor(0);
  c.check(encoded.ndim() == 1 && encoded.dtype() == dtypes::uint8, "got ", encoded.dtype(), " of shape ",
          encoded.shape(), ", expected the bytes of a file");
  const HostBytes bytes = host_bytes(encoded.detach());
  const std::span<const uint8_t> file(reinterpret_cast<const uint8_t*>(bytes.bytes.data()), bytes.bytes.size());
  const io::Image image = io::decode_image(file, format == "Grayscale" ? 1 : 3, "the picture");
  const Tensor x =
      Tensor::from(image.pixels, {.device = c.device()}).reshape(Shape{image.height, image.width, image.channels});
  return {format == "BGR" ? x.flip(2) : x};
}

const OperatorRow kRows[] = {
    {"", "ImageDecoder", 20, image_decoder}, {"", "Resize", 10, resize},          {"", "Upsample", 7, resize},
    {"", "GridSample", 16, grid_sample},     {"", "AffineGrid", 20, affine_grid},
};

}  // namespace

OperatorRows image_operators() { return kRows; }

}  // namespace tg::onnx
