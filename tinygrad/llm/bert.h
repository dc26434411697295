/// \file BERT encoders: texts become vectors (sentence embeddings). Read from Hugging Face folders or GGUF files.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/llm/tokenizer.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::llm {

/// How the vectors of tokens become the vector of a text.
enum class Pooling : uint8_t { kMean, kFirst };

struct BertConfig {
  int64_t vocab_size = 0, dim = 0, layers = 0, heads = 0, hidden_dim = 0;
  int64_t max_positions = 0;  ///< tokens a text may have
  int64_t types = 0;          ///< kinds of segments; texts are of the first one
  double norm_eps = 1e-12;
  bool tanh_gelu = false;  ///< the activation is the tanh approximation of gelu
  Pooling pooling = Pooling::kMean;
};

struct EmbedOptions {
  bool normalize = true;   ///< vectors of length one
  int64_t max_tokens = 0;  ///< longer texts are cut, the last token kept; 0: as many as the model takes
};

/// An encoder with its tokenizer. A shared handle: cheap to copy.
class BertModel {
 public:
  /// Opens a folder (config.json, model.safetensors, tokenizer.json; sentence_bert_config.json and
  /// 1_Pooling/config.json where they are) or a GGUF file of the architecture bert. Weights stay in the file's pages.
  /// FileError for what is missing, FormatError that names file and field or tensor for what does not fit together.
  static BertModel open(const std::filesystem::path& path, const std::string& device = "CPU");

  const BertConfig& config() const;
  const Tokenizer& tokenizer() const;
  /// The tokens of a text as they are embedded: cut to max_tokens.
  std::vector<int32_t> tokens(std::string_view text, const EmbedOptions& o = {}) const;

  /// Returns the vectors of tokens: ids (batch, time) of int32, keep (batch, time) of bool, false where a text is
  /// padded -> (batch, time, dim).
  Tensor hidden(const Tensor& ids, const Tensor& keep) const;
  /// Returns the vectors of texts, (texts, dim) in float32. Texts are computed in batches of a few sizes, so that few
  /// kernels are compiled.
  std::vector<std::vector<float>> embed(std::span<const std::string> texts, const EmbedOptions& o = {}) const;

 private:
  struct Parts;
  explicit BertModel(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace tg::llm
