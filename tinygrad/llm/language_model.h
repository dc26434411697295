/// \file LanguageModel: a decoder whose weights a GGUF file brings, with a cache of what its sequences have said.
///
/// Several sequences live side by side, each with a position of its own: `prefill` appends tokens to one of them,
/// `decode` one token to each of several, all in one batch. Both give logits of the next token. Who is served when is
/// the caller's business.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/base/dtype.h"
#include "tinygrad/llm/model_config.h"

namespace tg::io {
class GgufFile;
}

namespace tg::llm {

class WorldLeader;

struct ModelOptions {
  int64_t max_context = 0;              ///< tokens a sequence can hold; 0: what the model was trained for, at most 4096
  int64_t max_sequences = 1;            ///< sequences the cache has room for
  DType cache_dtype = dtypes::float32;  ///< of keys and values: float32, or float16 at a small loss of accuracy
  int64_t prefill_chunk = 0;            ///< tokens of a prompt computed at once; 0: chosen by the length of the prompt
  std::string device = {};              ///< empty: the default device
  /// Each process of the world computes a part of the model: some heads, hidden units and rows of the output. All make
  /// the same calls, and get the same.
  bool divided = false;
  /// The same, where rank 0 alone makes calls; see world_leader.h.
  std::shared_ptr<WorldLeader> leader = {};
};

/// One token for one sequence.
struct NextToken {
  int64_t sequence = 0;
  int32_t token = 0;
};

/// A model and its sequences, numbered from 0. Calls of one object exclude each other.
class LanguageModel {
 public:
  /// Reads hyperparameters, maps the weights as they are stored (packed blocks stay packed) and makes the cache. Throws
  /// FileError, FormatError (an architecture that is unknown, hyperparameters or tensors that do not fit, each named),
  /// ValueError for options out of range and for more processes than a model has parts, OutOfMemoryError for a context
  /// whose cache does not fit into the memory that is available, before it is made.
  static std::shared_ptr<LanguageModel> load(const std::filesystem::path& file, const ModelOptions& o = {});
  /// The same of a file that is open.
  static std::shared_ptr<LanguageModel> load(const io::GgufFile& file, const ModelOptions& o = {});
  virtual ~LanguageModel() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const ModelOptions& options() const = 0;  ///< with the values chosen for those left open
  int64_t vocab_size() const { return config().vocab_size; }
  int64_t max_context() const { return options().max_context; }
  int64_t max_sequences() const { return options().max_sequences; }
  /// Returns a sentence about a context that is longer than what the model was trained for, without a scaling of its
  /// positions; empty for others.
  std::string context_warning() const;
  virtual int64_t weight_bytes() const = 0;  ///< of all tensors, as they lie in the file
  virtual int64_t cache_bytes() const = 0;   ///< of keys, values and recurrent states of all sequences, in this process

  /// The tokens sequence `s` holds; valid until the next call.
  virtual std::span<const int32_t> tokens(int64_t s) const = 0;
  int64_t position(int64_t s) const { return static_cast<int64_t>(tokens(s).size()); }
  /// The largest number of tokens, at most `tokens`, that `rewind` can go back to. Less than `tokens` for recurrent
  /// blocks, which know their last state only.
  virtual int64_t rewindable(int64_t s, int64_t tokens) const = 0;
  /// Forgets what comes after the first `tokens` tokens. ValueError when they cannot be gone back to.
  virtual void rewind(int64_t s, int64_t tokens) = 0;
  /// Gives sequence `to` the first `tokens` tokens of `from`, which keeps them: a prefix that is computed once.
  virtual void copy(int64_t from, int64_t to, int64_t tokens) = 0;
  /// Appends tokens to sequence `s` and returns the logits after the last one: vocab_size values, valid until the next
  /// call. ValueError when there are none, when one is no token, or when the context would overflow.
  virtual std::span<const float> prefill(int64_t s, std::span<const int32_t> tokens) = 0;
  /// The same with logits after every token: (tokens, vocab_size), row-major.
  virtual std::vector<float> prefill_all(int64_t s, std::span<const int32_t> tokens) = 0;
  /// The same with what the last norm gives for every token, from which logits are computed: (tokens, config().dim).
  virtual std::vector<float> prefill_hidden(int64_t s, std::span<const int32_t> tokens) = 0;
  /// Appends one token to each of the given sequences, all different, and returns the logits after each:
  /// (sequences, vocab_size), row-major, valid until the next call. ValueError as in prefill; nothing is appended then.
  virtual std::span<const float> decode(std::span<const NextToken> next) = 0;
};

}  // namespace tg::llm
