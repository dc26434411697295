/// \file Values of images between their elements.
#pragma once
#include <string>

#include "tinygrad/tensor/tensor.h"

namespace tg::onnx {

enum class SampleMode : uint8_t { kNearest, kLinear, kCubic };
enum class Outside : uint8_t { kZeros, kBorder, kReflect };

/// Returns the values of `image`, (batch, channels, sizes...), at coordinates, one tensor (batch, 1, points) for each
/// spatial axis in elements: (batch, channels, points). Elements outside of the image are what `outside` says;
/// `corners`: reflection is at the centers of the outermost elements instead of their edges.
Tensor sample(const Tensor& image, const Tensors& at, SampleMode mode, Outside outside, bool corners = false);

}  // namespace tg::onnx
