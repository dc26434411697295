/// \file AdaptedModel: a decoder whose weights stay as a GGUF file has them, packed, and are fine-tuned by low-rank
/// adapters beside them.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "tinygrad/llm/low_rank_adapter.h"
#include "tinygrad/llm/model_config.h"

namespace tg::llm {

/// A model without a cache: what it computes of whole sequences can be differentiated. Copies share the adapters.
class AdaptedModel {
 public:
  /// `max_time`: tokens of the longest sequence; 0: what the model was trained for, at most 4096. Throws what
  /// LanguageModel::load throws, and ValueError for options out of range, targets that name no projection of the model,
  /// and models with recurrent layers.
  static AdaptedModel load(const std::filesystem::path& file, const AdapterOptions& o = {}, int64_t max_time = 0,
                           const std::string& device = {});

  const ModelConfig& config() const;
  /// The adapters, float32, by name: what an optimizer trains and a checkpoint saves.
  const nn::StateDict& adapters() const;
  /// Logits after each token: int32 (batch, time) -> float32 (batch, time, vocab_size), lazily. Rows see the tokens
  /// before them. ShapeError for other shapes, and for sequences longer than max_time.
  Tensor logits(const Tensor& tokens) const;
  /// The mean cross entropy of each token but the first, given those before it, in nats: int32 (batch, time) -> ().
  Tensor loss(const Tensor& tokens) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tg::llm
