/// \file Forward passes of feature pyramids.
#include "models/fpn.h"

#include <algorithm>

#include "models/detection.h"

namespace tg::models {
namespace {

/// Returns the channels of the stages from `first` on.
std::vector<int64_t> stage_channels(const ResNetOptions& o, size_t first) {
  std::vector<int64_t> out;
  for (size_t i = first; i < 4; i++) out.push_back((o.layers < 50 ? 64 : 256) << i);
  return out;
}

ResNetOptions without_classifier(ResNetOptions o) {
  o.classes = 0;
  return o;
}

}  // namespace

PyramidTop::PyramidTop(int64_t channels)
    : p6(channels, channels, 3, {.stride = 2, .padding = 1}), p7(channels, channels, 3, {.stride = 2, .padding = 1}) {}

FeaturePyramid::FeaturePyramid(const std::vector<int64_t>& channels, int64_t out, Top top) {
  for (const int64_t in : channels) {
    inner_blocks.emplace_back(in, out, 1);
    layer_blocks.emplace_back(out, out, 3, nn::Conv2dOptions{.padding = 1});
  }
  if (top == Top::kConvolutions) extra_blocks.emplace(out);
}

Tensors FeaturePyramid::operator()(const Tensors& features) const {
  Tensors levels;
  Tensor inner;
  for (size_t i = features.size(); i-- > 0;) {
    const Tensor lateral = inner_blocks[i](features[i]);
    // Doubling gives a row or a column too many where the larger size is odd.
    inner = inner.defined() ? lateral + doubled(inner)(Ellipsis, Slice(lateral.shape(2)), Slice(lateral.shape(3)))
                            : lateral;
    levels.push_back(layer_blocks[i](inner));
  }
  std::reverse(levels.begin(), levels.end());
  const Tensor last = levels.back();
  if (extra_blocks) {
    levels.push_back(extra_blocks->p6(last));
    levels.push_back(extra_blocks->p7(levels.back().relu()));
  } else {
    levels.push_back(last(Ellipsis, Slice(None, None, 2), Slice(None, None, 2)));
  }
  return levels;
}

ResNetPyramid::ResNetPyramid(ResNetOptions o, size_t first, FeaturePyramid::Top top)
    : body(without_classifier(o)), fpn(stage_channels(o, first), kChannels, top), first_stage(first) {}

Tensors ResNetPyramid::operator()(const Tensor& images) const {
  Tensors stages = body.features(images);
  stages.erase(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(first_stage));
  return fpn(stages);
}

}  // namespace tg::models
