/// \file ConvNeXt (Liu et al., "A ConvNet for the 2020s", arXiv 2201.03545), with the names of the published files.
#pragma once
#include <array>
#include <string_view>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

struct ConvNeXtOptions {
  int64_t input_channels = 3;
  int64_t classes = 1000;
  std::array<int64_t, 4> depths = {3, 3, 9, 3};       ///< blocks of each stage
  std::array<int64_t, 4> dims = {96, 192, 384, 768};  ///< channels of each stage
};

/// Returns the options of a published network: "tiny", "small", "base", "large" or "xlarge". ValueError for another
/// name.
ConvNeXtOptions convnext_options(std::string_view version);

/// A convolution of each channel and two linear layers between channels, around a shortcut:
/// (batch, dim, height, width) -> the same.
struct ConvNeXtBlock {
  nn::Conv2d dwconv;
  nn::LayerNorm norm;
  nn::Linear pwconv1, pwconv2;
  Tensor gamma;  ///< (dim): ones; the factor of each channel before the shortcut is added
  explicit ConvNeXtBlock(int64_t dim);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(dwconv, norm, pwconv1, pwconv2, gamma)
};

/// What makes images smaller before a stage: a convolution whose windows do not overlap, and a norm behind it in the
/// first stage, before it in the others.
struct ConvNeXtDownsample {
  nn::Conv2d conv;
  nn::LayerNorm2d norm;
  bool norm_first;
  ConvNeXtDownsample(int64_t in, int64_t out, int64_t stride, bool norm_first);
  Tensor operator()(const Tensor& x) const;
  void visit_state(nn::StateVisitor& visitor) const;
};

/// ConvNeXt: images (batch, input_channels, height, width), 32 pixels high and wide at least -> (batch, classes)
/// logits.
struct ConvNeXt {
  std::vector<ConvNeXtDownsample> downsample_layers;
  std::vector<std::vector<ConvNeXtBlock>> stages;
  nn::LayerNorm norm;
  nn::Linear head;
  /// Makes the network with random weights.
  explicit ConvNeXt(const ConvNeXtOptions& o = {});
  Tensor operator()(const Tensor& images) const;
  /// Returns the results of the four stages, with 1/4 to 1/32 of the image's height and width.
  Tensors features(const Tensor& images) const;
  TG_STATE(downsample_layers, stages, norm, head)
};

}  // namespace tg::models
