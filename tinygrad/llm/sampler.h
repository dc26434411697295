/// \file Choosing the next token from logits.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg::llm {

/// Every token is masked or banned: what a request asks for cannot be given.
struct NoTokenLeftError : ValueError {
  using ValueError::ValueError;
};

struct SamplingOptions {
  double temperature = 0.8;       ///< 0: the most likely token, the one of the lowest number among equals
  int64_t top_k = 40;             ///< keep the k most likely; 0: all
  double top_p = 0.95;            ///< keep the fewest tokens whose probabilities sum to at least p; 1: all
  double min_p = 0.05;            ///< keep tokens at least this fraction as likely as the most likely one; 0: all
  double repetition_penalty = 1;  ///< divides positive logits of recent tokens, multiplies negative ones; 1: none
  double frequency_penalty = 0;   ///< subtracted once for each time a token is among the recent ones
  double presence_penalty = 0;    ///< subtracted from every recent token
  int64_t penalty_window = 64;    ///< how many of the last tokens are recent; 0: none, -1: all
  std::vector<std::pair<int32_t, double>> logit_bias = {};  ///< added to logits of tokens; -infinity bans one
  uint64_t seed = 0;
};

struct TokenProbability {
  int32_t token = 0;
  double logprob = 0;  ///< natural logarithm, of the softmax of the logits as the model gave them
};

/// The set of tokens that may come next: bit i % 64 of word i / 64 is token i. Empty: all.
using TokenMask = std::span<const uint64_t>;

/// Draws tokens one after another. The same options, logits and masks give the same tokens, on any machine and any
/// number of threads.
///
/// Order: mask and bias, penalties, then (temperature above 0) top-k, top-p and min-p on the probabilities without
/// temperature, then temperature and the draw.
class Sampler {
 public:
  /// ValueError that names an option out of its range.
  explicit Sampler(SamplingOptions options = {});
  const SamplingOptions& options() const { return options_; }

  /// Tells the penalties of a token that was not drawn here: of the prompt.
  void accept(int32_t token);
  /// Draws a token and accepts it. NoTokenLeftError when every one is masked or banned, ValueError when no logit is a
  /// number and for a mask of another size.
  int32_t sample(std::span<const float> logits, TokenMask allowed = {});
  /// Forgets the tokens accepted and starts the random numbers from the seed again.
  void reset();

 private:
  struct Candidate {
    int32_t token;
    float logit;
  };
  void penalize(std::vector<float>& logits) const;
  void restrict_to(TokenMask allowed);
  void collect(float top);
  void cut();
  void cut_to_share();
  int32_t draw();
  double uniform();

  SamplingOptions options_;
  std::vector<int32_t> recent_;
  std::vector<float> logits_;  ///< of the token that is being drawn, with bias and penalties; -infinity: not allowed
  std::vector<Candidate> candidates_;
  std::vector<float> highest_;   ///< of each block of logits
  std::vector<double> weights_;  ///< of candidates
  uint64_t draws_ = 0;
};

/// Returns the log-probability of one token.
double logprob_of(std::span<const float> logits, int32_t token);
/// Returns the `count` most likely tokens, the most likely first, lower numbers first among equals.
std::vector<TokenProbability> top_logprobs(std::span<const float> logits, int64_t count);

}  // namespace tg::llm
