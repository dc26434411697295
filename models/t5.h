/// \file The encoder of T5 1.1 (Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
/// Transformer", arXiv 1910.10683; Shazeer, "GLU Variants Improve Transformer", arXiv 2002.05202), which diffusion
/// models read prompts through, with the names of weights of its PyTorch files.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Sizes of the encoder; those of T5-xxl without changes.
struct T5Options {
  int64_t vocab_size = 32128;
  int64_t dim = 4096;
  int64_t head_dim = 64;
  int64_t heads = 64;
  int64_t hidden_dim = 10240;  ///< of the feed-forward layers
  int64_t layers = 24;
  int64_t buckets = 32;        ///< of relative positions, a multiple of 4
  int64_t max_distance = 128;  ///< positions at this distance and beyond share a bucket
  double eps = 1e-6;
};

/// A layer of the encoder. (batch, time, dim) -> the same shape.
struct T5Block {
  nn::Linear q, k, v, o;
  std::optional<nn::Embedding> relative_attention_bias;  ///< (buckets, heads); the first layer's serves all
  nn::RMSNorm attention_norm;
  nn::Linear wi_0, wi_1, wo;
  nn::RMSNorm feed_forward_norm;
  int64_t heads;
  T5Block(const T5Options& o, bool has_bias);
  /// `bias` is added to the scores.
  Tensor operator()(const Tensor& x, const Tensor& bias) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// The encoder: tokens (batch, time) -> their vectors (batch, time, dim), of the weights' type.
struct T5Encoder {
  nn::Embedding shared;
  std::vector<T5Block> blocks;
  nn::RMSNorm final_layer_norm;
  T5Options options;
  /// Makes the network with random weights. ValueError for no layers, for buckets that are no multiple of 4, and for
  /// a distance that exact buckets reach already.
  explicit T5Encoder(const T5Options& o = {});
  /// `mask` (batch, time) is 1 for tokens and 0 for padding; undefined: all are tokens. ShapeError for other shapes.
  Tensor operator()(const Tensor& ids, const Tensor& mask = {}) const;
  /// Returns what is added to the scores for relative positions, (1, heads, time, time).
  Tensor position_bias(int64_t time) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Returns the encoder's weights of a published file: embeddings that stand twice once, nothing of a decoder.
nn::StateDict t5_encoder_weights(const nn::StateDict& file);

}  // namespace tg::models
