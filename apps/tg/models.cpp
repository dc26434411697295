/// \file Forward passes.
#include "apps/tg/models.h"

namespace tg::models {

Tensor ConvNet::operator()(const Tensor& images) const {
  Tensor x = bn1(conv2(conv1(images).relu()).relu()).max_pool2d();
  x = bn2(conv4(conv3(x).relu()).relu()).max_pool2d();
  return fc(x.flatten(1));
}

BasicBlock::BasicBlock(int64_t in_planes, int64_t planes, int64_t stride)
    : conv1(in_planes, planes, 3, {.stride = stride, .padding = 1, .bias = false}),
      bn1(planes),
      conv2(planes, planes, 3, {.padding = 1, .bias = false}),
      bn2(planes) {
  if (stride != 1 || in_planes != planes)
    downsample.emplace_back(nn::Conv2d(in_planes, planes, 1, {.stride = stride, .bias = false}), nn::BatchNorm(planes));
}

Tensor BasicBlock::operator()(const Tensor& x) const {
  const Tensor y = bn2(conv2(bn1(conv1(x)).relu()));
  return (y + (downsample.empty() ? x : downsample[0].second(downsample[0].first(x)))).relu();
}

ResNet18::ResNet18(int64_t classes)
    : layer1{{64, 64, 1}, {64, 64, 1}},
      layer2{{64, 128, 2}, {128, 128, 1}},
      layer3{{128, 256, 2}, {256, 256, 1}},
      layer4{{256, 512, 2}, {512, 512, 1}},
      fc(512, classes) {}

Tensor ResNet18::operator()(const Tensor& images) const {
  // Zeros around non-negative values do not change a maximum.
  Tensor x = bn1(conv1(images)).relu().pad(Ints{1, 1, 1, 1}).max_pool2d({.kernel_size = 3, .stride = 2});
  for (const auto* layer : {&layer1, &layer2, &layer3, &layer4})
    for (const BasicBlock& block : *layer) x = block(x);
  return fc(x.mean({2, 3}));
}

GptBlock::GptBlock(int64_t c, int64_t h)
    : channels(c), heads(h), ln_1(c), c_attn(c, 3 * c), attn_proj(c, c), ln_2(c), c_fc(c, 4 * c), mlp_proj(4 * c, c) {}

Tensor GptBlock::operator()(const Tensor& x) const {
  const Tensors qkv = c_attn(ln_1(x)).chunk(3, -1);
  const int64_t batch = x.shape(0), time = x.shape(1);
  const auto by_head = [&](const Tensor& t) { return t.reshape(batch, time, heads, channels / heads).transpose(1, 2); };
  const Tensor attended =
      by_head(qkv[0]).scaled_dot_product_attention(by_head(qkv[1]), by_head(qkv[2]), {.is_causal = causal});
  const Tensor y = x + attn_proj(attended.transpose(1, 2).reshape(batch, time, channels));
  return y + mlp_proj(c_fc(ln_2(y)).gelu());
}

}  // namespace tg::models
