/// \file YOLOv3 (Redmon and Farhadi, "YOLOv3: An Incremental Improvement", arXiv 1804.02767).
#pragma once
#include <vector>

#include "models/darknet.h"
#include "models/detection.h"

namespace tg::models {

struct YOLOv3Options {
  int64_t classes = 80;
  /// Of the convolutions: a multiple of 1/32, and as published 1.
  double width = 1;
};

/// Returns the layers of yolov3.cfg: the 53 convolutions of Darknet-53 but its classifier, and three heads.
std::vector<DarknetLayer> yolov3_layers(const YOLOv3Options& o = {});

/// YOLOv3 with random weights: images (batch, 3, height, width) of values from 0 to 1, sizes being multiples of 32
/// -> (batch, boxes, 5 + classes). darknet_weights reads yolov3.weights.
inline Darknet yolov3(const YOLOv3Options& o = {}) { return Darknet(yolov3_layers(o)); }

struct YOLOv3DetectOptions {
  double confidence = 0.9;     ///< the least probability of an object
  double iou_threshold = 0.4;  ///< boxes of a class that overlap a better one by more are left out
};
/// Returns the objects in what the network computed of one image, (boxes, 5 + classes), the most probable first. The
/// score is the probability of an object. Computed at once. ShapeError for other axes.
std::vector<Detection> yolov3_detections(const Tensor& boxes, const YOLOv3DetectOptions& o = {});

}  // namespace tg::models
