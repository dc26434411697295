/// \file DecoderNetwork: the weights of a decoder, and what is computed with them in one step, part by part.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/llm/attention.h"
#include "tinygrad/llm/feed_forward.h"

namespace tg::llm {

/// One layer: norms, what mixes tokens, and a feed-forward network.
class DecoderLayer {
 public:
  DecoderLayer(const Weights& w, int64_t number, const RopeTables& ropes, const CacheOptions& cache);
  Tensor operator()(const Tensor& x, const StepContext& step) const;
  Mixer& mixer() const { return *mixer_; }

 private:
  Tensor feed_forward(const Tensor& x) const { return experts_ ? (*experts_)(x) : (*dense_)(x); }
  Tensor residual(const Tensor& x, const Tensor& y, const std::optional<Norm>& norm) const;

  const ModelConfig& config_;
  ModelShare share_;
  std::optional<Norm> before_mixer_, before_network_, after_mixer_, after_network_;
  std::unique_ptr<Mixer> mixer_;
  std::optional<DenseNetwork> dense_;
  std::optional<ExpertNetwork> experts_;
};

/// What a decoder keeps for its sequences, in bytes of this process: caches, states and tables of positions.
struct SequenceMemory {
  int64_t fixed = 0;      ///< whatever the context
  int64_t per_block = 0;  ///< of kCacheBlock positions
  int64_t of(int64_t blocks) const { return fixed + blocks * per_block; }
};
/// Computes it before anything is allocated.
SequenceMemory sequence_memory(const ModelConfig& config, const ModelShare& share, const CacheOptions& cache);

/// `config`, which outlives it, is that of the file. Every method is a part of a graph: nothing is computed.
class DecoderNetwork {
 public:
  /// Rotary tables know `cache.blocks` blocks of positions. Throws FormatError for tensors that are missing or have
  /// other shapes than the configuration says, ValueError when `max_context` exceeds the positions a model has learned.
  DecoderNetwork(const Weights& w, int64_t max_context, const CacheOptions& cache);
  DecoderNetwork(const DecoderNetwork&) = delete;

  /// Returns what layers are told of rows; `windowed` are the same rows as layers with a window see them.
  StepContext context(const StepRows& rows, const StepRows& windowed, const Tensor& last) const;
  /// Tokens int32 (batch, time) -> (batch, time, dim).
  Tensor embed(const Tensor& tokens, const StepContext& step) const;
  const std::vector<DecoderLayer>& layers() const { return layers_; }
  /// What the last layer gives (rows, dim), normalized: float32 (rows, dim).
  Tensor hidden(const Tensor& x) const { return output_norm_(x).to_float(); }
  /// What the last layer gives (rows, dim) -> (rows, vocab_size).
  Tensor logits(const Tensor& x) const;

 private:
  const ModelConfig& config_;
  ModelShare share_;
  int64_t capacity_;
  PackedMatrix embeddings_;
  Tensor position_embeddings_;
  std::optional<Norm> embedding_norm_;
  Norm output_norm_;
  Projection output_;  ///< of this process's tokens
  RopeTables ropes_;
  std::vector<DecoderLayer> layers_;
};

}  // namespace tg::llm
