/// \file What detectors of objects share: boxes, how much they overlap, suppression of those that overlap too much.
/// Boxes are (x1, y1, x2, y2), the corners of least and greatest coordinates.
#pragma once
#include <array>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::models {

/// Repeats each pixel twice along both axes: (batch, channels, height, width) -> (batch, channels, 2 height, 2 width).
Tensor doubled(const Tensor& x);

/// Turns centres and sizes (x, y, width, height) on the last axis into corners.
Tensor corners_of_centers(const Tensor& boxes);

/// Computes the area that two boxes share, divided by the area they cover together: (..., n, 4) and (..., m, 4) ->
/// (..., n, m). `last_pixel` is 1 where boxes include the pixels of their greatest coordinates, else 0.
Tensor box_iou(const Tensor& a, const Tensor& b, double last_pixel = 0);

struct NmsOptions {
  double iou_threshold = 0.5;
  double last_pixel = 0;              ///< as in box_iou
  std::vector<int64_t> classes = {};  ///< boxes of different classes do not suppress each other; empty: one class
};
/// Returns the numbers of the boxes (n, 4) that no better one of those returned overlaps by more than the threshold,
/// the greatest score (n) first. Computed at once. ShapeError for other shapes, ValueError for another number of
/// classes than boxes.
std::vector<int64_t> nms(const Tensor& boxes, const Tensor& scores, const NmsOptions& o = {});

using Box = std::array<double, 4>;
/// Returns the rows of a tensor (n, 4), computed at once.
std::vector<Box> box_rows(const Tensor& boxes);

/// An object that was found.
struct Detection {
  Box box;
  double score;
  int64_t label;
};
/// Returns the objects that no better one of those returned, of their label, overlaps by more than the threshold, the
/// greatest score first.
std::vector<Detection> suppressed(const std::vector<Detection>& objects, double iou_threshold, double last_pixel = 0);

}  // namespace tg::models
