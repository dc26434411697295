/// \file Generating a reply: tokens one after another until a stop token, a stop string, a limit or a cancellation.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/llm/language_model.h"
#include "tinygrad/llm/sampler.h"

namespace tg::llm {

/// Why a reply ended.
enum class FinishReason : uint8_t {
  kStop,       ///< a stop token or a stop string
  kLength,     ///< max_tokens
  kContext,    ///< the context is full
  kCancelled,  ///< the caller asked for it
};
const char* finish_reason_name(FinishReason r);  ///< "stop", "length", "context", "cancelled"

/// Cuts text off where a stop string begins; holds back what could become one.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> strings);
  /// Adds a piece of text and returns what can be shown: what cannot be the beginning of a stop string any more.
  std::string add(const std::string& piece);
  bool stopped() const { return stopped_; }                ///< a stop string was seen; nothing comes after it
  const std::string& matched() const { return matched_; }  ///< the stop string that was seen; empty: none
  /// Returns what was held back, at the end of a reply that no stop string ended.
  std::string finish();

 private:
  std::vector<std::string> strings_;
  std::string held_, matched_;
  bool stopped_ = false;
};

struct GenerateOptions {
  int64_t max_tokens = -1;  ///< of the reply; -1: until the context is full
  SamplingOptions sampling = {};
  std::vector<int32_t> stop_tokens = {};  ///< end the reply and are not part of it
  std::vector<std::string> stop = {};     ///< strings that end the reply and are not part of it
  bool shift_context = false;             ///< a full context forgets its older half instead of ending the reply
  int64_t keep = 0;                       ///< first tokens that a shift does not forget
  int64_t logprobs = -1;                  ///< -1: none; n: of the token and of the n most likely ones
  std::function<TokenMask()> mask = {};   ///< asked before each draw: what may come next
  /// Called for each token with the text that became certain (may be empty); false cancels.
  std::function<bool(int32_t token, const std::string& text)> on_token = {};
  const std::atomic<bool>* cancel = nullptr;  ///< looked at between tokens, and while a prompt is computed
};

struct Generated {
  std::vector<int32_t> tokens;  ///< without the stop token
  std::string text;
  FinishReason reason = FinishReason::kStop;
  std::vector<TokenProbability> logprobs;                   ///< of tokens, when asked for
  std::vector<std::vector<TokenProbability>> top_logprobs;  ///< most likely ones at each token
  double prefill_seconds = 0, decode_seconds = 0;
  int64_t prefill_tokens = 0;  ///< of the prompt that were computed, not taken from the cache
  int64_t shifts = 0;          ///< how often the context was shifted
};

/// Returns the text of tokens as far as it is certain: an incremental decoder.
using TokenText = std::function<std::string(int32_t token)>;

/// Appends `prompt` to sequence `s`, then draws tokens. ValueError when the prompt does not fit into the context.
Generated generate(LanguageModel& model, int64_t s, std::span<const int32_t> prompt, const TokenText& text,
                   const GenerateOptions& o = {});

}  // namespace tg::llm
