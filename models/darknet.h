/// \file Networks of Darknet's configuration files (Redmon, pjreddie.com/darknet): lists of layers, each of which
/// reads the one before it or named ones.
#pragma once
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// A layer of a configuration. Numbers of layers count from 0 at the first layer behind [net].
struct DarknetLayer {
  enum Kind : uint8_t { kConvolutional, kMaxpool, kUpsample, kRoute, kShortcut, kYolo } kind = kConvolutional;
  int64_t filters = 1, size = 1, stride = 1;
  bool pad = true;  ///< by half the size
  bool batch_normalize = false;
  bool leaky = false;              ///< x or x / 10
  std::vector<int64_t> from = {};  ///< the layers that a route joins, or the one that a shortcut adds
  std::vector<std::pair<double, double>> anchors = {};  ///< widths and heights in pixels that boxes are multiples of
  int64_t classes = 80;
  bool operator==(const DarknetLayer&) const = default;
};

/// Reads the layers of a configuration file's text. FormatError, with `name` and the number of the line, for what is no
/// such text, for other kinds of layers and activations, and for layers that do not exist.
std::vector<DarknetLayer> parse_darknet(std::string_view text, std::string_view name = "text");

/// A layer with its weights, of which only convolutions have some: "0" is the convolution, "1" the batch norm.
struct DarknetModule {
  DarknetLayer layer;
  std::optional<nn::Conv2d> conv;
  std::optional<nn::BatchNorm> bn;
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Computes the boxes of a yolo layer: (batch, anchors * (5 + classes), height, width) of an image whose sides are
/// `stride` times as long -> (batch, height * width * anchors, 5 + classes): centre, width and height of the box in
/// pixels, the probability that it has an object, and that of each class. ShapeError for another number of channels.
Tensor yolo_boxes(const Tensor& x, const DarknetLayer& layer, int64_t stride);

/// A detector: images (batch, 3, height, width) of values from 0 to 1, sizes being multiples of the greatest stride
/// -> (batch, boxes, 5 + classes), the boxes of all yolo layers as yolo_boxes has them.
struct Darknet {
  std::vector<DarknetModule> module_list;
  /// Makes the network with random weights. ValueError where a layer refers to one that is not before it, for a
  /// shortcut of other channels and for a list without a yolo layer.
  explicit Darknet(const std::vector<DarknetLayer>& layers, int64_t channels = 3);
  Tensor operator()(const Tensor& images) const;
  TG_STATE(module_list)
};

/// Returns the weights of a file such as yolov3.weights by their names in the network. FileError for a file that cannot
/// be read, FormatError for one that has more or less than this network's weights.
nn::StateDict darknet_weights(const Darknet& model, const std::filesystem::path& file);

}  // namespace tg::models
