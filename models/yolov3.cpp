/// \file The layers of YOLOv3.
#include "models/yolov3.h"

#include <cmath>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

/// Collects layers.
class Layers {
 public:
  explicit Layers(const YOLOv3Options& o) : o_(o) {}
  void conv(int64_t filters, int64_t size, int64_t stride = 1) {
    add({.filters = scaled(filters), .size = size, .stride = stride, .batch_normalize = true, .leaky = true});
  }
  /// Adds a convolution that halves the image, and blocks of two convolutions around a shortcut.
  void stage(int64_t filters, int64_t blocks) {
    conv(filters, 3, 2);
    for (int64_t i = 0; i < blocks; i++) {
      conv(filters / 2, 1);
      conv(filters, 3);
      add({.kind = DarknetLayer::kShortcut, .from = {count() - 3}});
    }
  }
  /// Adds the convolutions of a head and the boxes of the anchors from number `first` on.
  void head(int64_t filters, size_t first) {
    for (int i = 0; i < 3; i++) {
      conv(filters, 1);
      conv(2 * filters, 3);
    }
    add({.filters = 3 * (5 + o_.classes)});
    add({.kind = DarknetLayer::kYolo,
         .anchors = {kAnchors[first], kAnchors[first + 1], kAnchors[first + 2]},
         .classes = o_.classes});
  }
  /// Goes on from the middle of the last head, doubled, beside what layer `other` saw.
  void upwards(int64_t filters, int64_t other) {
    add({.kind = DarknetLayer::kRoute, .from = {count() - 4}});
    conv(filters, 1);
    add({.kind = DarknetLayer::kUpsample, .stride = 2});
    add({.kind = DarknetLayer::kRoute, .from = {count() - 1, other}});
  }
  std::vector<DarknetLayer> take() { return std::move(layers_); }

 private:
  static constexpr std::array<std::pair<double, double>, 9> kAnchors{
      {{10, 13}, {16, 30}, {33, 23}, {30, 61}, {62, 45}, {59, 119}, {116, 90}, {156, 198}, {373, 326}}};
  int64_t count() const { return std::ssize(layers_); }
  int64_t scaled(int64_t filters) const { return static_cast<int64_t>(static_cast<double>(filters) * o_.width); }
  void add(const DarknetLayer& layer) { layers_.push_back(layer); }

  YOLOv3Options o_;
  std::vector<DarknetLayer> layers_;
};

}  // namespace

std::vector<DarknetLayer> yolov3_layers(const YOLOv3Options& o) {
  TG_CHECK(ValueError, o.width > 0 && std::floor(32 * o.width) == 32 * o.width, "[yolov3_layers] got width ", o.width,
           ", expected a multiple of 1/32");
  TG_CHECK(ValueError, o.classes > 0, "[yolov3_layers] got ", o.classes, " classes, expected one at least");
  Layers layers(o);
  layers.conv(32, 3);
  layers.stage(64, 1);
  layers.stage(128, 2);
  layers.stage(256, 8);
  layers.stage(512, 8);
  layers.stage(1024, 4);
  layers.head(512, 6);
  layers.upwards(256, 61);
  layers.head(256, 3);
  layers.upwards(128, 36);
  layers.head(128, 0);
  return layers.take();
}

std::vector<Detection> yolov3_detections(const Tensor& boxes, const YOLOv3DetectOptions& o) {
  TG_CHECK(ShapeError, boxes.ndim() == 2 && boxes.shape(1) > 5, "[yolov3_detections] got ", boxes.shape(),
           ", expected (boxes, 5 + classes)");
  const Tensor objects = boxes(Slice(), 4);
  const std::vector<int64_t> probable = (objects > o.confidence).nonzero().flatten().to_vector<int64_t>();
  if (probable.empty()) return {};
  const Tensor rows = boxes[Tensor(probable)].realize();
  const std::vector<Box> corners = box_rows(corners_of_centers(rows(Slice(), Slice(4))));
  const std::vector<double> scores = rows(Slice(), 4).to_vector<double>();
  const std::vector<int64_t> labels = rows(Slice(), Slice(5, None)).argmax(1).to_vector<int64_t>();
  std::vector<Detection> found;
  for (size_t i = 0; i < scores.size(); i++) found.push_back({corners[i], scores[i], labels[i]});
  return suppressed(found, o.iou_threshold, 1);
}

}  // namespace tg::models
