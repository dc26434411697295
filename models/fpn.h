/// \file Feature pyramids (Lin et al., "Feature Pyramid Networks for Object Detection", arXiv 1612.03144).
#pragma once
#include <optional>
#include <vector>

#include "models/resnet.h"
#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Two smaller levels behind the smallest one, by convolutions.
struct PyramidTop {
  nn::Conv2d p6, p7;
  explicit PyramidTop(int64_t channels);
  TG_STATE(p6, p7)
};

/// Joins what a network computes at several sizes: features (batch, channels[i], height / 2^i, width / 2^i) of falling
/// sizes -> levels of the same sizes and `out` channels, and smaller ones behind them.
struct FeaturePyramid {
  enum class Top : uint8_t {
    kConvolutions,  ///< two more levels, of PyramidTop
    kSubsample      ///< one more level: every second pixel of the last one
  };
  std::vector<nn::Conv2d> inner_blocks, layer_blocks;
  std::optional<PyramidTop> extra_blocks;
  FeaturePyramid(const std::vector<int64_t>& channels, int64_t out, Top top);
  Tensors operator()(const Tensors& features) const;
  TG_STATE(inner_blocks, layer_blocks, extra_blocks)
};

/// A ResNet and a pyramid of the results of its stages from `first_stage` (0 to 3) on, of 256 channels:
/// images (batch, 3, height, width) -> levels of 1 / (4 * 2^first_stage) of the size, 1/2 of that, and so on.
struct ResNetPyramid {
  static constexpr int64_t kChannels = 256;
  ResNet body;
  FeaturePyramid fpn;
  size_t first_stage;
  ResNetPyramid(ResNetOptions o, size_t first, FeaturePyramid::Top top);
  Tensors operator()(const Tensor& images) const;
  TG_STATE(body, fpn)
};

}  // namespace tg::models
