/// \file Forward passes of ResNet.
#include "models/resnet.h"

#include <array>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

/// Returns how often the channels of a block are multiplied by its last convolution.
int64_t expansion(const ResNetOptions& o) { return o.layers < 50 ? 1 : 4; }

std::array<int64_t, 4> blocks_of_stages(int64_t layers) {
  switch (layers) {
    case 18: return {2, 2, 2, 2};
    case 34:
    case 50: return {3, 4, 6, 3};
    case 101: return {3, 4, 23, 3};
    case 152: return {3, 8, 36, 3};
    default: throw ValueError(str("[ResNet] got ", layers, " layers, expected 18, 34, 50, 101 or 152"));
  }
}

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  return {in, out, kernel, {.stride = stride, .padding = kernel / 2, .groups = groups, .bias = false}};
}

int64_t width(int64_t planes, const ResNetOptions& o) {
  return o.layers < 50 ? planes : planes * o.width_per_group / 64 * o.groups;
}

nn::Conv2d first_conv(int64_t in, int64_t planes, int64_t stride, const ResNetOptions& o) {
  if (o.layers < 50) return conv(in, planes, 3, stride);
  return conv(in, width(planes, o), 1, o.stride_in_first_conv ? stride : 1);
}

nn::Conv2d second_conv(int64_t planes, int64_t stride, const ResNetOptions& o) {
  if (o.layers < 50) return conv(planes, planes, 3);
  return conv(width(planes, o), width(planes, o), 3, o.stride_in_first_conv ? 1 : stride, o.groups);
}

std::vector<ResNetBlock> stage(int64_t in, int64_t planes, int64_t blocks, int64_t stride, const ResNetOptions& o) {
  std::vector<ResNetBlock> out;
  for (int64_t i = 0; i < blocks; i++)
    out.emplace_back(i == 0 ? in : planes * expansion(o), planes, i == 0 ? stride : 1, o);
  return out;
}

}  // namespace

ResNetBlock::ResNetBlock(int64_t in_planes, int64_t planes, int64_t stride, const ResNetOptions& o)
    : conv1(first_conv(in_planes, planes, stride, o)),
      bn1(width(planes, o)),
      conv2(second_conv(planes, stride, o)),
      bn2(width(planes, o)) {
  const int64_t out = planes * expansion(o);
  if (o.layers >= 50) {
    conv3 = conv(width(planes, o), out, 1);
    bn3.emplace(out);
  }
  if (stride != 1 || in_planes != out) downsample = {conv(in_planes, out, 1, stride), nn::BatchNorm(out)};
}

Tensor ResNetBlock::operator()(const Tensor& x) const {
  Tensor y = bn2(conv2(bn1(conv1(x)).relu()));
  if (conv3) y = (*bn3)((*conv3)(y.relu()));
  return (y + (downsample ? downsample->second(downsample->first(x)) : x)).relu();
}

ResNet::ResNet(const ResNetOptions& o) {
  const std::array<int64_t, 4> blocks = blocks_of_stages(o.layers);
  TG_CHECK(ValueError, o.layers >= 50 || (o.groups == 1 && o.width_per_group == 64), "[ResNet] got ", o.groups,
           " groups of width ", o.width_per_group, " for ", o.layers,
           " layers, expected 1 of width 64 below 50 layers");
  const int64_t e = expansion(o);
  layer1 = stage(64, 64, blocks[0], 1, o);
  layer2 = stage(64 * e, 128, blocks[1], 2, o);
  layer3 = stage(128 * e, 256, blocks[2], 2, o);
  layer4 = stage(256 * e, 512, blocks[3], 2, o);
  if (o.classes > 0) fc.emplace(512 * e, o.classes);
}

Tensors ResNet::features(const Tensor& images) const {
  // Zeros around non-negative values do not change a maximum.
  Tensor x = bn1(conv1(images)).relu().pad(Ints{1, 1, 1, 1}).max_pool2d({.kernel_size = 3, .stride = 2});
  Tensors out;
  for (const auto* layer : {&layer1, &layer2, &layer3, &layer4}) {
    for (const ResNetBlock& block : *layer) x = block(x);
    out.push_back(x);
  }
  return out;
}

Tensor ResNet::operator()(const Tensor& images) const {
  TG_CHECK(ValueError, fc, "[ResNet] a network without classifier has no logits; features() returns its stages");
  const Tensor x = features(images).back();
  return (*fc)(x.mean({2, 3}).cast(fc->weight.dtype()));
}

}  // namespace tg::models
