/// \file ResNet and ResNeXt (He et al., "Deep Residual Learning for Image Recognition", arXiv 1512.03385; Xie et al.,
/// "Aggregated Residual Transformations for Deep Neural Networks", arXiv 1611.05431), with torchvision's names of
/// weights.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// The stages of a ResNet: how many blocks each has, and of which kind.
struct ResNetOptions {
  int64_t layers = 50;                ///< 18, 34, 50, 101 or 152
  int64_t classes = 1000;             ///< 0: no classifier; the network returns what its stages compute
  int64_t groups = 1;                 ///< groups of the 3x3 convolutions; more than 1 from 50 layers on
  int64_t width_per_group = 64;       ///< channels of a group in the first stage
  bool stride_in_first_conv = false;  ///< where a stage begins: halve the image in the 1x1 convolution, not in the 3x3
};

/// A block of two 3x3 convolutions, or of a 3x3 convolution between two 1x1, around a shortcut; the shortcut is a 1x1
/// convolution where the shape changes. (batch, channels, height, width) -> the same with other sizes.
struct ResNetBlock {
  nn::Conv2d conv1;
  nn::BatchNorm bn1;
  nn::Conv2d conv2;
  nn::BatchNorm bn2;
  std::optional<nn::Conv2d> conv3;
  std::optional<nn::BatchNorm> bn3;
  std::optional<std::pair<nn::Conv2d, nn::BatchNorm>> downsample;
  /// Makes a block of `planes` channels behind `in_planes` channels; its stride is that of its first image.
  ResNetBlock(int64_t in_planes, int64_t planes, int64_t stride, const ResNetOptions& o);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(conv1, bn1, conv2, bn2, conv3, bn3, downsample)
};

/// ResNet: images (batch, 3, height, width) -> (batch, classes) logits.
struct ResNet {
  nn::Conv2d conv1{3, 64, 7, {.stride = 2, .padding = 3, .bias = false}};
  nn::BatchNorm bn1{64};
  std::vector<ResNetBlock> layer1, layer2, layer3, layer4;
  std::optional<nn::Linear> fc;
  /// Makes the network with random weights. ValueError for a number of layers that is not one of the five, and for
  /// groups below 50 layers.
  explicit ResNet(const ResNetOptions& o = {});
  Tensor operator()(const Tensor& images) const;
  /// Returns the results of the four stages, with 1/4 to 1/32 of the image's height and width.
  Tensors features(const Tensor& images) const;
  TG_STATE(conv1, bn1, layer1, layer2, layer3, layer4, fc)
};

inline ResNet resnet18(int64_t classes = 1000) { return ResNet({.layers = 18, .classes = classes}); }
inline ResNet resnet34(int64_t classes = 1000) { return ResNet({.layers = 34, .classes = classes}); }
inline ResNet resnet50(int64_t classes = 1000) { return ResNet({.layers = 50, .classes = classes}); }
inline ResNet resnet101(int64_t classes = 1000) { return ResNet({.layers = 101, .classes = classes}); }
inline ResNet resnet152(int64_t classes = 1000) { return ResNet({.layers = 152, .classes = classes}); }
inline ResNet resnext50_32x4d(int64_t classes = 1000) {
  return ResNet({.layers = 50, .classes = classes, .groups = 32, .width_per_group = 4});
}

}  // namespace tg::models
