/// \file Sampling of feature levels.
#include "models/roi_align.h"

#include <cmath>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/nn/nn.h"

namespace tg::models {
namespace {

/// Returns the number of the level for each box, (n), int32.
Tensor level_of(const Tensor& boxes, int64_t levels, const RoiAlignOptions& o) {
  const Tensor sides = boxes(Slice(), Slice(2, None)) - boxes(Slice(), Slice(2)) + 1;
  const Tensor level = ((sides.prod(1).sqrt() / 224 + 1e-6).log2() + std::log2(16 / o.first_stride)).floor();
  return level.clamp(0, levels - 1).cast(dtypes::int32);
}

/// Two pixels of an axis and the weight of the second one, all (n, points); `inside` is 0 for points that are more than
/// a pixel outside.
struct Interpolated {
  Tensor low, high, weight, inside;
};
/// Interpolates between `sizes` (n, 1) pixels at points (n, points).
Interpolated interpolated(const Tensor& points, const Tensor& sizes) {
  const Tensor last = sizes - 1;
  const Tensor at = points.maximum(0).minimum(last);
  const Tensor low = at.floor();
  const Tensor inside = ((points >= -1) & (points <= sizes)).cast(points.dtype());
  return {low.cast(dtypes::int32), (low + 1).minimum(last).cast(dtypes::int32), at - low, inside};
}

/// Returns the points of boxes along one axis, (n, size * sampling), in pixels of their level; `scale` is (n, 1).
Tensor points(const Tensor& boxes, int axis, const Tensor& scale, const RoiAlignOptions& o) {
  const Tensor first = boxes(Slice(), Slice(axis, axis + 1)) * scale;
  const Tensor side = (boxes(Slice(), Slice(axis + 2, axis + 3)) * scale - first).maximum(1);
  const int64_t count = o.size * o.sampling;
  return first + (Tensor::arange(count) + 0.5) / static_cast<double>(count) * side;
}

}  // namespace

Tensor roi_align(const Tensors& levels, const Tensor& boxes, const Tensor& images, const RoiAlignOptions& o) {
  TG_CHECK(ShapeError, boxes.ndim() == 2 && boxes.shape(1) == 4 && images.shape() == (Shape{boxes.shape(0)}),
           "[roi_align] got boxes ", boxes.shape(), " and images ", images.shape(), ", expected (n, 4) and (n)");
  Tensors rows;
  std::vector<int64_t> heights, widths, starts{0};
  std::vector<float> scales;
  for (const Tensor& level : levels) {
    rows.push_back(level.permute(0, 2, 3, 1).flatten(0, 2));
    heights.push_back(level.shape(2));
    widths.push_back(level.shape(3));
    scales.push_back(static_cast<float>(std::ldexp(1 / o.first_stride, -static_cast<int>(scales.size()))));
    starts.push_back(starts.back() + rows.back().shape(0));
  }
  const Tensor table = Tensor::cat(rows), level = level_of(boxes, std::ssize(levels), o).contiguous();
  const auto of_level = [&](const auto& values) { return Tensor::from(values)[level].unsqueeze(1); };
  const Tensor height = of_level(heights), width = of_level(widths), scale = of_level(scales);
  const Tensor start = of_level(starts) + images.unsqueeze(1) * height * width;
  const Interpolated y = interpolated(points(boxes, 1, scale, o), height);
  const Interpolated x = interpolated(points(boxes, 0, scale, o), width);
  const auto sampled = [&](const Tensor& row, const Tensor& column, const Tensor& wy, const Tensor& wx) {
    const Tensor at = (start + row * width).unsqueeze(2) + column.unsqueeze(1);
    const Tensor weight = (wy * y.inside).unsqueeze(2) * (wx * x.inside).unsqueeze(1);
    return nn::embedding(table, at) * weight.unsqueeze(3);
  };
  const Tensor sum = sampled(y.low, x.low, 1 - y.weight, 1 - x.weight) +
                     sampled(y.low, x.high, 1 - y.weight, x.weight) + sampled(y.high, x.low, y.weight, 1 - x.weight) +
                     sampled(y.high, x.high, y.weight, x.weight);
  const Shape parts{boxes.shape(0), o.size, o.sampling, o.size, o.sampling, table.shape(1)};
  return sum.reshape(parts).mean({2, 4}).permute(0, 3, 1, 2).cast(table.dtype());
}

}  // namespace tg::models
