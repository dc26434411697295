/// \file Layers: structs that hold their parameters as public Tensors and are called with the input. Initial values,
/// and the order in which random numbers are drawn for them, match the Python original: the same seed gives the same
/// weights.
#pragma once
#include "tinygrad/base/context.h"
#include "tinygrad/nn/rnn.h"
#include "tinygrad/nn/state.h"
#include "tinygrad/nn/transformer.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

/// Training mode until the end of the scope: dropout is active, batch norms use and track batch statistics, optimizers
/// may step.
struct Training : Context {
  explicit Training(bool on = true) : Context({{"TRAINING", static_cast<int64_t>(on)}}) {}
};

/// x @ weight^T + bias: (..., in) -> (..., out), of the type of both together.
struct Linear {
  Tensor weight, bias;  ///< (out, in), (out): uniform within 1/sqrt(in)
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(weight, bias)
};

struct Conv2dOptions {
  Ints stride = 1;
  Ints padding = 0;  ///< one number, one for each spatial axis, or {left, right, top, bottom, ...}
  Ints dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  bool same = false;  ///< pad so that the output has the input's size; needs stride 1 and no padding of one's own
};

/// Convolution over the last axes: (batch, in, ...) -> (batch, out, ...). An integer kernel size means two axes; a list
/// gives one size per axis.
struct Conv2d {
  Tensor weight, bias;  ///< (out, in / groups, kernel...), (out): uniform within 1/sqrt(in * kernel elements)
  ConvOptions options;
  Conv2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const Conv2dOptions& o = {})
      : Conv2d(in_channels, out_channels, Ints{kernel_size, kernel_size}, o) {}
  Conv2d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size, const Conv2dOptions& o = {});
  Tensor operator()(const Tensor& x) const;
  TG_STATE(weight, bias)
};
inline Conv2d Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const Conv2dOptions& o = {}) {
  return Conv2d(in_channels, out_channels, Ints{kernel_size}, o);
}

struct ConvTranspose2dOptions {
  Ints stride = 1, padding = 0, output_padding = 0, dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};

/// Transposed convolution over the last axes: (batch, in, ...) -> (batch, out, ...), the gradient of a convolution as a
/// layer, of the type of input and weight together.
struct ConvTranspose2d {
  Tensor weight, bias;  ///< (in, out / groups, kernel...), (out): uniform within 1/sqrt(in * kernel elements)
  ConvTransposeOptions options;
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, int64_t kernel_size, const ConvTranspose2dOptions& o = {})
      : ConvTranspose2d(in_channels, out_channels, Ints{kernel_size, kernel_size}, o) {}
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, const Ints& kernel_size,
                  const ConvTranspose2dOptions& o = {});
  Tensor operator()(const Tensor& x) const;
  TG_STATE(weight, bias)
};
inline ConvTranspose2d ConvTranspose1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size,
                                       const ConvTranspose2dOptions& o = {}) {
  return ConvTranspose2d(in_channels, out_channels, Ints{kernel_size}, o);
}

struct BatchNormOptions {
  double eps = 1e-5;
  bool affine = true;
  bool track_running_stats = true;
  double momentum = 0.1;
};

/// Normalizes every channel (axis 1) over batch and space. In training mode with the statistics of the batch, which
/// also move the running ones (realized with an optimizer's step, or by realize()), else with the running ones. Shape
/// and type are the input's.
struct BatchNorm {
  Tensor weight, bias;                                    ///< (channels); undefined without affine
  Tensor num_batches_tracked, running_mean, running_var;  ///< the last two undefined without track_running_stats
  BatchNormOptions options;
  explicit BatchNorm(int64_t channels, const BatchNormOptions& o = {});
  Tensor operator()(const Tensor& x) const;
  TG_STATE(weight, bias, num_batches_tracked, running_mean, running_var)
};
using BatchNorm1d = BatchNorm;
using BatchNorm2d = BatchNorm;
using BatchNorm3d = BatchNorm;

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;
};

/// Normalizes over the last axes, whose sizes are `normalized_shape`. Shape and type are the input's.
struct LayerNorm {
  Tensor weight, bias;  ///< of the normalized shape; undefined without affine
  Ints normalized_shape;
  LayerNormOptions options;
  explicit LayerNorm(Ints normalized_shape, const LayerNormOptions& o = {});
  Tensor operator()(const Tensor& x) const;
  TG_STATE(weight, bias)
};

/// LayerNorm over the channels of images: (batch, channels, height, width), any number of spatial axes. Shape
/// and type are the input's.
struct LayerNorm2d : LayerNorm {
  explicit LayerNorm2d(int64_t channels, const LayerNormOptions& o = {}) : LayerNorm(channels, o) {}
  Tensor operator()(const Tensor& x) const;
};

/// Normalizes groups of adjacent channels over the group and space; `num_groups` divides `num_channels`.
/// Shape and type are the input's.
struct GroupNorm {
  Tensor weight, bias;  ///< (channels); undefined without affine
  int64_t num_groups, num_channels;
  LayerNormOptions options;
  GroupNorm(int64_t groups, int64_t channels, const LayerNormOptions& o = {});
  Tensor operator()(const Tensor& x) const;
  TG_STATE(weight, bias)
};

/// Normalizes every channel of every sample over space. As in PyTorch a sample may come without a batch, (channels,
/// ...): an input of two axes, or one whose axis 1 has another size than the channels. The result has the input's shape
/// and its float type.
struct InstanceNorm : GroupNorm {
  explicit InstanceNorm(int64_t channels, const LayerNormOptions& o = {}) : GroupNorm(channels, channels, o) {}
  Tensor operator()(const Tensor& x) const;
};

struct RMSNormOptions {
  double eps = 1e-6;
  bool affine = true;
};

/// Divides by the root mean square of the last axis, computed in float32, float64 in float64.
struct RMSNorm {
  Tensor weight;  ///< (dim); undefined without affine
  RMSNormOptions options;
  explicit RMSNorm(int64_t dim, const RMSNormOptions& o = {});
  Tensor operator()(const Tensor& x) const;
  TG_STATE(weight)
};

/// Selects rows of a table (rows, size) by number: integers (...) -> (..., size), of the table's type. Numbers out of
/// range, including negative ones, give zeros. DTypeError for numbers that are no integers.
Tensor embedding(const Tensor& weight, const Tensor& indices);
/// Selects rows of a table by number, as embedding: integers (...) -> (..., embed_size).
struct Embedding {
  Tensor weight;  ///< (vocab_size, embed_size): Glorot uniform
  Embedding(int64_t vocab_size, int64_t embed_size);
  Tensor operator()(const Tensor& indices) const { return embedding(weight, indices); }
  TG_STATE(weight)
};

/// Zeroes elements with probability p in training mode and scales the rest by 1/(1-p); shape and type are the input's.
struct Dropout {
  double p;
  explicit Dropout(double probability = 0.5);
  Tensor operator()(const Tensor& x) const { return x.dropout(p); }
  TG_STATE()
};

}  // namespace tg::nn
