/// \file Convolutions.
#include <algorithm>
#include <functional>
#include <numeric>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/sampling.h"

namespace tg::onnx {
namespace {

std::vector<int64_t> kernel_of(const Tensor& weight) {
  std::vector<int64_t> out;
  for (int i = 2; i < weight.ndim(); i++) out.push_back(weight.shape(i));
  return out;
}

Tensor convolve(const NodeContext& c, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Window w = window_of(c, x.shape(), kernel_of(weight));
  return x.conv2d(weight, bias,
                  {.groups = c.attr("group", int64_t{1}),
                   .stride = Ints(w.strides),
                   .dilation = Ints(w.dilations),
                   .padding = pads_last_first(w.pads)});
}

Values conv(NodeContext& c) {
  const Tensor x = c.tensor(0);
  return {convolve(c, x, c.tensor(1), c.optional_tensor(2)).cast(x.dtype())};
}

/// Padding of a transposed convolution: what its output loses at both ends of each axis.
struct Transposed {
  Pads cut;
  std::vector<int64_t> more;
};
Transposed transposed_pads(const NodeContext& c, const Window& w, const Tensor& x) {
  const size_t n = w.kernel.size();
  Transposed t{w.pads, c.attr_ints("output_padding", std::vector<int64_t>(n, 0))};
  const std::string automatic = c.attr("auto_pad", "NOTSET");
  const std::vector<int64_t> output = c.attr_ints("output_shape");
  c.check(t.more.size() == n && (output.empty() || output.size() == n || output.size() == n + 2),
          "output_padding and output_shape have ", t.more.size(), " and ", output.size(), " numbers for ", n, " axes");
  for (size_t i = 0; i < n; i++) {
    const int64_t size = x.shape(static_cast<int>(i) + 2);
    const int64_t full = w.strides[i] * (size - 1) + t.more[i] + (w.kernel[i] - 1) * w.dilations[i] + 1;
    const bool same = automatic.starts_with("SAME");
    if (output.empty() && !same) continue;
    const int64_t target = output.empty() ? size * w.strides[i] : output[output.size() - n + i];
    const int64_t total = full - target;
    if (total < 0) {  // zeros at the end
      t.more[i] -= total;
      t.cut[i] = {0, 0};
      continue;
    }
    const int64_t half = total / 2;
    t.cut[i] = automatic == "SAME_UPPER" ? std::pair(half, total - half) : std::pair(total - half, half);
  }
  return t;
}

Values conv_transpose(NodeContext& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(1);
  const Window w = window_of(c, x.shape(), kernel_of(weight));
  const Transposed t = transposed_pads(c, w, x);
  const Tensor full = x.conv_transpose2d(weight, Tensor(),
                                         {.groups = c.attr("group", int64_t{1}),
                                          .stride = Ints(w.strides),
                                          .dilation = Ints(w.dilations),
                                          .output_padding = Ints(t.more)});
  Pads cut;
  for (const auto& [before, after] : t.cut) cut.emplace_back(-before, -after);
  Tensor out = full.pad(pads_with_lead(cut, x.ndim()));
  if (c.has(2)) out = out + along_axis(c.tensor(2), 1, x.ndim());
  return {out.cast(x.dtype())};
}

/// Convolution whose taps are moved by offsets, (batch, groups * taps * 2, output...), and weighed by a mask.
Values deform_conv(NodeContext& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(1), offset = c.tensor(2);
  const Window w = window_of(c, x.shape(), kernel_of(weight));
  const int64_t groups = c.attr("group", int64_t{1}), moved = c.attr("offset_group", int64_t{1});
  c.check(w.kernel.size() == 2, "got ", w.kernel.size(), " spatial axes, expected 2");
  c.check(
      groups > 0 && moved > 0 && x.shape(1) % groups == 0 && x.shape(1) % moved == 0 && weight.shape(0) % groups == 0,
      "group ", groups, " and offset_group ", moved, " do not divide ", x.shape(1), " channels");
  const int64_t batch = x.shape(0), channels = x.shape(1), kh = w.kernel[0], kw = w.kernel[1], taps = kh * kw;
  const int64_t oh = offset.shape(2), ow = offset.shape(3), each = channels / moved;
  const Tensor shifts = offset.reshape(Shape{batch, moved, taps, 2, oh, ow});
  const DType d = x.dtype();
  Tensors at;
  for (size_t i = 0; i < 2; i++) {
    const Tensor tap = Tensor::arange(0, taps, 1, {.dtype = dtypes::int64, .device = c.device()});
    const Tensor along = (i == 0 ? tap.floor_div(Tensor(kw)) : tap.mod(Tensor(kw))) * w.dilations[i];
    const Tensor out =
        Tensor::arange(0, i == 0 ? oh : ow, 1, {.dtype = dtypes::int64, .device = c.device()}) * w.strides[i];
    const Tensor grid = along_axis(along, 2, 5) + along_axis(out, i == 0 ? 3 : 4, 5) - w.pads[i].first;
    const auto k = static_cast<int64_t>(i);
    at.push_back(
        (grid.cast(d) + shifts.slice(3, k, k + 1).squeeze(3)).reshape(Shape{batch * moved, 1, taps * oh * ow}));
  }
  const Tensor image = x.reshape(Shape{batch * moved, each, x.shape(2), x.shape(3)});
  Tensor values =
      sample(image, at, SampleMode::kLinear, Outside::kZeros).reshape(Shape{batch, moved, each, taps, oh, ow});
  if (c.has(4)) values = values * c.tensor(4).reshape(Shape{batch, moved, 1, taps, oh, ow});
  const Tensor columns = values.reshape(Shape{batch, groups, channels / groups * taps, oh * ow});
  const int64_t outputs = weight.shape(0);
  const Tensor rows = weight.reshape(Shape{1, groups, outputs / groups, channels / groups * taps});
  Tensor out = rows.dot(columns).reshape(Shape{batch, outputs, oh, ow});
  if (c.has(3)) out = out + along_axis(c.tensor(3), 1, 4);
  return {out.cast(d)};
}

/// Adds up columns of windows where they overlap: the transpose of cutting an image into windows.
Values col2im(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const std::vector<int64_t> image = c.ints(1), block = c.ints(2);
  const size_t n = image.size();
  const std::vector<int64_t> strides = c.attr_ints("strides", std::vector<int64_t>(n, 1));
  const std::vector<int64_t> dilations = c.attr_ints("dilations", std::vector<int64_t>(n, 1));
  const std::vector<int64_t> pads = c.attr_ints("pads", std::vector<int64_t>(2 * n, 0));
  c.check(block.size() == n && strides.size() == n && dilations.size() == n && pads.size() == 2 * n,
          "image_shape, block_shape and the attributes are of different lengths");
  const auto sane = [](int64_t v) { return v > 0 && v <= INT32_MAX; };
  for (const auto* list : {&image, &block, &strides, &dilations})
    c.check(std::ranges::all_of(*list, sane), "sizes, strides and dilations must be 1 or more");
  c.check(n > 0 && n <= 8, "got ", n, " spatial axes");
  const int64_t taps = std::accumulate(block.begin(), block.end(), int64_t{1}, std::multiplies<>());
  const int64_t batch = x.shape(0), channels = x.shape(1) / taps;
  // Each window's columns are an input of as many channels; the kernel puts each tap in its place.
  Shape windows{batch * channels, taps}, kernel{taps, 1};
  for (size_t i = 0; i < n; i++) {
    windows.push_back((image[i] + pads[i] + pads[n + i] - dilations[i] * (block[i] - 1) - 1) / strides[i] + 1);
    kernel.push_back(block[i]);
  }
  const Tensor places = Tensor::eye(taps, {.dtype = x.dtype(), .device = c.device()}).reshape(kernel);
  const Tensor full =
      x.reshape(windows).conv_transpose2d(places, {.stride = Ints(strides), .dilation = Ints(dilations)});
  Pads cut;
  for (size_t i = 0; i < n; i++) {
    const int64_t size = full.shape(static_cast<int>(i) + 2);
    cut.emplace_back(-pads[i], image[i] + pads[i] - size);
  }
  Shape out{batch, channels};
  for (const int64_t s : image) out.push_back(s);
  return {full.pad(pads_with_lead(cut, full.ndim())).reshape(out)};
}

/// A convolution followed by an activation that an optimizer merged into it.
Values fused_conv(NodeContext& c) {
  Tensor out = convolve(c, c.tensor(0), c.tensor(1), c.optional_tensor(2));
  if (c.has(3)) out = out + c.tensor(3);
  const std::string name =
      c.choice("activation", "", {"", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"});
  const std::vector<double> p = c.attr_floats("activation_params");
  const auto parameter = [&](size_t i, double otherwise) { return i < p.size() ? p[i] : otherwise; };
  if (name == "Relu") return {out.relu()};
  if (name == "Tanh") return {out.tanh()};
  if (name == "Sigmoid") return {out.sigmoid()};
  if (name == "LeakyRelu") return {out.leaky_relu(parameter(0, 0.01))};
  if (name == "Clip") return {out.clamp(Tensor(parameter(0, -3.4e38)), Tensor(parameter(1, 3.4e38)))};
  if (name == "HardSigmoid") return {(out * parameter(0, 0.2) + parameter(1, 0.5)).clamp(Tensor(0.0), Tensor(1.0))};
  return {out};
}

/// A convolution along the last axis that sees the past alone; the end of the input is kept for the next call.
Values causal_conv(NodeContext& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(1);
  c.check(x.ndim() == 3, "got shape ", x.shape(), ", expected (batch, channels, length)");
  const int64_t kept = weight.shape(-1) - 1;
  const Tensor past =
      c.has(3) ? c.tensor(3)
               : Tensor::zeros(Shape{x.shape(0), x.shape(1), kept}, {.dtype = x.dtype(), .device = c.device()});
  const Tensor whole = past.cat(x, 2);
  Tensor out = whole.conv2d(weight, c.optional_tensor(2), {.groups = x.shape(1)});
  const std::string name = c.choice("activation", "none", {"none", "silu", "swish"});
  if (name != "none") out = out.silu();
  const int64_t length = whole.shape(2);
  return {out.cast(x.dtype()), whole.slice(2, length - kept, length)};
}

const OperatorRow kRows[] = {
    {"", "Conv", 1, conv},
    {"", "ConvTranspose", 1, conv_transpose},
    {"", "DeformConv", 19, deform_conv},
    {"", "Col2Im", 18, col2im},
    {"com.microsoft", "FusedConv", 1, fused_conv},
    {"", "CausalConvWithState", 27, causal_conv},
};

}  // namespace

OperatorRows conv_operators() { return kRows; }

}  // namespace tg::onnx
