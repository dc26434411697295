/// \file Anchors of detectors.
#include "models/anchors.h"

#include <cmath>

#include "models/detection.h"
#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

/// Centre and size, both (..., 2).
struct Centered {
  Tensor middle, size;
};
Centered centered(const Tensor& boxes, double last_pixel) {
  const Tensors corners = boxes.chunk(2, -1);
  const Tensor size = corners[1] - corners[0] + last_pixel;
  return {corners[0] + size * 0.5, size};
}

Tensor pair(double first, double second) { return Tensor::constants({first, second}); }

}  // namespace

Tensor cell_anchors(const std::vector<double>& sizes, const std::vector<double>& ratios) {
  std::vector<double> out;
  for (const double ratio : ratios)
    for (const double size : sizes) {
      const double height = std::sqrt(ratio) * size, width = size / std::sqrt(ratio);
      for (const double corner : {-width, -height, width, height}) out.push_back(std::nearbyint(corner / 2));
    }
  return Tensor::from(out, {static_cast<int64_t>(out.size() / 4), 4}, {.dtype = dtypes::float32});
}

Tensor grid_anchors(const Tensor& cells, std::array<int64_t, 2> grid, std::array<int64_t, 2> stride) {
  const auto [rows, columns] = grid;
  const Tensor y = (Tensor::arange(rows) * stride[0]).reshape(rows, 1, 1).expand(rows, columns, 1);
  const Tensor x = (Tensor::arange(columns) * stride[1]).reshape(1, columns, 1).expand(rows, columns, 1);
  return (Tensor::cat({x, y, x, y}, 2).reshape(rows * columns, 1, 4) + cells).reshape(-1, 4);
}

Tensor BoxCoder::encode(const Tensor& boxes, const Tensor& anchors) const {
  const Centered box = centered(boxes, last_pixel), anchor = centered(anchors, last_pixel);
  return Tensor::cat({(box.middle - anchor.middle) / anchor.size * pair(weights[0], weights[1]),
                      (box.size / anchor.size).log() * pair(weights[2], weights[3])},
                     -1);
}

Tensor BoxCoder::decode(const Tensor& offsets, const Tensor& anchors) const {
  const Centered anchor = centered(anchors, last_pixel);
  const Tensors parts = offsets.chunk(2, -1);
  const Tensor middle = parts[0] / pair(weights[0], weights[1]) * anchor.size + anchor.middle;
  const Tensor growth = (parts[1] / pair(weights[2], weights[3])).clamp({}, std::log(1000.0 / 16));
  const Tensor half = growth.exp() * anchor.size * 0.5;
  return Tensor::cat({middle - half, middle + half - last_pixel}, -1);
}

Tensor match_anchors(const Tensor& boxes, const Tensor& anchors, const MatchOptions& o) {
  TG_CHECK(ValueError, o.low <= o.high, "[match_anchors] got low ", o.low, " above high ", o.high);
  if (boxes.shape(0) == 0) return Tensor::full({anchors.shape(0)}, kBackground, dtypes::int32);
  const Tensor iou = box_iou(boxes, anchors).detach().contiguous();
  const Tensor most = iou.max(0), best = iou.argmax(0).cast(dtypes::int32);
  const Tensor clear = (most < o.low).where(kBackground, (most < o.high).where(kUnclear, best));
  if (!o.keep_best) return clear;
  return (iou == iou.max(1, true)).any(0).where(best, clear);
}

}  // namespace tg::models
