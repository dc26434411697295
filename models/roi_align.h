/// \file Features of regions of images (He et al., "Mask R-CNN", arXiv 1703.06870).
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::models {

struct RoiAlignOptions {
  int64_t size = 7;         ///< of the result
  int64_t sampling = 2;     ///< points along each side of a pixel of the result
  double first_stride = 4;  ///< pixels of the image that a pixel of the first level stands for
};
/// Samples regions of feature levels, each of which has half the size of the one before: levels
/// (batch, channels, height / 2^i, width / 2^i), boxes (n, 4) of corners in pixels of the image, and the number of the
/// image that each is in, (n), integers -> (n, channels, size, size), of the levels' type. A pixel is the mean of
/// points between which features are interpolated. Large boxes are sampled from small levels: those of 224 pixels from
/// the level of stride 16, as far as there is one. ShapeError for boxes and images of other shapes.
Tensor roi_align(const Tensors& levels, const Tensor& boxes, const Tensor& images, const RoiAlignOptions& o = {});

}  // namespace tg::models
