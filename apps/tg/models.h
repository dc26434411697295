/// \file The models that commands and benchmarks train.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// The convolutional network of "beautiful MNIST": (batch, 1, 28, 28) -> (batch, 10) logits.
struct ConvNet {
  nn::Conv2d conv1{1, 32, 5}, conv2{32, 32, 5};
  nn::BatchNorm bn1{32};
  nn::Conv2d conv3{32, 64, 3}, conv4{64, 64, 3};
  nn::BatchNorm bn2{64};
  nn::Linear fc{576, 10};
  Tensor operator()(const Tensor& x) const;
  TG_STATE(conv1, conv2, bn1, conv3, conv4, bn2, fc)
};

/// Two 3x3 convolutions around a shortcut, which is a 1x1 convolution where the shape changes.
struct BasicBlock {
  nn::Conv2d conv1;
  nn::BatchNorm bn1;
  nn::Conv2d conv2;
  nn::BatchNorm bn2;
  std::vector<std::pair<nn::Conv2d, nn::BatchNorm>> downsample;  // none or one
  BasicBlock(int64_t in_planes, int64_t planes, int64_t stride);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(conv1, bn1, conv2, bn2, downsample)
};

/// ResNet-18: (batch, 3, height, width) -> (batch, classes) logits.
struct ResNet18 {
  nn::Conv2d conv1{3, 64, 7, {.stride = 2, .padding = 3, .bias = false}};
  nn::BatchNorm bn1{64};
  std::vector<BasicBlock> layer1, layer2, layer3, layer4;
  nn::Linear fc;
  explicit ResNet18(int64_t classes = 1000);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(conv1, bn1, layer1, layer2, layer3, layer4, fc)
};

/// One layer of GPT-2: (batch, time, channels) -> the same.
struct GptBlock {
  int64_t channels, heads;
  bool causal = true;
  nn::LayerNorm ln_1;
  nn::Linear c_attn, attn_proj;  // c_attn computes queries, keys and values
  nn::LayerNorm ln_2;
  nn::Linear c_fc, mlp_proj;
  explicit GptBlock(int64_t channels = 768, int64_t heads = 12);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(ln_1, c_attn, attn_proj, ln_2, c_fc, mlp_proj)
};

}  // namespace tg::models
