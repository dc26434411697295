/// \file EfficientNet (Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks",
/// arXiv 1905.11946).
#pragma once
#include <optional>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

struct EfficientNetOptions {
  int64_t number = 0;              ///< 0 to 8: B0 to B8; 9: L2
  int64_t classes = 1000;          ///< 0: no classifier; the network returns the means of its last channels
  bool squeeze_excitation = true;  ///< blocks weigh their channels by what the whole image shows
  int64_t input_channels = 3;
  /// Of the published weights. tinygrad's Python class has eps 1e-5 and momentum 0.1.
  nn::BatchNormOptions norm = {.eps = 1e-3, .momentum = 0.01};
};

/// The sizes of an inverted bottleneck.
struct MBConvOptions {
  int64_t in = 0, out = 0;  ///< channels
  int64_t expansion = 1;    ///< of the channels between the first and the last convolution
  int64_t kernel = 3, stride = 1;
};

/// An inverted bottleneck: a 1x1 convolution to more channels, a convolution of each channel, weights of channels, and
/// a 1x1 convolution to fewer; the input is added where the shape is the same. (batch, in, height, width) ->
/// (batch, out, height / stride, width / stride), sizes rounded up.
struct MBConvBlock {
  std::optional<nn::Conv2d> expand_conv;
  std::optional<nn::BatchNorm> bn0;
  nn::Conv2d depthwise_conv;
  nn::BatchNorm bn1;
  std::optional<nn::Conv2d> se_reduce, se_expand;
  nn::Conv2d project_conv;
  nn::BatchNorm bn2;
  MBConvBlock(const MBConvOptions& b, const EfficientNetOptions& o);
  Tensor operator()(const Tensor& x) const;
  void visit_state(nn::StateVisitor& visitor) const;
};

/// EfficientNet: images (batch, input_channels, height, width) -> (batch, classes) logits. Convolutions with a stride
/// pad as TensorFlow does, as the published weights need: by as little as gives each output a window, more at the end.
struct EfficientNet {
  nn::Conv2d conv_stem;
  nn::BatchNorm bn0;
  std::vector<MBConvBlock> blocks;
  nn::Conv2d conv_head;
  nn::BatchNorm bn1;
  Tensor fc, fc_bias;  ///< (channels, classes): Glorot uniform; (classes): zeros; undefined without classifier
  /// Makes the network with random weights. ValueError for a number that is not 0 to 9.
  explicit EfficientNet(const EfficientNetOptions& o = {});
  Tensor operator()(const Tensor& images) const;
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Returns the tensors of a published file (efficientnet-b0-355c32eb.pth and its siblings) under the names and with the
/// shapes that the network has: "_fc.weight" becomes "_fc", transposed, "_conv_stem.weight" "_conv_stem".
nn::StateDict efficientnet_weights(const nn::StateDict& file);

}  // namespace tg::models
