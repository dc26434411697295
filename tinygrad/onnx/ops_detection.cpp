/// \file Regions of images: their features, and which of them overlap.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tinygrad/onnx/node_context.h"
#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// A box by its corners.
struct Box {
  double y1, x1, y2, x2;
  double area() const { return (y2 - y1) * (x2 - x1); }
};

Box box_at(const HostArray& boxes, size_t i, bool by_center) {
  const auto v = [&](size_t k) { return boxes.number(4 * i + k); };
  if (by_center) return {v(1) - v(3) / 2, v(0) - v(2) / 2, v(1) + v(3) / 2, v(0) + v(2) / 2};
  return {std::min(v(0), v(2)), std::min(v(1), v(3)), std::max(v(0), v(2)), std::max(v(1), v(3))};
}

double overlap(const Box& a, const Box& b) {
  const double h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1), w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (h <= 0 || w <= 0) return 0;
  const double common = h * w, all = a.area() + b.area() - common;
  return all > 0 ? common / all : 0;
}

/// Keeps the boxes with the best scores that overlap no better one; the host compares them.
Values non_max_suppression(NodeContext& c) {
  const HostRef boxes = c.data(0), scores = c.data(1);
  const int64_t most = c.integer_or(2, 0);
  const double limit = c.number_or(3, 0), least = c.number_or(4, -INFINITY);
  const bool by_center = c.attr("center_point_box", int64_t{0}) == 1;
  const auto batches = static_cast<size_t>(scores->shape.at(0)), classes = static_cast<size_t>(scores->shape.at(1)),
             count = static_cast<size_t>(scores->shape.at(2));
  c.check(scores->shape.size() == 3 && boxes->shape == std::vector<int64_t>{scores->shape[0], scores->shape[2], 4},
          "got boxes and scores of different sizes");
  std::vector<int64_t> out;
  for (size_t b = 0; b < batches; b++)
    for (size_t k = 0; k < classes; k++) {
      const auto score = [&](size_t i) { return scores->number((b * classes + k) * count + i); };
      std::vector<size_t> order;
      for (size_t i = 0; i < count; i++)
        if (score(i) > least) order.push_back(i);
      std::ranges::stable_sort(order, [&](size_t x, size_t y) { return score(x) > score(y); });
      std::vector<Box> kept;
      for (const size_t i : order) {
        if (static_cast<int64_t>(kept.size()) >= most) break;
        const Box box = box_at(*boxes, b * count + i, by_center);
        if (std::ranges::any_of(kept, [&](const Box& other) { return overlap(box, other) > limit; })) continue;
        kept.push_back(box);
        out.insert(out.end(), {static_cast<int64_t>(b), static_cast<int64_t>(k), static_cast<int64_t>(i)});
      }
    }
  return {Tensor::from(out, {static_cast<int64_t>(out.size()) / 3, 3}, {.device = c.device()})};
}

/// One sample of a region: four elements of an image and their weights.
struct Corners {
  int64_t at[4];
  double weight[4];
};
Corners corners_at(double y, double x, int64_t height, int64_t width) {
  if (y < -1 || y > static_cast<double>(height) || x < -1 || x > static_cast<double>(width))
    return {{0, 0, 0, 0}, {0, 0, 0, 0}};
  y = std::max(y, 0.0);
  x = std::max(x, 0.0);
  const auto low = [](double& v, int64_t n) {
    const auto i = std::min(whole(v), n - 1);
    if (i == n - 1) v = static_cast<double>(i);
    return i;
  };
  const int64_t y0 = low(y, height), x0 = low(x, width), y1 = std::min(y0 + 1, height - 1),
                x1 = std::min(x0 + 1, width - 1);
  const double ly = y - static_cast<double>(y0), lx = x - static_cast<double>(x0);
  return {{y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1},
          {(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx}};
}

/// Most samples of a region.
constexpr int64_t kMostSamples = 1 << 22;

/// The samples of all cells of a region; each cell has as many, unused ones weigh nothing.
struct RegionSamples {
  std::vector<Corners> samples;  ///< cell by cell
  int64_t per_cell = 0;
};
RegionSamples region_samples(const NodeContext& c, const HostArray& rois, size_t r, int64_t height, int64_t width) {
  const int64_t rows = c.attr("output_height", int64_t{1}), columns = c.attr("output_width", int64_t{1});
  const double scale = c.attr("spatial_scale", 1.0);
  const bool half =
      c.attr("coordinate_transformation_mode", c.opset() >= 16 ? "half_pixel" : "output_half_pixel") == "half_pixel";
  const auto v = [&](size_t k) { return rois.number(4 * r + k) * scale - (half ? 0.5 : 0); };
  double w = v(2) - v(0), h = v(3) - v(1);
  if (!half) {
    w = std::max(w, 1.0);
    h = std::max(h, 1.0);
  }
  const double cell_h = h / static_cast<double>(rows), cell_w = w / static_cast<double>(columns);
  const int64_t ratio = c.attr("sampling_ratio", int64_t{0});
  const auto cells = [](double size) { return std::max(whole(std::ceil(size)), int64_t{0}); };
  const int64_t ny = ratio > 0 ? ratio : cells(cell_h), nx = ratio > 0 ? ratio : cells(cell_w);
  c.check(rows > 0 && columns > 0 && rows < 4096 && columns < 4096 && ny < 4096 && nx < 4096 &&
              rows * columns * ny * nx < kMostSamples,
          "a region has ", rows, " x ", columns, " cells of ", ny, " x ", nx, " samples");
  c.run().count_bytes(rows * columns * ny * nx, sizeof(Corners));
  RegionSamples out{{}, ny * nx};
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      for (int64_t a = 0; a < ny; a++)
        for (int64_t b = 0; b < nx; b++)
          out.samples.push_back(corners_at(
              v(1) + cell_h * (static_cast<double>(i) + (static_cast<double>(a) + 0.5) / static_cast<double>(ny)),
              v(0) + cell_w * (static_cast<double>(j) + (static_cast<double>(b) + 0.5) / static_cast<double>(nx)),
              height, width));
  return out;
}

/// Mean or maximum of samples in each cell of regions; where the samples lie is computed on the host.
Values roi_align(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const HostRef rois = c.data(1);
  const std::vector<int64_t> batch = c.ints(2);
  const int64_t height = x.shape(2), width = x.shape(3), channels = x.shape(1);
  const int64_t rows = c.attr("output_height", int64_t{1}), columns = c.attr("output_width", int64_t{1});
  const bool max = c.choice("mode", "avg", {"avg", "max"}) == "max";
  const Tensor flat = x.reshape(Shape{x.shape()[0], channels, height * width});
  Tensors out;
  for (size_t r = 0; r < batch.size(); r++) {
    const RegionSamples s = region_samples(c, *rois, r, height, width);
    std::vector<int64_t> index;
    std::vector<double> weight;
    for (const Corners& k : s.samples) {
      index.insert(index.end(), std::begin(k.at), std::end(k.at));
      weight.insert(weight.end(), std::begin(k.weight), std::end(k.weight));
    }
    const Shape cells{channels, rows, columns, s.per_cell, 4};
    const Tensor image = flat.slice(0, batch[r], batch[r] + 1).squeeze(0);
    const Tensor corners =
        image.index({Index(Slice()), Index(Tensor::from(index, {.device = c.device()}))}).reshape(cells) *
        Tensor::from(weight, {.device = c.device()}).cast(x.dtype()).reshape(Shape{1, rows, columns, s.per_cell, 4});
    out.push_back(max ? corners.max({3, 4})
                      : corners.sum({3, 4}) / static_cast<double>(std::max<int64_t>(s.per_cell, 1)));
  }
  if (out.empty())
    return {Tensor::zeros(Shape{0, channels, rows, columns}, {.dtype = x.dtype(), .device = c.device()})};
  return {Tensor::stack(out, 0).cast(x.dtype())};
}

const OperatorRow kRows[] = {
    {"", "NonMaxSuppression", 10, non_max_suppression},
    {"", "RoiAlign", 10, roi_align},
};

}  // namespace

OperatorRows detection_operators() { return kRows; }

}  // namespace tg::onnx
