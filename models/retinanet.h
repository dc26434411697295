/// \file RetinaNet (Lin et al., "Focal Loss for Dense Object Detection", arXiv 1708.02002).
#pragma once
#include <array>
#include <string>
#include <vector>

#include "models/anchors.h"
#include "models/detection.h"
#include "models/fpn.h"
#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Computes -alpha (1 - p)^gamma log(p) for the probability p of what is true, elementwise, of logits and of targets 0
/// or 1; what is not true has the factor 1 - alpha instead. The type is that of logits and targets together.
Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& targets, double alpha = 0.25, double gamma = 2);

struct RetinaNetOptions {
  ResNetOptions backbone = {.layers = 50};
  int64_t classes = 264;
  std::vector<double> ratios = {0.5, 1, 2};  ///< of the heights of anchors to their widths
  /// The sides of square anchors of each level; there are larger ones besides, by 2^(1/3) and 2^(2/3).
  std::array<double, 5> sizes = {32, 64, 128, 256, 512};
};

/// Four convolutions with ReLU and a last one, for each level alike.
struct RetinaNetBranch {
  std::vector<nn::Conv2d> conv;
  nn::Conv2d last;
  std::string last_name;
  int64_t values;  ///< of an anchor
  RetinaNetBranch(int64_t channels, int64_t anchors, int64_t values_of_anchor, std::string name);
  /// Returns (batch, anchors of all levels, values).
  Tensor operator()(const Tensors& levels) const;
  void visit_state(nn::StateVisitor& visitor) const;
};
struct RetinaNetHead {
  RetinaNetBranch classification_head, regression_head;
  RetinaNetHead(int64_t channels, int64_t anchors, int64_t classes);
  TG_STATE(classification_head, regression_head)
};

struct RetinaNetDetectOptions {
  double score_threshold = 0.05;
  int64_t candidates = 1000;  ///< the best of each level
  double iou_threshold = 0.5;
  int64_t max_detections = 300;
};

/// RetinaNet: images (batch, 3, height, width) -> (batch, anchors, 4 + classes): the box next to the anchor, as
/// BoxCoder describes it, and the probability of each class.
struct RetinaNet {
  struct Losses {
    Tensor classification, regression;  ///< scalars
  };
  ResNetPyramid backbone;
  RetinaNetHead head;
  RetinaNetOptions options;
  /// Makes the network with random weights.
  explicit RetinaNet(const RetinaNetOptions& o = {});
  Tensor operator()(const Tensor& images) const;
  /// Returns the losses of a batch, means over its images: the focal loss of the classes of clear anchors, and the
  /// distance of the boxes of anchors that show an object, both divided by the number of those. ValueError unless there
  /// are targets for each image.
  Losses losses(const Tensor& images, const std::vector<ObjectTargets>& targets) const;
  /// Returns the anchors of each level for images of a size: (n, 4).
  Tensors anchors(int64_t height, int64_t width) const;
  /// Returns the objects in what the network computed of images of a size, the best of each image first. Computed at
  /// once. ShapeError for predictions of images of another size.
  std::vector<std::vector<Detection>> detections(const Tensor& predictions, int64_t height, int64_t width,
                                                 const RetinaNetDetectOptions& o = {}) const;
  TG_STATE(backbone, head)
};

/// Returns the tensors of a published file (retinanet_resnet50_fpn_coco-eeacb38b.pth, or one of a newer torchvision,
/// where convolutions are "inner_blocks.0.0.weight") under the names that the network has. Norms of files that do not
/// count their batches get a count of 0.
nn::StateDict retinanet_weights(const nn::StateDict& file);

}  // namespace tg::models
