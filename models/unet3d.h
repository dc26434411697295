/// \file 3-D U-Net (Cicek et al., "3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation", arXiv
/// 1606.06650), as MLPerf has it, with the names of its published file.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

struct UNet3DOptions {
  int64_t in_channels = 1, classes = 3;
  std::vector<int64_t> filters = {32, 64, 128, 256, 320};  ///< channels of each level, the largest volumes first
};

/// A 3x3x3 convolution without bias, and a norm of each channel of each sample.
using NormedConv3d = std::pair<nn::Conv2d, nn::InstanceNorm>;

/// Two convolutions, the first with a stride: (batch, in, depth, height, width) -> (batch, out, depth / stride, ...).
struct UNet3DDownsample {
  NormedConv3d conv1, conv2;
  UNet3DDownsample(int64_t in, int64_t out, int64_t stride = 2);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(conv1, conv2)
};

/// A transposed convolution that doubles the volume, and two convolutions of it and the volume of the same size on the
/// way down.
struct UNet3DUpsample {
  std::array<nn::ConvTranspose2d, 1> upsample_conv;
  NormedConv3d conv1, conv2;
  UNet3DUpsample(int64_t in, int64_t out);
  /// (batch, in, depth, height, width) and (batch, out, 2 depth, ...) -> the second one's shape.
  Tensor operator()(const Tensor& x, const Tensor& skip) const;
  TG_STATE(upsample_conv, conv1, conv2)
};

/// The last convolution: a value for each class at each point.
struct UNet3DOutput {
  nn::Conv2d conv;
  UNet3DOutput(int64_t in, int64_t classes) : conv(in, classes, Ints{1, 1, 1}) {}
  TG_STATE(conv)
};

/// UNet3D: volumes (batch, in_channels, depth, height, width) -> (batch, classes, depth, height, width) logits.
struct UNet3D {
  UNet3DDownsample input_block;
  std::vector<UNet3DDownsample> downsample;
  UNet3DDownsample bottleneck;
  std::vector<UNet3DUpsample> upsample;
  UNet3DOutput output;
  /// Makes the network with random weights. ValueError without filters.
  explicit UNet3D(const UNet3DOptions& o = {});
  /// Throws ShapeError unless depth, height and width are multiples of 2^levels: 32 as published.
  Tensor operator()(const Tensor& volumes) const;
  TG_STATE(input_block, downsample, bottleneck, upsample, output)
};

}  // namespace tg::models
