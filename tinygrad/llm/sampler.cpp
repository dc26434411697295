/// \file Cutting the distribution of the next token and drawing from what is left, on the host and in double precision.
#include "tinygrad/llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"

namespace tg::llm {
namespace {

constexpr size_t kBits = 64;
constexpr size_t kLanes = 16;  // compared side by side
constexpr size_t kBlock = 64;  // logits that are left out together
constexpr float kBanned = -std::numeric_limits<float>::infinity();

void check(bool ok, const char* what, double got, const char* expected) {
  TG_CHECK(ValueError, ok, "[sampler] got ", what, " ", got, ", expected ", expected);
}

/// The more likely first, the lower number first among equals.
struct MoreLikely {
  template <class C> bool operator()(const C& a, const C& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

/// Returns the highest logit; those that are no number count as banned.
float highest(std::span<const float> logits) {
  float best[kLanes];
  std::fill(best, best + kLanes, kBanned);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t k = 0; k < kLanes; k++) best[k] = logits[i + k] > best[k] ? logits[i + k] : best[k];
  for (; i < logits.size(); i++) best[0] = logits[i] > best[0] ? logits[i] : best[0];
  return *std::max_element(best, best + kLanes);
}

double log_sum_exp(std::span<const float> logits) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const float v : logits) top = std::max(top, static_cast<double>(v));
  if (std::isinf(top)) return top;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return top + std::log(sum);
}

}  // namespace

Sampler::Sampler(SamplingOptions options) : options_(std::move(options)) {
  const SamplingOptions& o = options_;
  check(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature, "0 or more");
  check(o.top_k >= 0, "top_k", static_cast<double>(o.top_k), "0 or more");
  check(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p, "above 0 and at most 1");
  check(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "0 to 1");
  check(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty", o.repetition_penalty,
        "a number above 0");
  check(std::isfinite(o.frequency_penalty), "frequency_penalty", o.frequency_penalty, "a finite number");
  check(std::isfinite(o.presence_penalty), "presence_penalty", o.presence_penalty, "a finite number");
  check(o.penalty_window >= -1, "penalty_window", static_cast<double>(o.penalty_window), "-1 or more");
  for (const auto& [token, bias] : o.logit_bias) {
    check(token >= 0, "logit_bias of token", token, "a token");
    check(!std::isnan(bias), "logit_bias", bias, "a number");
  }
}

void Sampler::accept(int32_t token) { recent_.push_back(token); }

void Sampler::reset() {
  recent_.clear();
  draws_ = 0;
}

void Sampler::penalize(std::vector<float>& logits) const {
  const SamplingOptions& o = options_;
  const bool none = o.repetition_penalty == 1 && o.frequency_penalty == 0 && o.presence_penalty == 0;
  if (none || o.penalty_window == 0) return;
  const size_t window =
      o.penalty_window < 0 ? recent_.size() : std::min(recent_.size(), static_cast<size_t>(o.penalty_window));
  std::unordered_map<int32_t, int64_t> counts;
  for (size_t i = recent_.size() - window; i < recent_.size(); i++) counts[recent_[i]]++;
  for (const auto& [token, count] : counts) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    float& v = logits[static_cast<size_t>(token)];
    double d = v;
    d = d > 0 ? d / o.repetition_penalty : d * o.repetition_penalty;
    v = static_cast<float>(d - static_cast<double>(count) * o.frequency_penalty - o.presence_penalty);
  }
}

void Sampler::restrict_to(TokenMask allowed) {
  if (allowed.empty()) return;
  for (size_t i = 0; i < logits_.size(); i++)
    if ((allowed[i / kBits] >> (i % kBits) & 1) == 0) logits_[i] = kBanned;
}

/// Fills the candidates with at least those that top-k, and min-p where it comes first, may leave: `top` is the highest
/// logit.
void Sampler::collect(float top) {
  const SamplingOptions& o = options_;
  const size_t n = logits_.size(), blocks = (n + kBlock - 1) / kBlock;
  const auto block = [&](size_t b) { return std::span(logits_).subspan(b * kBlock, std::min(kBlock, n - b * kBlock)); };
  highest_.resize(blocks);
  for (size_t b = 0; b < blocks; b++) highest_[b] = highest(block(b));
  double least = -std::numeric_limits<double>::infinity();
  const auto k = static_cast<size_t>(o.top_k);
  if (k > 0 && k < blocks) {  // k blocks have a logit that is at least the k-th highest of their highest
    std::vector<float> sorted = highest_;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k - 1), sorted.end(),
                     std::greater<>());
    least = sorted[k - 1];
  } else if (k == 0 && o.min_p > 0 && o.top_p == 1) {  // top-p is a share of all tokens, so it needs the others too
    least = static_cast<double>(top) + std::log(o.min_p);
  }
  candidates_.clear();
  for (size_t b = 0; b < blocks; b++) {
    if (static_cast<double>(highest_[b]) < least) continue;
    for (size_t i = b * kBlock; i < b * kBlock + block(b).size(); i++)
      if (logits_[i] > kBanned && static_cast<double>(logits_[i]) >= least)
        candidates_.push_back({static_cast<int32_t>(i), logits_[i]});
  }
  TG_ASSERT(!candidates_.empty(), "the highest logit is one of them");
}

/// Keeps the fewest candidates, the most likely first, whose probabilities reach top_p of all.
void Sampler::cut_to_share() {
  // A heap gives as many as are needed in their order.
  const auto less_likely = [](const Candidate& a, const Candidate& b) { return MoreLikely()(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
  const double top = candidates_[0].logit;
  double total = 0, sum = 0;
  for (const Candidate& c : candidates_) total += std::exp(c.logit - top);
  auto end = candidates_.end();
  while (end != candidates_.begin() && (end == candidates_.end() || sum < options_.top_p * total)) {
    std::pop_heap(candidates_.begin(), end--, less_likely);
    sum += std::exp(end->logit - top);
  }
  candidates_.erase(candidates_.begin(), end);
  std::reverse(candidates_.begin(), candidates_.end());
}

void Sampler::cut() {
  const SamplingOptions& o = options_;
  if (const auto k = static_cast<size_t>(o.top_k); k > 0 && k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(k), candidates_.end(),
                     MoreLikely());
    candidates_.resize(k);
  }
  if (o.top_p < 1) cut_to_share();
  if (o.min_p > 0) {
    const double top = std::min_element(candidates_.begin(), candidates_.end(), MoreLikely())->logit;
    std::erase_if(candidates_, [&](const Candidate& c) { return std::exp(c.logit - top) < o.min_p; });
  }
  // Few candidates are drawn from in their order; of a whole vocabulary any order serves that is always the same.
  const bool cut = o.top_k > 0 || o.top_p < 1 || o.min_p > 0;
  if (cut) std::sort(candidates_.begin(), candidates_.end(), MoreLikely());
}

double Sampler::uniform() {
  const uint64_t bits = mix64(mix64(options_.seed + 0x9E3779B97F4A7C15) ^ (++draws_ * 0xD1B54A32D192ED03));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

int32_t Sampler::draw() {
  double top = candidates_[0].logit, total = 0;
  for (const Candidate& c : candidates_) top = std::max<double>(top, c.logit);
  weights_.resize(candidates_.size());
  for (size_t i = 0; i < weights_.size(); i++)
    total += weights_[i] = std::exp((candidates_[i].logit - top) / options_.temperature);
  double left = uniform() * total;
  for (size_t i = 0; i < weights_.size(); i++) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].token;
  }
  return candidates_.back().token;
}

int32_t Sampler::sample(std::span<const float> logits, TokenMask allowed) {
  TG_CHECK(ValueError, !logits.empty() && logits.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
           "[sampler] got ", logits.size(), " logits, expected one for each token");
  TG_CHECK(ValueError, allowed.empty() || allowed.size() == (logits.size() + kBits - 1) / kBits,
           "[sampler] got a mask of ", allowed.size(), " words, expected ", (logits.size() + kBits - 1) / kBits);
  logits_.assign(logits.begin(), logits.end());
  for (const auto& [token, bias] : options_.logit_bias)
    if (static_cast<size_t>(token) < logits_.size()) logits_[static_cast<size_t>(token)] += static_cast<float>(bias);
  penalize(logits_);
  restrict_to(allowed);
  const float top = highest(logits_);
  if (top == kBanned) {
    TG_CHECK(ValueError, highest(logits) > kBanned, "[sampler] no logit is a number");
    throw NoTokenLeftError("[sampler] no token is left: all are masked or banned");
  }
  auto token = static_cast<int32_t>(std::find(logits_.begin(), logits_.end(), top) - logits_.begin());
  if (options_.temperature > 0) {
    collect(top);
    cut();
    token = draw();
  }
  accept(token);
  return token;
}

double logprob_of(std::span<const float> logits, int32_t token) {
  TG_CHECK(ValueError, token >= 0 && static_cast<size_t>(token) < logits.size(), "[logprob_of] got token ", token,
           " for ", logits.size(), " logits");
  return static_cast<double>(logits[static_cast<size_t>(token)]) - log_sum_exp(logits);
}

std::vector<TokenProbability> top_logprobs(std::span<const float> logits, int64_t count) {
  TG_CHECK(ValueError, count >= 0, "[top_logprobs] got count ", count, ", expected 0 or more");
  struct Entry {
    int32_t token;
    float logit;
  };
  std::vector<Entry> all(logits.size());
  for (size_t i = 0; i < all.size(); i++) all[i] = {static_cast<int32_t>(i), logits[i]};
  const size_t n = std::min(all.size(), static_cast<size_t>(count));
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n), all.end(), MoreLikely());
  const double total = log_sum_exp(logits);
  std::vector<TokenProbability> out;
  for (size_t i = 0; i < n; i++) out.push_back({all[i].token, static_cast<double>(all[i].logit) - total});
  return out;
}

}  // namespace tg::llm
