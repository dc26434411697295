/// \file Layers.
#include "tinygrad/nn/nn.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/error.h"
#include "tinygrad/tensor/ops/index_range.h"
#include "tinygrad/tensor/ops/product.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/mesh.h"

namespace tg::nn {
namespace {

void check_sizes(const char* layer, int64_t a, int64_t b) {
  TG_CHECK(ShapeError, a > 0 && b > 0, "[", layer, "] got sizes ", a, " and ", b, ", expected positive ones");
}

Tensor uniform(const Shape& shape, double bound) {
  return Tensor::uniform(shape, {.low = -bound, .high = bound}).is_param_();
}

/// Creates a tensor with storage from the start, so that the first training step runs the same kernels as the later
/// ones.
Tensor filled(const Shape& shape, Scalar value, const TensorOptions& o) {
  bool trained = o.requires_grad.value_or(true);
  return Tensor::full(shape, value, {o.dtype, o.device, {}}).contiguous().is_param_(trained);
}
constexpr bool kParameter = true, kStatistic = false;

/// Returns x in the type that statistics are computed in, and results until weight and bias are applied: narrow floats
/// are rounded once.
Tensor widened(const Tensor& x) { return x.cast(tensor_detail::wide_dtype(x.dtype())); }
/// Returns y, which was computed of `x` and perhaps a weight, in the float type of both.
Tensor rounded(const Tensor& y, const Tensor& x, const Tensor& weight) {
  const DType d = least_upper_float(x.dtype());
  return y.cast(weight.defined() ? least_upper_dtype(d, weight.dtype()) : d);
}

/// Returns the padding around each axis with which a stride-1 convolution keeps its size, last axis first.
Ints same_padding(const Ints& kernel, const Conv2dOptions& o) {
  const auto all_are = [](const Ints& v, int64_t n) {
    return std::all_of(v.begin(), v.end(), [n](int64_t x) { return x == n; });
  };
  TG_CHECK(ValueError, all_are(o.stride, 1) && all_are(o.padding, 0),
           "[Conv2d] same = true needs stride 1 and no padding");
  Ints out;
  for (size_t i = kernel.size(); i-- > 0;) {
    const int64_t total = o.dilation[o.dilation.size() == 1 ? 0 : i] * (kernel[i] - 1);
    out.push_back(total / 2);
    out.push_back(total - total / 2);
  }
  return out;
}

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias) {
  check_sizes("Linear", in_features, out_features);
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));
  weight = uniform({out_features, in_features}, bound);
  if (with_bias) bias = uniform({out_features}, bound);
}

Tensor Linear::operator()(const Tensor& x) const {
  const SInt in = weight.shape()[1];
  TG_CHECK(ShapeError, x.ndim() > 0 && x.shape().back() == in, "[Linear] got shape ", x.shape(), ", expected (..., ",
           in, ")");
  {
    GraphScope g;
    const std::string &here = device_of(x.uop()), &there = device_of(weight.uop());
    TG_CHECK(DeviceError, here.empty() || there.empty() || here == there, "[Linear] got a tensor on ", here,
             " and a weight on ", there, ", expected one device: move it with .to(device)");
  }
  return x.linear(weight.transpose(), bias);
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size, const Conv2dOptions& o)
    : options{.groups = o.groups, .stride = o.stride, .dilation = o.dilation, .padding = o.padding} {
  check_sizes("Conv2d", in_channels, out_channels);
  TG_CHECK(ShapeError, o.dilation.size() == 1 || o.dilation.size() == kernel_size.size(), "[Conv2d] got ",
           o.dilation.size(), " dilations for ", kernel_size.size(), " axes");
  TG_CHECK(ValueError, o.groups > 0 && in_channels % o.groups == 0 && out_channels % o.groups == 0,
           "[Conv2d] got groups = ", o.groups, ", expected a divisor of ", in_channels, " and ", out_channels);
  Shape shape{out_channels, in_channels / o.groups};
  double fan_in = static_cast<double>(in_channels);
  for (int64_t k : kernel_size) {
    TG_CHECK(ShapeError, k > 0, "[Conv2d] got kernel size ", k, ", expected a positive one");
    shape.push_back(k);
    fan_in *= static_cast<double>(k);
  }
  if (o.same) options.padding = same_padding(kernel_size, o);
  const double bound = 1 / std::sqrt(fan_in);
  weight = uniform(shape, bound);
  if (o.bias) bias = uniform({out_channels}, bound);
}

Tensor Conv2d::operator()(const Tensor& x) const { return x.conv2d(weight, bias, options); }

ConvTranspose2d::ConvTranspose2d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size,
                                 const ConvTranspose2dOptions& o)
    : options{.groups = o.groups,
              .stride = o.stride,
              .dilation = o.dilation,
              .padding = o.padding,
              .output_padding = o.output_padding} {
  // The original first draws the values of a convolution, whose bias it keeps.
  bias =
      Conv2d(in_channels, out_channels, kernel_size, {.dilation = o.dilation, .groups = o.groups, .bias = o.bias}).bias;
  Shape shape{in_channels, out_channels / o.groups};
  double fan_in = static_cast<double>(in_channels);
  for (int64_t k : kernel_size) {
    shape.push_back(k);
    fan_in *= static_cast<double>(k);
  }
  weight = uniform(shape, 1 / std::sqrt(fan_in));
}

Tensor ConvTranspose2d::operator()(const Tensor& x) const { return x.conv_transpose2d(weight, bias, options); }

BatchNorm::BatchNorm(int64_t channels, const BatchNormOptions& o) : options(o) {
  check_sizes("BatchNorm", channels, channels);
  if (o.affine) {
    weight = filled({channels}, 1.0, {.requires_grad = kParameter});
    bias = filled({channels}, 0.0, {.requires_grad = kParameter});
  }
  num_batches_tracked = filled({}, 0, {.dtype = dtypes::int64, .requires_grad = kStatistic});
  if (!o.track_running_stats) return;
  running_mean = filled({channels}, 0.0, {.requires_grad = kStatistic});
  running_var = filled({channels}, 1.0, {.requires_grad = kStatistic});
}

Tensor BatchNorm::operator()(const Tensor& x) const {
  TG_CHECK(ShapeError, x.ndim() >= 2, "[BatchNorm] got an input of shape ", x.shape(),
           ", expected (batch, channels, ...)");
  Shape along_channels(static_cast<size_t>(x.ndim()), SInt(1));
  along_channels[1] = x.shape()[1];
  if (options.track_running_stats && !Tensor::training())
    return x.batchnorm(weight, bias, running_mean, (running_var.reshape(along_channels) + options.eps).rsqrt());
  std::vector<int> others;
  for (int axis = 0; axis < x.ndim(); axis++)
    if (axis != 1) others.push_back(axis);
  const Tensor wide = widened(x), mean = wide.mean({.axis = others});
  const Tensor centered =
      wide - mean.detach().reshape(along_channels);  // to first order the variance does not depend on the mean
  const Tensor var = centered.square().mean({.axis = others});
  if (options.track_running_stats && Tensor::training()) {
    const double n = static_cast<double>(x.numel()), channels = static_cast<double>(x.shape(1)), m = options.momentum;
    TG_CHECK(ShapeError, n == 0 || n > channels, "[BatchNorm] got an input of shape ", x.shape(),
             ", whose channels have one value each: training needs more to estimate a variance");
    if (n > 0) {  // an empty batch has no statistics
      const auto track = [m](const Tensor& running, const Tensor& now) {
        running.assign(((1 - m) * running + m * now).cast(running.dtype()));
      };
      track(running_mean, mean.detach());
      track(running_var, n / (n - channels) * var.detach());
    }
    num_batches_tracked.assign(num_batches_tracked + 1);
  }
  return rounded(x.batchnorm(weight, bias, mean, (var + options.eps).rsqrt()), x, weight);
}

LayerNorm::LayerNorm(Ints sizes, const LayerNormOptions& o) : normalized_shape(std::move(sizes)), options(o) {
  TG_CHECK(ShapeError, !normalized_shape.empty(), "[LayerNorm] got no sizes, expected those of the last axes");
  for (int64_t n : normalized_shape) check_sizes("LayerNorm", n, n);
  if (!o.affine) return;
  const Shape shape{std::span<const int64_t>(normalized_shape)};
  weight = filled(shape, 1.0, {.requires_grad = kParameter});
  bias = filled(shape, 0.0, {.requires_grad = kParameter});
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  const Shape shape = x.shape();
  const size_t n = normalized_shape.size();
  TG_CHECK(ShapeError,
           shape.size() >= n &&
               std::equal(normalized_shape.begin(), normalized_shape.end(), shape.end() - static_cast<ptrdiff_t>(n)),
           "[LayerNorm] got an input of shape ", shape, ", expected the last sizes to be ",
           Shape(std::span<const int64_t>(normalized_shape)));
  std::vector<int> axes;
  for (int i = 1; i <= static_cast<int>(n); i++) axes.push_back(-i);
  const Tensor y = widened(x).layernorm(axes, options.eps);
  return rounded(weight.defined() ? y * weight + bias : y, x, weight);
}

Tensor LayerNorm2d::operator()(const Tensor& x) const {
  TG_CHECK(ShapeError, x.ndim() >= 2, "[LayerNorm2d] got an input of shape ", x.shape(),
           ", expected (batch, channels, ...)");
  std::vector<int> last{0}, back{0, static_cast<int>(x.ndim()) - 1};
  for (int axis = 2; axis < x.ndim(); axis++) {
    last.push_back(axis);
    back.push_back(axis - 1);
  }
  last.push_back(1);
  return LayerNorm::operator()(x.permute(last)).permute(back);
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, const LayerNormOptions& o)
    : num_groups(groups), num_channels(channels), options(o) {
  check_sizes("GroupNorm", groups, channels);
  TG_CHECK(ValueError, channels % groups == 0, "[GroupNorm] got ", groups, " groups of ", channels,
           " channels, expected a divisor");
  if (!o.affine) return;
  weight = filled({channels}, 1.0, {.requires_grad = kParameter});
  bias = filled({channels}, 0.0, {.requires_grad = kParameter});
}

Tensor GroupNorm::operator()(const Tensor& x) const {
  TG_CHECK(ShapeError, x.ndim() >= 2 && x.shape(1) == num_channels, "[GroupNorm] got an input of shape ", x.shape(),
           ", expected (batch, ", num_channels, ", ...)");
  const Tensor y = widened(x).reshape(x.shape(0), num_groups, -1).layernorm(-1, options.eps).reshape(x.shape());
  if (!weight.defined()) return rounded(y, x, weight);
  Shape along_channels(static_cast<size_t>(x.ndim()), SInt(1));
  along_channels[1] = num_channels;
  return rounded(y * weight.reshape(along_channels) + bias.reshape(along_channels), x, weight);
}

Tensor InstanceNorm::operator()(const Tensor& x) const {
  const bool one_sample = x.ndim() == 2 || (x.ndim() > 2 && x.shape(1) != num_channels && x.shape(0) == num_channels);
  return one_sample ? GroupNorm::operator()(x.unsqueeze(0)).squeeze(0) : GroupNorm::operator()(x);
}

RMSNorm::RMSNorm(int64_t dim, const RMSNormOptions& o) : options(o) {
  check_sizes("RMSNorm", dim, dim);
  if (o.affine) weight = filled({dim}, 1.0, {.requires_grad = kParameter});
}

Tensor RMSNorm::operator()(const Tensor& x) const {
  TG_CHECK(ShapeError, !weight.defined() || (x.ndim() > 0 && x.shape(-1) == weight.shape(0)),
           "[RMSNorm] got an input of shape ", x.shape(), ", expected the last size to be ",
           weight.defined() ? weight.shape(0) : 0);
  const Tensor f = x.dtype() == dtypes::float64 ? x : x.to_float();
  const Tensor y = f * (f.square().mean(-1, true) + options.eps).rsqrt();
  return rounded(weight.defined() ? y * weight : y, x, weight);
}

Embedding::Embedding(int64_t vocab_size, int64_t embed_size) {
  check_sizes("Embedding", vocab_size, embed_size);
  weight = Tensor::glorot_uniform({vocab_size, embed_size}).is_param_();
}

Tensor embedding(const Tensor& weight, const Tensor& indices) {
  TG_CHECK(DTypeError, indices.dtype().is_int(), "[Embedding] got indices of type ", indices.dtype(),
           ", expected integers");
  if (weight.ndim() > 0) tensor_detail::check_axis_index(indices, 0, weight.shape(), {.op = "Embedding"});
  // Not as an index: negative ones would count from the end.
  Tensor i = indices.dtype().itemsize() < 4 ? indices.cast(dtypes::int32) : indices;
  const Tensor rows = weight[indices.dtype().is_unsigned() ? i : (i < 0).where(weight.shape(0), i)];
  // Of a table whose width is divided among processes each has its part of the rows: what follows reads whole ones.
  return is_world(weight.device()) ? rows.shard_like(indices) : rows;
}

Dropout::Dropout(double probability) : p(probability) {
  TG_CHECK(ValueError, p >= 0 && p <= 1, "[Dropout] got probability ", p, ", expected one in [0, 1]");
}

}  // namespace tg::nn
