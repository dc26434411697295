/// \file Forward passes of Mask R-CNN.
#include "models/mask_rcnn.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "models/anchors.h"
#include "models/roi_align.h"
#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

using Size = std::array<int64_t, 2>;
using Regions = std::vector<std::vector<Detection>>;  // of each image

constexpr int64_t kFirstStride = 4;

/// Returns the anchors around the middle of a square of `stride` pixels, (ratios, 4): sides are rounded for a square of
/// the stride, and then scaled.
Tensor cells(double stride, double size, const std::vector<double>& ratios) {
  std::vector<float> out;
  const double middle = (stride - 1) / 2;
  for (const double ratio : ratios) {
    const double width = std::nearbyint(std::sqrt(stride * stride / ratio));
    const double height = std::nearbyint(width * ratio);
    const double right = (width * size / stride - 1) / 2, bottom = (height * size / stride - 1) / 2;
    for (const double corner : {middle - right, middle - bottom, middle + right, middle + bottom})
      out.push_back(static_cast<float>(corner));
  }
  return Tensor::from(out, {std::ssize(ratios), 4});
}

/// Moves boxes (..., 4) into an image.
Tensor clipped(const Tensor& boxes, const Size& size) {
  const int64_t right = size[1] - 1, bottom = size[0] - 1;
  return boxes.maximum(0).minimum(Tensor::constants({right, bottom, right, bottom}, dtypes::float32));
}

void keep_best(std::vector<Detection>& found, int64_t count) {
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  if (std::ssize(found) > count) found.resize(static_cast<size_t>(count));
}

int64_t count(const Regions& regions) {
  int64_t sum = 0;
  for (const auto& of_image : regions) sum += std::ssize(of_image);
  return sum;
}

/// Samples the regions of all images.
Tensor sampled(const Tensors& levels, const Regions& regions, int64_t size) {
  std::vector<float> boxes;
  std::vector<int32_t> images;
  for (size_t i = 0; i < regions.size(); i++)
    for (const Detection& d : regions[i]) {
      for (const double corner : d.box) boxes.push_back(static_cast<float>(corner));
      images.push_back(static_cast<int32_t>(i));
    }
  const Tensors pooled(levels.begin(), levels.begin() + 4);
  return roi_align(pooled, Tensor::from(boxes, {std::ssize(images), 4}), Tensor::from(images), {.size = size});
}

/// Returns the network's name of a published weight: "module.backbone.fpn.fpn_inner1.bias" is
/// "backbone.fpn.inner_blocks.0.bias".
std::string renamed(std::string name) {
  for (const std::string part : {"module.", "stem."})
    if (const size_t at = name.find(part); at != std::string::npos) name.erase(at, part.size());
  for (const std::string part : {"fpn_inner", "fpn_layer"}) {
    const size_t at = name.find(part), digit = at + part.size();
    if (at == std::string::npos || digit >= name.size() || name[digit] < '1' || name[digit] > '9') continue;
    name.replace(at, part.size() + 1, str(part.substr(4), "_blocks.", name[digit] - '1'));
  }
  return name;
}

}  // namespace

ImageList image_list(const Tensors& images) {
  TG_CHECK(ValueError, !images.empty(), "[image_list] got no images");
  Size most{0, 0};
  ImageList out;
  for (const Tensor& image : images) {
    TG_CHECK(ShapeError, image.ndim() == 3, "[image_list] got ", image.shape(), ", expected (3, height, width)");
    out.sizes.push_back({image.shape(1), image.shape(2)});
    for (size_t i = 0; i < 2; i++) most[i] = std::max(most[i], (out.sizes.back()[i] + 31) / 32 * 32);
  }
  Tensors padded;
  for (const Tensor& image : images) padded.push_back(image.pad_to({image.shape(0), most[0], most[1]}));
  out.images = Tensor::stack(padded);
  return out;
}

RPNHead::RPNHead(int64_t channels, int64_t anchors)
    : conv(channels, channels, 3, {.padding = 1}),
      cls_logits(channels, anchors, 1),
      bbox_pred(channels, anchors * 4, 1) {}

std::pair<Tensor, Tensor> RPNHead::operator()(const Tensor& level) const {
  const Tensor x = conv(level).relu();
  const int64_t batch = level.shape(0);
  return {cls_logits(x).permute(0, 2, 3, 1).reshape(batch, -1), bbox_pred(x).permute(0, 2, 3, 1).reshape(batch, -1, 4)};
}

RoIBoxHead::RoIBoxHead(int64_t channels, const MaskRCNNOptions& o)
    : feature_extractor{nn::Linear(channels * 7 * 7, o.hidden[0]), nn::Linear(o.hidden[0], o.hidden[0])},
      predictor{nn::Linear(o.hidden[0], o.classes), nn::Linear(o.hidden[0], o.classes * 4)} {}

std::pair<Tensor, Tensor> RoIBoxHead::operator()(const Tensor& regions) const {
  const Tensor x = feature_extractor.fc7(feature_extractor.fc6(regions.flatten(1)).relu()).relu();
  return {predictor.cls_score(x), predictor.bbox_pred(x).reshape(regions.shape(0), -1, 4)};
}

RoIMaskHead::RoIMaskHead(int64_t channels, const MaskRCNNOptions& o)
    : feature_extractor{nn::Conv2d(channels, o.hidden[1], 3, {.padding = 1}),
                        nn::Conv2d(o.hidden[1], o.hidden[1], 3, {.padding = 1}),
                        nn::Conv2d(o.hidden[1], o.hidden[1], 3, {.padding = 1}),
                        nn::Conv2d(o.hidden[1], o.hidden[1], 3, {.padding = 1})},
      predictor{nn::ConvTranspose2d(o.hidden[1], o.hidden[1], 2, {.stride = 2}),
                nn::Conv2d(o.hidden[1], o.classes, 1)} {}

Tensor RoIMaskHead::operator()(const Tensor& regions) const {
  const Features& f = feature_extractor;
  const Tensor x = f.mask_fcn4(f.mask_fcn3(f.mask_fcn2(f.mask_fcn1(regions).relu()).relu()).relu()).relu();
  return predictor.mask_fcn_logits(predictor.conv5_mask(x).relu());
}

MaskRCNN::MaskRCNN(const MaskRCNNOptions& o)
    : backbone(o.backbone, 0, FeaturePyramid::Top::kSubsample),
      rpn{RPNHead(ResNetPyramid::kChannels, std::ssize(o.ratios))},
      roi_heads{RoIBoxHead(ResNetPyramid::kChannels, o), RoIMaskHead(ResNetPyramid::kChannels, o)},
      options(o) {
  TG_CHECK(ValueError, o.sizes.size() == 5, "[MaskRCNN] got ", o.sizes.size(), " sizes of anchors, expected 5");
}

Tensors MaskRCNN::anchors(const std::vector<Size>& grids) const {
  Tensors out;
  int64_t stride = kFirstStride;
  for (size_t i = 0; i < grids.size(); i++) {
    const Tensor around = cells(static_cast<double>(stride), options.sizes[i], options.ratios);
    out.push_back(grid_anchors(around, grids[i], {stride, stride}));
    stride *= 2;
  }
  return out;
}

Regions MaskRCNN::proposals(const Tensors& levels, const std::vector<Size>& sizes) const {
  std::vector<Size> grids;
  for (const Tensor& level : levels) grids.push_back({level.shape(2), level.shape(3)});
  const Tensors all = anchors(grids);
  Regions out(sizes.size());
  for (size_t i = 0; i < levels.size(); i++) {
    const auto [logits, offsets] = rpn.head(levels[i]);
    const Tensor boxes = BoxCoder{.last_pixel = 1}.decode(offsets, all[i]);
    for (size_t k = 0; k < sizes.size(); k++) {
      const int64_t image = static_cast<int64_t>(k);
      const std::vector<Box> box = box_rows(clipped(boxes[image], sizes[k]));
      const std::vector<double> score = logits[image].sigmoid().to_vector<double>();
      std::vector<Detection> found;
      for (size_t n = 0; n < box.size(); n++) found.push_back({box[n], score[n], 0});
      keep_best(found, options.candidates);
      found = suppressed(found, options.proposal_iou, 1);
      out[k].insert(out[k].end(), found.begin(), found.end());
    }
  }
  for (std::vector<Detection>& of_image : out) keep_best(of_image, options.proposals);
  return out;
}

Regions MaskRCNN::objects(const Tensors& levels, const Regions& regions, const std::vector<Size>& sizes) const {
  const auto [logits, offsets] = roi_heads.box(sampled(levels, regions, 7));
  const std::vector<double> scores = logits.softmax(1).to_vector<double>();
  const BoxCoder coder{.weights = {10, 10, 5, 5}, .last_pixel = 1};
  const size_t classes = static_cast<size_t>(options.classes);
  Regions out;
  int64_t first = 0;
  for (size_t i = 0; i < regions.size(); i++) {
    std::vector<float> corners;
    for (const Detection& d : regions[i])
      for (const double corner : d.box) corners.push_back(static_cast<float>(corner));
    const int64_t n = std::ssize(regions[i]);
    const Tensor around = Tensor::from(corners, {n, 1, 4});
    const std::vector<Box> boxes =
        box_rows(clipped(coder.decode(offsets[Slice(first, first + n)], around), sizes[i]).flatten(0, 1));
    std::vector<Detection> found;
    for (size_t k = 0; k < boxes.size(); k++) {
      const double score = scores[static_cast<size_t>(first) * classes + k];
      if (k % classes != 0 && score > options.score_threshold)
        found.push_back({boxes[k], score, static_cast<int64_t>(k % classes)});
    }
    found = suppressed(found, options.object_iou, 1);
    keep_best(found, options.max_objects);
    out.push_back(std::move(found));
    first += n;
  }
  return out;
}

Tensor MaskRCNN::masks(const Tensors& levels, const Regions& found) const {
  std::vector<int64_t> labels;
  for (const auto& of_image : found)
    for (const Detection& d : of_image) labels.push_back(d.label);
  const Tensor logits = roi_heads.mask(sampled(levels, found, 14));
  const int64_t n = std::ssize(labels);
  const Tensor chosen = Tensor::from(labels).reshape(n, 1, 1, 1).expand(n, 1, logits.shape(2), logits.shape(3));
  return logits.gather(1, chosen).squeeze(1).sigmoid();
}

std::vector<MaskedObjects> MaskRCNN::operator()(const ImageList& list) const {
  const Tensor& images = list.images;
  TG_CHECK(ShapeError, images.ndim() == 4 && images.shape(2) % 32 == 0 && images.shape(3) % 32 == 0, "[MaskRCNN] got ",
           images.shape(), ", expected (batch, 3, height, width), sizes being multiples of 32");
  TG_CHECK(ValueError, std::ssize(list.sizes) == images.shape(0), "[MaskRCNN] got sizes of ", list.sizes.size(),
           " images, expected ", images.shape(0));
  const Tensors levels = backbone(images);
  realize(levels);
  const Regions found = objects(levels, proposals(levels, list.sizes), list.sizes);
  std::vector<MaskedObjects> out;
  const Tensor all = count(found) == 0 ? Tensor::zeros({0, 28, 28}) : masks(levels, found).realize();
  int64_t first = 0;
  for (const std::vector<Detection>& of_image : found) {
    const int64_t n = std::ssize(of_image);
    out.push_back({of_image, all[Slice(first, first + n)]});
    first += n;
  }
  return out;
}

nn::StateDict mask_rcnn_weights(const nn::StateDict& file) {
  nn::StateDict out;
  for (const auto& [published, t] : file) {
    if (published.find("cell_anchors") != std::string::npos) continue;
    out.emplace_back(renamed(published), t);
    constexpr std::string_view mean = "running_mean";
    if (!published.ends_with(mean)) continue;
    const std::string count = published.substr(0, published.size() - mean.size()) + "num_batches_tracked";
    if (!file.contains(count)) out.emplace_back(renamed(count), Tensor::zeros({}, dtypes::int64));
  }
  return out;
}

}  // namespace tg::models
