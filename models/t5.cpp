/// \file Forward pass of T5's encoder.
#include "models/t5.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

/// Returns the bucket of a distance: one for each small one, then of sizes that grow, for either direction.
int32_t bucket(int64_t distance, const T5Options& o) {
  const int64_t half = o.buckets / 2, exact = half / 2, size = std::abs(distance);
  const int64_t first = distance > 0 ? half : 0;
  if (size < exact) return static_cast<int32_t>(first + size);
  // In float32, as the published models were trained: some distances are on the edge of two buckets.
  const float grown = std::log(static_cast<float>(size) / static_cast<float>(exact)) /
                      static_cast<float>(std::log(static_cast<double>(o.max_distance) / static_cast<double>(exact))) *
                      static_cast<float>(half - exact);
  return static_cast<int32_t>(first + std::min(half - 1, exact + static_cast<int64_t>(grown)));
}

}  // namespace

T5Block::T5Block(const T5Options& o, bool has_bias)
    : q(o.dim, o.heads * o.head_dim, false),
      k(o.dim, o.heads * o.head_dim, false),
      v(o.dim, o.heads * o.head_dim, false),
      o(o.heads * o.head_dim, o.dim, false),
      attention_norm(o.dim, {.eps = o.eps}),
      wi_0(o.dim, o.hidden_dim, false),
      wi_1(o.dim, o.hidden_dim, false),
      wo(o.hidden_dim, o.dim, false),
      feed_forward_norm(o.dim, {.eps = o.eps}),
      heads(o.heads) {
  if (has_bias) relative_attention_bias.emplace(o.buckets, o.heads);
}

Tensor T5Block::operator()(const Tensor& x, const Tensor& bias) const {
  auto split = [&](const Tensor& t) { return t.unflatten(-1, {heads, -1}).transpose(1, 2); };
  const Tensor a = attention_norm(x), query = split(q(a));
  // These networks do not scale scores: undo what attention does.
  const Tensor scaled = query * std::sqrt(static_cast<double>(query.shape(-1)));
  const Tensor attended = scaled.scaled_dot_product_attention(split(k(a)), split(v(a)), bias);
  const Tensor y = x + o(attended.transpose(1, 2).flatten(2));
  const Tensor f = feed_forward_norm(y);
  return y + wo(wi_0(f).gelu() * wi_1(f));
}

void T5Block::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("layer.0.SelfAttention.q, layer.0.SelfAttention.k, layer.0.SelfAttention.v, layer.0.SelfAttention.o",
                  q, k, v, o);
  visitor.members("layer.0.SelfAttention.relative_attention_bias, layer.0.layer_norm", relative_attention_bias,
                  attention_norm);
  visitor.members("layer.1.DenseReluDense.wi_0, layer.1.DenseReluDense.wi_1, layer.1.DenseReluDense.wo", wi_0, wi_1,
                  wo);
  visitor.member("layer.1.layer_norm", feed_forward_norm);
}

T5Encoder::T5Encoder(const T5Options& o)
    : shared(o.vocab_size, o.dim), final_layer_norm(o.dim, {.eps = o.eps}), options(o) {
  TG_CHECK(ValueError, o.layers > 0, "[T5Encoder] got ", o.layers, " layers, expected at least 1");
  TG_CHECK(ValueError, o.buckets > 0 && o.buckets % 4 == 0, "[T5Encoder] got ", o.buckets,
           " buckets, expected a multiple of 4");
  TG_CHECK(ValueError, o.max_distance > o.buckets / 4, "[T5Encoder] got distance ", o.max_distance, " for ", o.buckets,
           " buckets, expected more than ", o.buckets / 4);
  for (int64_t i = 0; i < o.layers; i++) blocks.emplace_back(o, i == 0);
}

Tensor T5Encoder::position_bias(int64_t time) const {
  std::vector<int32_t> buckets;
  for (int64_t query = 0; query < time; query++)
    for (int64_t key = 0; key < time; key++) buckets.push_back(bucket(key - query, options));
  const nn::Embedding& bias = *blocks[0].relative_attention_bias;
  return bias(Tensor::from(buckets, {time, time}, {.device = bias.weight.device()})).permute(2, 0, 1).unsqueeze(0);
}

Tensor T5Encoder::operator()(const Tensor& ids, const Tensor& mask) const {
  TG_CHECK(ShapeError, ids.ndim() == 2 && (!mask.defined() || mask.shape() == ids.shape()), "[T5Encoder] got ids ",
           ids.shape(), mask.defined() ? str(" and mask ", mask.shape()) : "", ", expected (batch, time) for each");
  Tensor x = shared(ids), bias = position_bias(ids.shape(1)).cast(x.dtype());
  if (mask.defined()) bias = bias + (1 - mask.cast(x.dtype()).unsqueeze(1).unsqueeze(2)) * -10000.0;
  for (const T5Block& block : blocks) x = block(x, bias);
  return final_layer_norm(x);
}

void T5Encoder::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("shared, encoder.block, encoder.final_layer_norm", shared, blocks, final_layer_norm);
}

nn::StateDict t5_encoder_weights(const nn::StateDict& file) {
  nn::StateDict out;
  const std::string twice = "encoder.embed_tokens.weight";
  for (const auto& [name, t] : file) {
    if (name == twice && !file.contains("shared.weight")) out.emplace_back("shared.weight", t);
    else if (name != twice && !name.starts_with("decoder.") && !name.starts_with("lm_head.")) out.emplace_back(name, t);
  }
  return out;
}

}  // namespace tg::models
