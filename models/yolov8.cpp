/// \file Forward passes of YOLOv8.
#include "models/yolov8.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "models/detection.h"
#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

constexpr int64_t kNumbers = 16;  // that the distance to a side is a mean of
constexpr std::array<int64_t, 3> kStrides{8, 16, 32};

int64_t wide(double channels, const YOLOv8Options& o) { return static_cast<int64_t>(channels * o.width); }
/// Returns the channels of the last stage.
int64_t last(const YOLOv8Options& o) { return static_cast<int64_t>(512 * o.width * o.ratio); }
int64_t deep(double blocks, const YOLOv8Options& o) { return static_cast<int64_t>(std::nearbyint(blocks * o.depth)); }

std::vector<YOLOv8Head::Branch> branches(const std::vector<int64_t>& in, int64_t between, int64_t out) {
  std::vector<YOLOv8Head::Branch> made;
  for (const int64_t channels : in)
    made.emplace_back(YoloConv(channels, between, 3), YoloConv(between, between, 3), nn::Conv2d(between, out, 1));
  return made;
}

Tensor call(const YOLOv8Head::Branch& b, const Tensor& x) {
  return std::get<2>(b)(std::get<1>(b)(std::get<0>(b)(x))).flatten(2);
}

/// Returns the middles of the places of features, (2, places), and their strides, (1, places), in pixels.
std::pair<Tensor, Tensor> places(const Tensors& features) {
  Tensors middles, strides;
  for (size_t i = 0; i < features.size(); i++) {
    const int64_t h = features[i].shape(2), w = features[i].shape(3);
    const Tensor x = (Tensor::arange(w) + 0.5).reshape(1, w).expand(h, w);
    const Tensor y = (Tensor::arange(h) + 0.5).reshape(h, 1).expand(h, w);
    middles.push_back(Tensor::stack({x, y}).flatten(1));
    strides.push_back(Tensor::full({1, h * w}, static_cast<double>(kStrides[i])));
  }
  return {Tensor::cat(middles, 1), Tensor::cat(strides, 1)};
}

}  // namespace

YOLOv8Options yolov8_options(std::string_view variant, int64_t classes) {
  if (variant == "n") return {0.33, 0.25, 2.0, classes};
  if (variant == "s") return {0.33, 0.5, 2.0, classes};
  if (variant == "m") return {0.67, 0.75, 1.5, classes};
  if (variant == "l") return {1.0, 1.0, 1.0, classes};
  if (variant == "x") return {1.0, 1.25, 1.0, classes};
  throw ValueError(str("[yolov8_options] got \"", variant, "\", expected n, s, m, l or x"));
}

YoloConv::YoloConv(int64_t in, int64_t out, int64_t kernel, int64_t stride)
    : conv(in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false}),
      bn(out, {.eps = 1e-3, .momentum = 0.03}) {}

YoloBottleneck::YoloBottleneck(int64_t channels, bool with_shortcut)
    : cv1(channels, channels, 3), cv2(channels, channels, 3), shortcut(with_shortcut) {}

Tensor YoloBottleneck::operator()(const Tensor& x) const { return shortcut ? x + cv2(cv1(x)) : cv2(cv1(x)); }

YoloC2f::YoloC2f(int64_t in, int64_t out, int64_t blocks, bool shortcut)
    : cv1(in, out / 2 * 2), cv2((2 + blocks) * (out / 2), out) {
  for (int64_t i = 0; i < blocks; i++) bottleneck.emplace_back(out / 2, shortcut);
}

Tensor YoloC2f::operator()(const Tensor& x) const {
  Tensors parts = cv1(x).chunk(2, 1);
  for (const YoloBottleneck& block : bottleneck) parts.push_back(block(parts.back()));
  return cv2(Tensor::cat(parts, 1));
}

YoloSPPF::YoloSPPF(int64_t channels) : cv1(channels, channels / 2), cv2(channels / 2 * 4, channels) {}

Tensor YoloSPPF::operator()(const Tensor& x) const {
  Tensors parts{cv1(x)};
  for (int i = 0; i < 3; i++) parts.push_back(parts.back().max_pool2d({.kernel_size = 5, .stride = 1, .padding = 2}));
  return cv2(Tensor::cat(parts, 1));
}

YOLOv8Backbone::YOLOv8Backbone(const YOLOv8Options& o)
    : b1{YoloConv(3, wide(64, o), 3, 2), YoloConv(wide(64, o), wide(128, o), 3, 2)},
      b2{YoloC2f(wide(128, o), wide(128, o), deep(3, o), true), YoloConv(wide(128, o), wide(256, o), 3, 2),
         YoloC2f(wide(256, o), wide(256, o), deep(6, o), true)},
      b3{YoloConv(wide(256, o), wide(512, o), 3, 2), YoloC2f(wide(512, o), wide(512, o), deep(6, o), true)},
      b4{YoloConv(wide(512, o), last(o), 3, 2), YoloC2f(last(o), last(o), deep(3, o), true)},
      b5{YoloSPPF(last(o))} {}

Tensors YOLOv8Backbone::operator()(const Tensor& images) const {
  const Tensor p3 = std::get<2>(b2)(std::get<1>(b2)(std::get<0>(b2)(b1[1](b1[0](images)))));
  const Tensor p4 = b3.second(b3.first(p3));
  return {p3, p4, b5[0](b4.second(b4.first(p4)))};
}

YOLOv8Neck::YOLOv8Neck(const YOLOv8Options& o)
    : n1(wide(512, o) + last(o), wide(512, o), deep(3, o), false),
      n2(wide(768, o), wide(256, o), deep(3, o), false),
      n3(wide(256, o), wide(256, o), 3, 2),
      n4(wide(768, o), wide(512, o), deep(3, o), false),
      n5(wide(512, o), wide(512, o), 3, 2),
      n6(wide(512, o) + last(o), last(o), deep(3, o), false) {}

Tensors YOLOv8Neck::operator()(const Tensors& features) const {
  const Tensor x = n1(doubled(features[2]).cat(features[1], 1));
  const Tensor large = n2(doubled(x).cat(features[0], 1));
  const Tensor middle = n4(n3(large).cat(x, 1));
  return {large, middle, n6(n5(middle).cat(features[2], 1))};
}

YoloDFL::YoloDFL(int64_t numbers) : conv(numbers, 1, 1, {.bias = false}) {
  conv.weight = Tensor::arange(numbers).cast(conv.weight.dtype()).reshape(1, numbers, 1, 1);
}

Tensor YoloDFL::operator()(const Tensor& logits) const {
  const int64_t batch = logits.shape(0), anchors = logits.shape(2);
  return conv(logits.reshape(batch, 4, -1, anchors).transpose(1, 2).softmax(1)).reshape(batch, 4, anchors);
}

YOLOv8Head::YOLOv8Head(int64_t classes, const std::vector<int64_t>& channels)
    : dfl(kNumbers),
      cv3(branches(channels, std::max(channels[0], std::min<int64_t>(classes, 100)), classes)),
      cv2(branches(channels, std::max(channels[0] / 4, kNumbers * 4), kNumbers * 4)) {}

Tensor YOLOv8Head::operator()(const Tensors& features) const {
  Tensors distances, classes;
  for (size_t i = 0; i < features.size(); i++) {
    distances.push_back(call(cv2[i], features[i]));
    classes.push_back(call(cv3[i], features[i]));
  }
  const auto [middles, strides] = places(features);
  const Tensors sides = dfl(Tensor::cat(distances, 2)).chunk(2, 1);
  const Tensor first = middles - sides[0], second = middles + sides[1];
  const Tensor boxes = Tensor::cat({(first + second) / 2, second - first}, 1) * strides;
  return boxes.cat(Tensor::cat(classes, 2).sigmoid(), 1);
}

YOLOv8::YOLOv8(const YOLOv8Options& o) : net(o), fpn(o), head(o.classes, {wide(256, o), wide(512, o), last(o)}) {}

Tensor YOLOv8::operator()(const Tensor& images) const {
  TG_CHECK(ShapeError, images.ndim() == 4 && images.shape(2) % 32 == 0 && images.shape(3) % 32 == 0, "[YOLOv8] got ",
           images.shape(), ", expected (batch, 3, height, width), sizes being multiples of 32");
  return head(fpn(net(images)));
}

nn::StateDict yolov8_weights(const nn::StateDict& file) {
  constexpr std::array<std::string_view, 23> layers{
      "net.b1.0", "net.b1.1", "net.b2.0", "net.b2.1", "net.b2.2", "net.b3.0", "net.b3.1", "net.b4.0",
      "net.b4.1", "net.b5.0", "",         "",         "fpn.n1",   "",         "",         "fpn.n2",
      "fpn.n3",   "",         "fpn.n4",   "fpn.n5",   "",         "fpn.n6",   "head"};
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    const size_t dot = name.find('.', 6);
    const std::string number = name.starts_with("model.") && dot != std::string::npos ? name.substr(6, dot - 6) : "";
    size_t layer = 0;
    while (layer < layers.size() && (layers[layer].empty() || std::to_string(layer) != number)) layer++;
    if (layer == layers.size()) {
      out.emplace_back(name, t);
      continue;
    }
    std::string rest = name.substr(dot);
    if (rest.starts_with(".m.")) rest.replace(0, 3, ".bottleneck.");
    out.emplace_back(std::string(layers[layer]) + rest, t);
  }
  return out;
}

Tensor yolov8_detections(const Tensor& predictions, const YoloDetectOptions& o) {
  TG_CHECK(ShapeError, predictions.ndim() == 3 && predictions.shape(1) > 4, "[yolov8_detections] got ",
           predictions.shape(), ", expected (batch, 4 + classes, places)");
  const Tensor rows = predictions.transpose(1, 2);
  const Tensor classes = rows(Ellipsis, Slice(4, None));
  const Tensor best = classes.max(-1);
  const Tensor score = (best >= o.confidence).where(best, 0);
  const auto [kept, at] = score.topk(std::min(o.max_detections, score.shape(1)));
  const Tensor found =
      Tensor::cat({corners_of_centers(rows(Ellipsis, Slice(4))), classes.argmax(-1, true).cast(rows.dtype())}, -1);
  const Tensor chosen = found.gather(1, at.unsqueeze(-1).expand(-1, -1, 5));
  const Tensor boxes = chosen(Ellipsis, Slice(4)), label = chosen(Ellipsis, Slice(4, 5));
  const Tensor overlap = (box_iou(boxes, boxes) > o.iou_threshold) & (label == label.transpose(1, 2));
  const Tensor keep = (overlap.cast(dtypes::int32).triu(1).sum(1) == 0) & (kept > 0);
  return keep.unsqueeze(-1).where(Tensor::cat({boxes, kept.unsqueeze(-1), label}, -1), 0);
}

Letterbox letterbox(const Tensor& image, int64_t size) {
  TG_CHECK(ShapeError, image.ndim() == 3 && image.shape(2) == 3, "[letterbox] got ", image.shape(),
           ", expected (height, width, 3)");
  TG_CHECK(ValueError, size > 0 && size % 32 == 0, "[letterbox] got ", size, " pixels, expected a multiple of 32");
  const double h = static_cast<double>(image.shape(0)), w = static_cast<double>(image.shape(1));
  Letterbox out;
  out.factor = static_cast<double>(size) / std::max(h, w);
  const auto resized = [&](double side) { return static_cast<int64_t>(std::nearbyint(side * out.factor)); };
  const auto missing = [&](int64_t side) { return (size - side) % 32; };
  const int64_t rows = missing(resized(h)), columns = missing(resized(w));
  out.top = rows / 2;
  out.left = columns / 2;
  const Tensor channels = image.permute(2, 0, 1).unsqueeze(0).to_float();
  const Tensor scaled = channels.interpolate({resized(h), resized(w)});
  out.image =
      scaled.squeeze(0).pad(Ints{out.left, columns - out.left, out.top, rows - out.top}, {.value = 114.0}) / 255;
  return out;
}

Tensor unletterboxed(const Tensor& detections, const Letterbox& box, int64_t height, int64_t width) {
  const Tensors columns = detections.split(std::vector<int64_t>{1, 1, 1, 1, detections.shape(-1) - 4}, -1);
  const auto back = [&](const Tensor& t, int64_t before, int64_t most) {
    return ((t - before) / box.factor).clamp(0, most);
  };
  return Tensor::cat({back(columns[0], box.left, width), back(columns[1], box.top, height),
                      back(columns[2], box.left, width), back(columns[3], box.top, height), columns[4]},
                     -1);
}

}  // namespace tg::models
