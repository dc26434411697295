/// \file Anchors: boxes spread over an image, which detectors move to objects, and the training targets for them. Boxes
/// are (x1, y1, x2, y2).
#pragma once
#include <array>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::models {

/// Returns boxes around (0, 0), rounded to whole numbers, of each size with each ratio of height to width, the sizes of
/// the first ratio first: (ratios * sizes, 4).
Tensor cell_anchors(const std::vector<double>& sizes, const std::vector<double>& ratios);
/// Moves boxes (n, 4) to each place of a grid, whose rows and columns are `stride` pixels apart:
/// (rows * columns * n, 4).
Tensor grid_anchors(const Tensor& cells, std::array<int64_t, 2> grid, std::array<int64_t, 2> stride);

/// How a box is described by four numbers next to an anchor: the distance of the centres in widths and heights of the
/// anchor, and the logarithms of the ratios of widths and heights, each times a weight.
struct BoxCoder {
  std::array<double, 4> weights = {1, 1, 1, 1};
  double last_pixel = 0;  ///< 1 where boxes include the pixels of their greatest coordinates
  /// Describes boxes (..., 4) next to anchors (..., 4): (..., 4).
  Tensor encode(const Tensor& boxes, const Tensor& anchors) const;
  /// Turns what describes boxes next to anchors (..., 4) into boxes: (..., 4). Boxes are at most 62.5 times as large as
  /// their anchors.
  Tensor decode(const Tensor& offsets, const Tensor& anchors) const;
};

/// The objects of an image: boxes (n, 4) and their classes (n), integers.
struct ObjectTargets {
  Tensor boxes, labels;
};
struct MatchOptions {
  double high = 0.5, low = 0.4;  ///< overlaps of objects, and of background
  bool keep_best = true;         ///< the anchors that overlap an object most are its, however little that is
};
/// What an anchor shows.
inline constexpr int64_t kBackground = -1, kUnclear = -2;
/// Returns for each anchor (m, 4) the number of the box (n, 4) that it overlaps most, or kBackground, or kUnclear where
/// the overlap is between low and high: (m), int32. All are background where there are no boxes. ValueError where low
/// is above high.
Tensor match_anchors(const Tensor& boxes, const Tensor& anchors, const MatchOptions& o = {});

}  // namespace tg::models
