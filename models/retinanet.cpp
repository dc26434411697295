/// \file Forward passes, losses and detections of RetinaNet.
#include "models/retinanet.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

constexpr int kSizes = 3;  // of anchors of a ratio on a level

int64_t anchors_of_place(const RetinaNetOptions& o) { return std::ssize(o.ratios) * kSizes; }

nn::Conv2d small_conv(int64_t in, int64_t out, double bias = 0) {
  nn::Conv2d c(in, out, 3, {.padding = 1});
  c.weight = Tensor::normal(c.weight.shape(), {.std = 0.01});
  c.bias = Tensor::full({out}, bias);
  return c;
}

Tensor classification_loss(const Tensor& logits, const ObjectTargets& target, const Tensor& matches) {
  const Tensor object = matches >= 0;
  Tensor truth = logits.zeros_like();
  if (target.labels.shape(0) > 0) {
    const Tensor labels = target.labels[matches.maximum(0)];
    truth = (labels.unsqueeze(1) == Tensor::arange(logits.shape(1))) & object.unsqueeze(1);
  }
  const Tensor loss = sigmoid_focal_loss(logits, truth.cast(logits.dtype()));
  return (matches != kUnclear).unsqueeze(1).where(loss, 0).sum() / object.sum().maximum(1);
}

Tensor regression_loss(const Tensor& offsets, const ObjectTargets& target, const Tensor& anchors,
                       const Tensor& matches) {
  if (target.boxes.shape(0) == 0) return offsets.sum() * 0;
  const Tensor object = matches >= 0;
  const Tensor wanted = BoxCoder{}.encode(target.boxes[matches.maximum(0)], anchors);
  return object.unsqueeze(1).where(offsets - wanted, 0).abs().sum() / object.sum().maximum(1);
}

/// Returns the best objects of one level: `boxes` are those of its anchors, `scores` has the classes of one anchor
/// after those of the other.
std::vector<Detection> best(const std::vector<Box>& boxes, const std::vector<float>& scores,
                            const RetinaNetDetectOptions& o) {
  std::vector<size_t> order;
  for (size_t i = 0; i < scores.size(); i++)
    if (scores[i] > o.score_threshold) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return scores[i] > scores[j]; });
  order.resize(std::min(order.size(), static_cast<size_t>(o.candidates)));
  std::vector<Detection> out;
  const size_t classes = boxes.empty() ? 1 : scores.size() / boxes.size();
  for (const size_t i : order) out.push_back({boxes[i / classes], scores[i], static_cast<int64_t>(i % classes)});
  return out;
}

Tensor clipped(const Tensor& boxes, int64_t height, int64_t width) {
  const Tensor limits = Tensor::constants({width, height, width, height}, dtypes::float32);
  return boxes.maximum(0).minimum(limits);
}

/// Returns the name of a convolution's weight without the number that it has in a sequence with its activation.
std::string without_wrapper(const std::string& name) {
  for (const std::string_view list : {".inner_blocks.", ".layer_blocks.", ".conv."}) {
    const size_t found = name.find(list);
    if (found == std::string::npos) continue;
    const size_t number = found + list.size(), end = std::min(name.find('.', number), name.size());
    const std::string digits = name.substr(number, end - number);
    const bool counts = digits.size() == 1 && digits[0] >= '0' && digits[0] <= '9';
    if (!counts || name.compare(end, 3, ".0.") != 0) return name;
    // The published file counts the activations of a head as layers.
    const int64_t place = (digits[0] - '0') * (list == ".conv." ? 2 : 1);
    return str(name.substr(0, number), place, name.substr(end + 2));
  }
  return name;
}

}  // namespace

Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& targets, double alpha, double gamma) {
  const Tensor p = logits.sigmoid();
  const Tensor wrong = p * (1 - targets) + (1 - p) * targets;
  const Tensor weight = targets * alpha + (1 - targets) * (1 - alpha);
  return weight * wrong.pow(gamma) * logits.binary_crossentropy_logits(targets, Reduction::kNone);
}

RetinaNetBranch::RetinaNetBranch(int64_t channels, int64_t anchors, int64_t values_of_anchor, std::string name)
    : last(small_conv(channels, anchors * values_of_anchor)), last_name(std::move(name)), values(values_of_anchor) {
  for (int i = 0; i < 4; i++) conv.push_back(small_conv(channels, channels));
}

Tensor RetinaNetBranch::operator()(const Tensors& levels) const {
  Tensors out;
  for (Tensor x : levels) {
    for (const nn::Conv2d& c : conv) x = c(x).relu();
    out.push_back(last(x).permute(0, 2, 3, 1).reshape(x.shape(0), -1, values));
  }
  return Tensor::cat(out, 1);
}

void RetinaNetBranch::visit_state(nn::StateVisitor& visitor) const {
  for (size_t i = 0; i < conv.size(); i++) visitor.member(str("conv.", 2 * i), conv[i]);
  visitor.member(last_name, last);
}

RetinaNetHead::RetinaNetHead(int64_t channels, int64_t anchors, int64_t classes)
    : classification_head(channels, anchors, classes, "cls_logits"), regression_head(channels, anchors, 4, "bbox_reg") {
  // Classes are as improbable at first as they are among all anchors.
  classification_head.last.bias = Tensor::full({anchors * classes}, -std::log(99.0));
}

RetinaNet::RetinaNet(const RetinaNetOptions& o)
    : backbone(o.backbone, 1, FeaturePyramid::Top::kConvolutions),
      head(ResNetPyramid::kChannels, anchors_of_place(o), o.classes),
      options(o) {}

Tensor RetinaNet::operator()(const Tensor& images) const {
  const Tensors levels = backbone(images);
  return head.regression_head(levels).cat(head.classification_head(levels).sigmoid(), 2);
}

RetinaNet::Losses RetinaNet::losses(const Tensor& images, const std::vector<ObjectTargets>& targets) const {
  TG_CHECK(ValueError, std::ssize(targets) == images.shape(0), "[RetinaNet] got targets of ", targets.size(),
           " images, expected ", images.shape(0));
  const Tensors levels = backbone(images);
  const Tensor logits = head.classification_head(levels).to_float(), offsets = head.regression_head(levels);
  const Tensor all = Tensor::cat(anchors(images.shape(2), images.shape(3)));
  Tensors classification, regression;
  for (size_t i = 0; i < targets.size(); i++) {
    const Tensor matches = match_anchors(targets[i].boxes, all);
    const int64_t image = static_cast<int64_t>(i);
    classification.push_back(classification_loss(logits[image], targets[i], matches));
    regression.push_back(regression_loss(offsets[image], targets[i], all, matches));
  }
  return {Tensor::stack(classification).mean(), Tensor::stack(regression).mean()};
}

Tensors RetinaNet::anchors(int64_t height, int64_t width) const {
  Tensors out;
  int64_t reduction = 8;
  for (const double size : options.sizes) {
    std::vector<double> sizes;
    for (int i = 0; i < kSizes; i++) sizes.push_back(std::floor(size * std::exp2(i / 3.0)));
    const std::array<int64_t, 2> grid{(height + reduction - 1) / reduction, (width + reduction - 1) / reduction};
    out.push_back(grid_anchors(cell_anchors(sizes, options.ratios), grid, {height / grid[0], width / grid[1]}));
    reduction *= 2;
  }
  return out;
}

std::vector<std::vector<Detection>> RetinaNet::detections(const Tensor& predictions, int64_t height, int64_t width,
                                                          const RetinaNetDetectOptions& o) const {
  const Tensors levels = anchors(height, width);
  std::vector<int64_t> counts;
  for (const Tensor& level : levels) counts.push_back(level.shape(0));
  const Shape shape = predictions.shape();
  TG_CHECK(ShapeError, shape.size() == 3 && shape[1] == std::reduce(counts.begin(), counts.end()),
           "[RetinaNet] got predictions ", shape, ", expected (batch, ", std::reduce(counts.begin(), counts.end()),
           ", 4 + classes)");
  std::vector<std::vector<Detection>> out;
  for (int64_t image = 0; image < predictions.shape(0); image++) {
    std::vector<Detection> found;
    const Tensors parts = predictions[image].split(counts, 0);
    for (size_t i = 0; i < levels.size(); i++) {
      const Tensor boxes = BoxCoder{}.decode(parts[i](Slice(), Slice(4)), levels[i]);
      const std::vector<Detection> of_level =
          best(box_rows(clipped(boxes, height, width)), parts[i](Slice(), Slice(4, None)).to_vector<float>(), o);
      found.insert(found.end(), of_level.begin(), of_level.end());
    }
    found = suppressed(found, o.iou_threshold);
    found.resize(std::min(found.size(), static_cast<size_t>(o.max_detections)));
    out.push_back(std::move(found));
  }
  return out;
}

nn::StateDict retinanet_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    out.emplace_back(without_wrapper(name), t);
    constexpr std::string_view mean = "running_mean";
    if (!name.ends_with(mean)) continue;
    const std::string count = name.substr(0, name.size() - mean.size()) + "num_batches_tracked";
    if (!file.contains(count)) out.emplace_back(count, Tensor::zeros({}, dtypes::int64));
  }
  return out;
}

}  // namespace tg::models
