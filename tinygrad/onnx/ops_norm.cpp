/// \file Normalizations.
#include <algorithm>
#include <cmath>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

std::vector<int> axes_from(int64_t first, int64_t rank) {
  std::vector<int> out;
  for (int64_t i = first; i < rank; i++) out.push_back(static_cast<int>(i));
  return out;
}

/// Normalizes by the statistics given, or in training mode by those of the batch, which also move the running ones.
Values batch_norm(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const double eps = c.attr("epsilon", 1e-5), momentum = c.attr("momentum", 0.9);
  const auto channel = [&](const Tensor& t) { return along_axis(t, x.ndim() > 1 ? 1 : 0, x.ndim()); };
  const bool training =
      c.opset() >= 14 ? c.flag("training_mode") : c.opset() < 7 && !c.flag("is_test") && c.outputs() > 1;
  const Tensor scale = c.tensor(1), bias = c.tensor(2), mean = c.tensor(3), var = c.tensor(4);
  if (!training) {
    const Tensor factor = scale * (var + eps).rsqrt();
    return {(x * channel(factor) + channel(bias - mean * factor)).cast(x.dtype())};
  }
  std::vector<int> axes = axes_from(2, x.ndim());
  axes.push_back(0);
  const Tensor wide = x.cast(wide_float(x.dtype()));
  const Tensor m = wide.mean({.axis = Axes(axes)}), v = wide.var({.axis = Axes(axes), .correction = 0});
  const Tensor out = (wide - channel(m)) * channel((v + eps).rsqrt()) * channel(scale) + channel(bias);
  return {out.cast(x.dtype()), (mean * momentum + m * (1 - momentum)).cast(mean.dtype()),
          (var * momentum + v * (1 - momentum)).cast(var.dtype())};
}

/// Returns x normalized over axes, its mean and the inverse of its deviation.
struct Normalized {
  Tensor value, mean, inverse;
};
Normalized normalized(const Tensor& x, const Axes& axes, double eps) {
  const Tensor mean = x.mean({.axis = axes, .keepdim = true});
  const Tensor centered = x - mean;
  const Tensor inverse = ((centered * centered).mean({.axis = axes, .keepdim = true}) + eps).rsqrt();
  return {centered * inverse, mean, inverse};
}

Values layer_norm(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const DType d = x.dtype();
  const int axis = normal_axis(c.attr("axis", int64_t{-1}), x.ndim());
  const Normalized n = normalized(x.cast(wide_float(d)), Axes(axes_from(axis, x.ndim())), c.attr("epsilon", 1e-5));
  Tensor out = n.value.cast(d) * c.tensor(1);
  if (c.has(2)) out = out + c.tensor(2);
  return {out.cast(d), n.mean, n.inverse};
}

Values rms_norm(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const DType d = x.dtype();
  const int axis = normal_axis(c.attr("axis", int64_t{-1}), x.ndim());
  const Tensor wide = x.cast(wide_float(d));
  const Tensor inverse =
      ((wide * wide).mean({.axis = Axes(axes_from(axis, x.ndim())), .keepdim = true}) + c.attr("epsilon", 1e-5))
          .rsqrt();
  return {((wide * inverse).cast(d) * c.tensor(1)).cast(d), inverse};
}

Values instance_norm(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const Normalized n = normalized(x.cast(wide_float(x.dtype())), Axes(axes_from(2, x.ndim())), c.attr("epsilon", 1e-5));
  return {(n.value * along_axis(c.tensor(1), 1, x.ndim()) + along_axis(c.tensor(2), 1, x.ndim())).cast(x.dtype())};
}

/// Scale and bias are one number for each group before version 21, for each channel since then.
Values group_norm(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int64_t groups = c.required_int("num_groups"), channels = x.shape(1);
  c.check(groups > 0 && channels % groups == 0, "num_groups ", groups, " does not divide ", channels, " channels");
  const Tensor parts = x.cast(wide_float(x.dtype())).reshape(Shape{x.shape()[0], groups, -1});
  const Tensor value = normalized(parts, Axes(2), c.attr("epsilon", 1e-5)).value.reshape(x.shape());
  const auto channel = [&](Tensor t) {
    if (t.shape(0) == groups && groups != channels) t = t.repeat_interleave(channels / groups);
    return along_axis(t, 1, x.ndim());
  };
  return {(value * channel(c.tensor(1)) + channel(c.tensor(2))).cast(x.dtype())};
}

/// Divides by a sum of squares of channels nearby.
Values lrn(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int64_t size = c.required_int("size");
  const double alpha = c.attr("alpha", 1e-4), beta = c.attr("beta", 0.75), bias = c.attr("bias", 1.0);
  c.check(size > 0 && x.ndim() >= 2, "got size ", size, " for shape ", x.shape());
  std::vector<std::pair<int64_t, int64_t>> amounts(static_cast<size_t>(x.ndim()), {0, 0});
  amounts[1] = {(size - 1) / 2, size / 2};
  const Tensor sums = (x * x).pad(amounts).unfold(1, size, 1).sum(-1);
  return {(x / (sums * (alpha / static_cast<double>(size)) + bias).pow(Tensor(beta))).cast(x.dtype())};
}

Values lp_normalization(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const int axis = normal_axis(c.attr("axis", int64_t{-1}), x.ndim());
  const Tensor norm = c.attr("p", int64_t{2}) == 1 ? x.abs().sum(axis, true) : (x * x).sum(axis, true).sqrt();
  const Tensor zero = norm.eq(Tensor(0));
  return {zero.where(x.zeros_like(), x / zero.where(norm.ones_like(), norm)).cast(x.dtype())};
}

Values mean_variance(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const Axes axes(normal_axes(c.attr_ints("axes", {0, 2, 3}), x.ndim()));
  const Tensor centered = x - x.mean({.axis = axes, .keepdim = true});
  return {centered / ((centered * centered).mean({.axis = axes, .keepdim = true}).sqrt() + 1e-9)};
}

/// SkipLayerNormalization and SkipSimplifiedLayerNormalization: of the sum of input, skip and bias.
Values skip_norm(NodeContext& c) {
  const bool simple = c.node().op == "SkipSimplifiedLayerNormalization";
  Tensor sum = c.tensor(0) + c.tensor(1);
  const size_t bias = simple ? 3 : 4;
  if (c.has(bias)) sum = sum + c.tensor(bias);
  const double eps = c.attr("epsilon", 1e-12);
  Tensor out;
  if (simple) out = sum * ((sum * sum).mean(-1, true) + eps).rsqrt() * c.tensor(2);
  else out = normalized(sum, Axes(-1), eps).value * c.tensor(2);
  if (!simple && c.has(3)) out = out + c.tensor(3);
  return {out, Value(), Value(), sum};
}

const OperatorRow kRows[] = {
    {"", "BatchNormalization", 1, batch_norm},
    {"", "LayerNormalization", 1, layer_norm},
    {"", "RMSNormalization", 23, rms_norm},
    {"", "SimplifiedLayerNormalization", 1, rms_norm},
    {"", "InstanceNormalization", 1, instance_norm},
    {"", "GroupNormalization", 18, group_norm},
    {"", "LRN", 1, lrn},
    {"", "LpNormalization", 1, lp_normalization},
    {"", "MeanVarianceNormalization", 9, mean_variance},
    {"com.microsoft", "SkipLayerNormalization", 1, skip_norm},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, skip_norm},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, rms_norm},
};

}  // namespace

OperatorRows norm_operators() { return kRows; }

}  // namespace tg::onnx
