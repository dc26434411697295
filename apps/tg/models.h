/// \file The models that commands and benchmarks train.
#pragma once
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
