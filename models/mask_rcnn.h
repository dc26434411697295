/// \file Mask R-CNN (He et al., arXiv 1703.06870), as maskrcnn-benchmark published it: boxes include the pixels of
/// their greatest coordinates, class 0 is the background.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "models/detection.h"
#include "models/fpn.h"
#include "tinygrad/nn/nn.h"

namespace tg::models {

struct MaskRCNNOptions {
  ResNetOptions backbone = {.layers = 50, .stride_in_first_conv = true};
  int64_t classes = 81;                                 ///< the background among them
  std::vector<double> sizes = {32, 64, 128, 256, 512};  ///< of the square anchors of each level
  std::vector<double> ratios = {0.5, 1, 2};             ///< of the heights of anchors to their widths
  int64_t candidates = 1000;                            ///< the best boxes of each level
  int64_t proposals = 1000;                             ///< the best boxes of an image, of which objects are made
  double proposal_iou = 0.7;                            ///< a better proposal suppresses those that overlap it by more
  double score_threshold = 0.05, object_iou = 0.5;
  int64_t max_objects = 100;
  std::array<int64_t, 2> hidden = {1024, 256};  ///< features of a region before its class, and channels of its mask
};

/// Images that were padded to one size.
struct ImageList {
  Tensor images;                              ///< (batch, 3, height, width)
  std::vector<std::array<int64_t, 2>> sizes;  ///< height and width of each image without the zeros behind it
};
/// Pads images (3, height, width) with zeros at the right and at the bottom, to the greatest size among them, rounded
/// up to multiples of 32. ValueError for no images, ShapeError for other axes.
ImageList image_list(const Tensors& images);

/// What each place of a level says about each anchor: that it shows an object, and the box next to it.
struct RPNHead {
  nn::Conv2d conv, cls_logits, bbox_pred;
  RPNHead(int64_t channels, int64_t anchors);
  /// Returns logits (batch, anchors of the level) and boxes (batch, anchors of the level, 4) as BoxCoder describes
  /// them.
  std::pair<Tensor, Tensor> operator()(const Tensor& level) const;
  TG_STATE(conv, cls_logits, bbox_pred)
};
struct RPN {
  RPNHead head;
  TG_STATE(head)
};

/// Finds the class of a region, and its box next to the proposal for each class.
struct RoIBoxHead {
  struct Features {
    nn::Linear fc6, fc7;
    TG_STATE(fc6, fc7)
  } feature_extractor;
  struct Predictor {
    nn::Linear cls_score, bbox_pred;
    TG_STATE(cls_score, bbox_pred)
  } predictor;
  RoIBoxHead(int64_t channels, const MaskRCNNOptions& o);
  /// Returns logits (n, classes) and boxes (n, classes, 4) of regions (n, channels, 7, 7).
  std::pair<Tensor, Tensor> operator()(const Tensor& regions) const;
  TG_STATE(feature_extractor, predictor)
};

/// Finds the pixels of objects of each class in a region.
struct RoIMaskHead {
  struct Features {
    nn::Conv2d mask_fcn1, mask_fcn2, mask_fcn3, mask_fcn4;
    TG_STATE(mask_fcn1, mask_fcn2, mask_fcn3, mask_fcn4)
  } feature_extractor;
  struct Predictor {
    nn::ConvTranspose2d conv5_mask;
    nn::Conv2d mask_fcn_logits;
    TG_STATE(conv5_mask, mask_fcn_logits)
  } predictor;
  RoIMaskHead(int64_t channels, const MaskRCNNOptions& o);
  /// Returns logits (n, classes, 28, 28) of regions (n, channels, 14, 14).
  Tensor operator()(const Tensor& regions) const;
  TG_STATE(feature_extractor, predictor)
};

struct RoIHeads {
  RoIBoxHead box;
  RoIMaskHead mask;
  TG_STATE(box, mask)
};

/// The objects of an image, the best first, and for each the probabilities that the parts of its box belong to it.
struct MaskedObjects {
  std::vector<Detection> objects;
  Tensor masks;  ///< (objects, 28, 28)
};

/// Mask R-CNN: images -> objects with masks.
struct MaskRCNN {
  ResNetPyramid backbone;
  RPN rpn;
  RoIHeads roi_heads;
  MaskRCNNOptions options;
  /// Makes the network with random weights. ValueError unless there is a size for each of the five levels.
  explicit MaskRCNN(const MaskRCNNOptions& o = {});
  /// Computes the objects of each image. ShapeError unless the sizes of the padded images are multiples of 32,
  /// ValueError unless there is a size for each.
  std::vector<MaskedObjects> operator()(const ImageList& list) const;
  /// Returns the boxes of each image that may show an object, the most probable first, from the pyramid's levels.
  /// Computed at once.
  std::vector<std::vector<Detection>> proposals(const Tensors& levels,
                                                const std::vector<std::array<int64_t, 2>>& sizes) const;
  /// Returns the anchors of each level, (n, 4), of the given sizes of levels.
  Tensors anchors(const std::vector<std::array<int64_t, 2>>& grids) const;
  TG_STATE(backbone, rpn, roi_heads)

 private:
  std::vector<std::vector<Detection>> objects(const Tensors& levels, const std::vector<std::vector<Detection>>& regions,
                                              const std::vector<std::array<int64_t, 2>>& sizes) const;
  Tensor masks(const Tensors& levels, const std::vector<std::vector<Detection>>& found) const;
};

/// Returns the tensors of the published file (e2e_mask_rcnn_R_50_FPN_1x.pth) under the names that the network has,
/// without the anchors. Norms that do not count their batches get a count of 0.
nn::StateDict mask_rcnn_weights(const nn::StateDict& file);

}  // namespace tg::models
