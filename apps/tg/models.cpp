/// \file Forward passes.
#include "apps/tg/models.h"

namespace tg::models {

Tensor ConvNet::operator()(const Tensor& images) const {
  Tensor x = bn1(conv2(conv1(images).relu()).relu()).max_pool2d();
  x = bn2(conv4(conv3(x).relu()).relu()).max_pool2d();
  return fc(x.flatten(1));
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
