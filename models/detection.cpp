/// \file Boxes of detectors.
#include "models/detection.h"

#include <algorithm>
#include <numeric>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

double area(const Box& b, double last) { return (b[2] - b[0] + last) * (b[3] - b[1] + last); }

double iou(const Box& a, const Box& b, double last) {
  const double width = std::min(a[2], b[2]) - std::max(a[0], b[0]) + last;
  const double height = std::min(a[3], b[3]) - std::max(a[1], b[1]) + last;
  if (width <= 0 || height <= 0) return 0;
  return width * height / (area(a, last) + area(b, last) - width * height);
}

/// Returns the numbers of the objects that are kept, in order.
std::vector<size_t> kept_objects(const std::vector<Detection>& objects, double threshold, double last) {
  std::vector<size_t> order(objects.size()), kept;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return objects[i].score > objects[j].score; });
  for (const size_t i : order) {
    const bool overlaps = std::any_of(kept.begin(), kept.end(), [&](size_t j) {
      return objects[i].label == objects[j].label && iou(objects[i].box, objects[j].box, last) > threshold;
    });
    if (!overlaps) kept.push_back(i);
  }
  return kept;
}

}  // namespace

Tensor doubled(const Tensor& x) {
  const int64_t n = x.shape(0), c = x.shape(1), h = x.shape(2), w = x.shape(3);
  return x.reshape(n, c, h, 1, w, 1).expand(n, c, h, 2, w, 2).reshape(n, c, 2 * h, 2 * w);
}

Tensor corners_of_centers(const Tensor& boxes) {
  const Tensors halves = boxes.chunk(2, -1);
  return Tensor::cat({halves[0] - halves[1] / 2, halves[0] + halves[1] / 2}, -1);
}

Tensor box_iou(const Tensor& a, const Tensor& b, double last_pixel) {
  const Tensor first = a.unsqueeze(-2), second = b.unsqueeze(-3);
  const auto low = [](const Tensor& t) { return t(Ellipsis, Slice(2)); };
  const auto high = [](const Tensor& t) { return t(Ellipsis, Slice(2, None)); };
  const auto area = [&](const Tensor& t) { return (high(t) - low(t) + last_pixel).prod(-1); };
  const Tensor sides = high(first).minimum(high(second)) - low(first).maximum(low(second)) + last_pixel;
  const Tensor shared = sides.maximum(0).prod(-1);
  return shared / (area(first) + area(second) - shared);
}

std::vector<int64_t> nms(const Tensor& boxes, const Tensor& scores, const NmsOptions& o) {
  TG_CHECK(ShapeError, boxes.ndim() == 2 && boxes.shape(1) == 4 && scores.shape() == (Shape{boxes.shape(0)}),
           "[nms] got boxes ", boxes.shape(), " and scores ", scores.shape(), ", expected (n, 4) and (n)");
  const size_t n = static_cast<size_t>(boxes.shape(0));
  TG_CHECK(ValueError, o.classes.empty() || o.classes.size() == n, "[nms] got ", o.classes.size(), " classes of ", n,
           " boxes");
  const std::vector<Box> box = box_rows(boxes);
  const std::vector<double> score = scores.to_vector<double>();
  std::vector<Detection> objects;
  for (size_t i = 0; i < n; i++) objects.push_back({box[i], score[i], o.classes.empty() ? 0 : o.classes[i]});
  const std::vector<size_t> kept = kept_objects(objects, o.iou_threshold, o.last_pixel);
  return {kept.begin(), kept.end()};
}

std::vector<Box> box_rows(const Tensor& boxes) {
  const std::vector<double> values = boxes.to_vector<double>();
  std::vector<Box> out(values.size() / 4);
  for (size_t i = 0; i < out.size(); i++) std::copy_n(&values[4 * i], 4, out[i].begin());
  return out;
}

std::vector<Detection> suppressed(const std::vector<Detection>& objects, double iou_threshold, double last_pixel) {
  std::vector<Detection> out;
  for (const size_t i : kept_objects(objects, iou_threshold, last_pixel)) out.push_back(objects[i]);
  return out;
}

}  // namespace tg::models
