/// \file Internals of products and convolutions in the layouts of images.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::image {

/// Whether the product or convolution of two tensors is computed from images: IMAGE says so, or is not set and the
/// device reads images by default; both are float32 or float16, on one device, of sizes that are known.
bool are_wanted(const Tensor& x, const Tensor& w);

}  // namespace tg::image
