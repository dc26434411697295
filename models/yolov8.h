/// \file YOLOv8, a detector of objects without anchors (Jocher et al., 2023, github.com/ultralytics/ultralytics; blocks
/// from Redmon et al., arXiv 1506.02640, losses of distances from Li et al., arXiv 2006.04388).
#pragma once
#include <array>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// By how much a network is deeper and wider than the large one; the ratio is that of the last stage's channels to
/// those of the one before.
struct YOLOv8Options {
  double depth = 0.33, width = 0.25, ratio = 2.0;
  int64_t classes = 80;
};
/// Returns the options of a published network: "n", "s", "m", "l" or "x". ValueError for another name.
YOLOv8Options yolov8_options(std::string_view variant, int64_t classes = 80);

/// A convolution without bias, batch norm and SiLU: (batch, in, height, width) -> (batch, out, height / stride,
/// width / stride).
struct YoloConv {
  nn::Conv2d conv;
  nn::BatchNorm bn;
  YoloConv(int64_t in, int64_t out, int64_t kernel = 1, int64_t stride = 1);
  Tensor operator()(const Tensor& x) const { return bn(conv(x)).silu(); }
  TG_STATE(conv, bn)
};

/// Two 3x3 convolutions, around a shortcut if there is one; the shape stays.
struct YoloBottleneck {
  YoloConv cv1, cv2;
  bool shortcut;
  YoloBottleneck(int64_t channels, bool with_shortcut);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(cv1, cv2)
};

/// A chain of bottlenecks whose results are all joined: (batch, in, height, width) -> (batch, out, height, width).
struct YoloC2f {
  YoloConv cv1, cv2;
  std::vector<YoloBottleneck> bottleneck;
  YoloC2f(int64_t in, int64_t out, int64_t blocks, bool shortcut);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(cv1, cv2, bottleneck)
};

/// Maxima of neighbourhoods of three sizes, joined: the shape stays.
struct YoloSPPF {
  YoloConv cv1, cv2;
  explicit YoloSPPF(int64_t channels);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(cv1, cv2)
};

/// Images (batch, 3, height, width) -> features of 1/8, 1/16 and 1/32 of the size.
struct YOLOv8Backbone {
  std::array<YoloConv, 2> b1;
  std::tuple<YoloC2f, YoloConv, YoloC2f> b2;
  std::pair<YoloConv, YoloC2f> b3, b4;
  std::array<YoloSPPF, 1> b5;
  explicit YOLOv8Backbone(const YOLOv8Options& o);
  Tensors operator()(const Tensor& images) const;
  TG_STATE(b1, b2, b3, b4, b5)
};

/// Exchanges what features of different sizes see; sizes stay.
struct YOLOv8Neck {
  YoloC2f n1, n2;
  YoloConv n3;
  YoloC2f n4;
  YoloConv n5;
  YoloC2f n6;
  explicit YOLOv8Neck(const YOLOv8Options& o);
  Tensors operator()(const Tensors& features) const;
  TG_STATE(n1, n2, n3, n4, n5, n6)
};

/// The mean of the numbers 0, 1, ... weighted by probabilities: (batch, 4 * numbers, anchors) logits ->
/// (batch, 4, anchors).
struct YoloDFL {
  nn::Conv2d conv;  ///< its weight is the numbers
  explicit YoloDFL(int64_t numbers);
  Tensor operator()(const Tensor& logits) const;
  TG_STATE(conv)
};

/// Predicts a box and the classes at each place of each of the features.
struct YOLOv8Head {
  using Branch = std::tuple<YoloConv, YoloConv, nn::Conv2d>;
  YoloDFL dfl;
  std::vector<Branch> cv3, cv2;  ///< classes, distances to the sides of boxes
  YOLOv8Head(int64_t classes, const std::vector<int64_t>& channels);
  /// Returns (batch, 4 + classes, places).
  Tensor operator()(const Tensors& features) const;
  TG_STATE(dfl, cv3, cv2)
};

/// YOLOv8: images (batch, 3, height, width) of values from 0 to 1 -> (batch, 4 + classes, places): centre, width and
/// height of a box in pixels, and the probability of each class.
struct YOLOv8 {
  YOLOv8Backbone net;
  YOLOv8Neck fpn;
  YOLOv8Head head;
  /// Makes the network with random weights.
  explicit YOLOv8(const YOLOv8Options& o = {});
  /// Throws ShapeError unless height and width are multiples of 32.
  Tensor operator()(const Tensor& images) const;
  TG_STATE(net, fpn, head)
};

/// Returns the tensors of a file with the names of Ultralytics ("model.0.conv.weight") under the names that the network
/// has; others keep their names. Converted files that have the network's names already need no change.
nn::StateDict yolov8_weights(const nn::StateDict& file);

struct YoloDetectOptions {
  int64_t max_detections = 300;
  double confidence = 0.25;     ///< the least probability
  double iou_threshold = 0.45;  ///< boxes of a class that overlap a better one by more are left out
};
/// Returns the detections of what the network computes, lazily: (batch, rows, 6), rows (x1, y1, x2, y2, probability,
/// class), the best first; rows that are no detection are 0. There are max_detections rows, or a row for each place if
/// that is less. A box is left out whenever a better one overlaps it, even if that is left out too. ShapeError for
/// predictions of another form.
Tensor yolov8_detections(const Tensor& predictions, const YoloDetectOptions& o = {});

/// How an image was made to fit: first resized by a factor, then padded.
struct Letterbox {
  double factor = 1;
  int64_t left = 0, top = 0;  ///< columns and rows before the image
  Tensor image;               ///< (3, height, width), values from 0 to 1
};
/// Resizes an image (height, width, 3) of bytes so that its longer side has `size` pixels, and pads it with grey to
/// multiples of 32. ShapeError for other axes, ValueError for a size that is none.
Letterbox letterbox(const Tensor& image, int64_t size = 640);
/// Returns detections (..., 6) of such an image in coordinates of the original one, of `height` and `width`, to which
/// they are clipped.
Tensor unletterboxed(const Tensor& detections, const Letterbox& box, int64_t height, int64_t width);

}  // namespace tg::models
