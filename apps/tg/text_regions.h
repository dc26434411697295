/// \file Regions of a map of probabilities, as rectangles of any direction: where a picture has lines of text (Liao et
/// al., "Real-time Scene Text Detection with Differentiable Binarization", arXiv 1911.08947).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace tg::app {

struct Point {
  double x, y;
};

/// Corners of a rectangle, from the upper left one in the order of the clock as its text is read.
struct TextRegion {
  std::array<Point, 4> corners;
  double score;  ///< mean probability
  double width() const;
  double height() const;
};

struct RegionOptions {
  double threshold = 0.3;  ///< of the map
  double least_score = 0.5;
  double least_side = 3;  ///< in elements, before it grows
  double growth = 1.6;    ///< area by circumference, times this, is added on each side
};

/// Returns the rectangles of least area around the connected regions above the threshold, grown, from top to bottom and
/// left to right. `map` is row by row.
std::vector<TextRegion> text_regions(const std::vector<float>& map, int64_t height, int64_t width,
                                     const RegionOptions& o = {});

/// Returns the rectangle of least area around points, in the order of TextRegion::corners; `points` has one or more.
std::array<Point, 4> least_rectangle(std::vector<Point> points);

}  // namespace tg::app
