/// \file Forward passes of Darknet's layers, and its files of weights.
#include "models/darknet.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "models/detection.h"
#include "tinygrad/base/error.h"
#include "tinygrad/nn/byte_source.h"

namespace tg::models {
namespace {

/// Most channels that layers join to: more make no layer that memory can hold.
constexpr int64_t kMostChannels = int64_t{1} << 24;

/// Returns the channels of a layer's result, of which `before` are those of the layers before it.
int64_t channels_of(const DarknetLayer& layer, const std::vector<int64_t>& before, int64_t input) {
  const int64_t previous = before.empty() ? input : before.back();
  for (const int64_t i : layer.from)
    TG_CHECK(ValueError, i >= 0 && i < std::ssize(before), "[Darknet] layer ", before.size(), " refers to layer ", i,
             ", expected one before it");
  switch (layer.kind) {
    case DarknetLayer::kConvolutional: return layer.filters;
    case DarknetLayer::kShortcut:
      TG_CHECK(ValueError, layer.from.size() == 1 && before[static_cast<size_t>(layer.from[0])] == previous,
               "[Darknet] layer ", before.size(), " adds layers of different channels");
      return previous;
    case DarknetLayer::kRoute: {
      TG_CHECK(ValueError, !layer.from.empty(), "[Darknet] layer ", before.size(), " joins no layers");
      int64_t sum = 0;
      for (const int64_t i : layer.from) {
        sum += before[static_cast<size_t>(i)];
        TG_CHECK(ValueError, sum <= kMostChannels, "[Darknet] layer ", before.size(), " joins ", sum,
                 " channels, expected at most ", kMostChannels);
      }
      return sum;
    }
    default: return previous;
  }
}

/// Takes the maximum of windows that begin at every multiple of the stride, as far as the image goes.
Tensor maxpool(const Tensor& x, const DarknetLayer& layer) {
  const int64_t before = (layer.size - 1) / 2, after = layer.size - 1 - before;
  const Tensor padded = x.pad(Ints{before, after, before, after}, {.value = -std::numeric_limits<double>::infinity()});
  return padded.max_pool2d({.kernel_size = layer.size, .stride = layer.stride});
}

Tensor route(const DarknetLayer& layer, const Tensors& results) {
  Tensors joined;
  for (const int64_t i : layer.from) joined.push_back(results[static_cast<size_t>(i)]);
  return joined.size() == 1 ? joined[0] : Tensor::cat(joined, 1);
}

Tensor convolution(const DarknetModule& m, const Tensor& x) {
  Tensor y = (*m.conv)(x);
  if (m.bn) y = (*m.bn)(y);
  return m.layer.leaky ? y.leaky_relu(0.1) : y;
}

/// Returns the tensors of a layer in the order that files have them in.
std::vector<std::pair<const char*, Tensor>> in_file_order(const DarknetModule& m) {
  if (!m.conv) return {};
  if (!m.bn) return {{"0.bias", m.conv->bias}, {"0.weight", m.conv->weight}};
  return {{"1.bias", m.bn->bias},
          {"1.weight", m.bn->weight},
          {"1.running_mean", m.bn->running_mean},
          {"1.running_var", m.bn->running_var},
          {"0.weight", m.conv->weight}};
}

/// Returns the bytes before the weights: the version in three numbers of 32 bits, and the images that were seen, whose
/// number has 64 bits since version 0.2.
uint64_t header_bytes(std::span<const uint8_t> bytes) {
  int32_t version[2] = {0, 0};
  if (bytes.size() >= sizeof version) std::memcpy(version, bytes.data(), sizeof version);
  return version[0] > 0 || version[1] >= 2 ? 20 : 16;
}

}  // namespace

void DarknetModule::visit_state(nn::StateVisitor& visitor) const {
  visitor.member("0", conv);
  visitor.member("1", bn);
}

Tensor yolo_boxes(const Tensor& x, const DarknetLayer& layer, int64_t stride) {
  const int64_t batch = x.shape(0), h = x.shape(2), w = x.shape(3), anchors = std::ssize(layer.anchors);
  TG_CHECK(ShapeError, x.shape(1) == anchors * (5 + layer.classes), "[yolo_boxes] got ", x.shape(1),
           " channels, expected ", anchors * (5 + layer.classes));
  const Tensor values = x.reshape(batch, anchors, 5 + layer.classes, h, w).permute(0, 3, 4, 1, 2);
  const Tensor column = Tensor::arange(w).reshape(1, w, 1).expand(h, w, 1);
  const Tensor row = Tensor::arange(h).reshape(h, 1, 1).expand(h, w, 1);
  const Tensor cell = Tensor::cat({column, row}, -1).reshape(h, w, 1, 2);
  std::vector<double> sides;
  for (const auto& [width, height] : layer.anchors) sides.insert(sides.end(), {width, height});
  const Tensor size = Tensor(sides, {.dtype = x.dtype()}).reshape(anchors, 2);
  const Tensor center = (values(Ellipsis, Slice(2)).sigmoid() + cell) * stride;
  const Tensor sized = values(Ellipsis, Slice(2, 4)).exp() * size;
  const Tensor boxes = Tensor::cat({center, sized, values(Ellipsis, Slice(4, None)).sigmoid()}, -1);
  return boxes.reshape(batch, h * w * anchors, 5 + layer.classes);
}

Darknet::Darknet(const std::vector<DarknetLayer>& layers, int64_t channels) {
  std::vector<int64_t> results;
  for (const DarknetLayer& layer : layers) {
    DarknetModule& m = module_list.emplace_back(DarknetModule{layer, {}, {}});
    const int64_t in = results.empty() ? channels : results.back();
    results.push_back(channels_of(layer, results, channels));
    if (layer.kind != DarknetLayer::kConvolutional) continue;
    const nn::Conv2dOptions o{
        .stride = layer.stride, .padding = layer.pad ? layer.size / 2 : 0, .bias = !layer.batch_normalize};
    m.conv.emplace(in, layer.filters, layer.size, o);
    if (layer.batch_normalize) m.bn.emplace(layer.filters);
  }
  const bool detects = std::any_of(layers.begin(), layers.end(),
                                   [](const DarknetLayer& layer) { return layer.kind == DarknetLayer::kYolo; });
  TG_CHECK(ValueError, detects, "[Darknet] got layers without a yolo layer, which has the boxes");
}

Tensor Darknet::operator()(const Tensor& images) const {
  Tensors results, boxes;
  Tensor x = images;
  for (const DarknetModule& m : module_list) {
    switch (m.layer.kind) {
      case DarknetLayer::kConvolutional: x = convolution(m, x); break;
      case DarknetLayer::kMaxpool: x = maxpool(x, m.layer); break;
      case DarknetLayer::kUpsample: x = doubled(x); break;
      case DarknetLayer::kRoute: x = route(m.layer, results); break;
      case DarknetLayer::kShortcut: x = x + results[static_cast<size_t>(m.layer.from[0])]; break;
      case DarknetLayer::kYolo: boxes.push_back(yolo_boxes(x, m.layer, images.shape(2) / x.shape(2))); break;
    }
    results.push_back(x);
  }
  return Tensor::cat(boxes, 1);
}

nn::StateDict darknet_weights(const Darknet& model, const std::filesystem::path& file) {
  const nn::ByteSource source = nn::ByteSource::of_file(file, "darknet_weights");
  uint64_t at = header_bytes(source.bytes());
  uint64_t needed = at;
  for (const DarknetModule& m : model.module_list)
    for (const auto& entry : in_file_order(m)) needed += 4 * static_cast<uint64_t>(entry.second.numel());
  TG_CHECK(FormatError, source.bytes().size() == needed, source.what(), ": got ", source.bytes().size(),
           " bytes, expected ", needed);
  nn::StateDict out;
  for (size_t i = 0; i < model.module_list.size(); i++) {
    const DarknetModule& m = model.module_list[i];
    for (const auto& [name, t] : in_file_order(m)) {
      out.emplace_back(str("module_list.", i, ".", name), source.view(at, dtypes::float32, t.shape()));
      at += 4 * static_cast<uint64_t>(t.numel());
    }
    if (m.bn) out.emplace_back(str("module_list.", i, ".1.num_batches_tracked"), m.bn->num_batches_tracked);
  }
  return out;
}

}  // namespace tg::models
