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

void check(bool ok, const char* what, double got, const char* expected) {
  TG_CHECK(ValueError, ok, "[sampler] got ", what, " ", got, ", expected ", expected);
}

/// The more likely first, the lower number first among equals.
struct MoreLikely {
  template <class C> bool operator()(const C& a, const C& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  }
};

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

void Sampler::cut(std::vector<Candidate>& candidates) const {
  const SamplingOptions& o = options_;
  const size_t k = o.top_k == 0 ? candidates.size() : std::min(candidates.size(), static_cast<size_t>(o.top_k));
  if (o.top_k == 0 && o.min_p > 0) {  // drops most before sorting; the best one stays
    float top = candidates[0].logit;
    for (const Candidate& c : candidates) top = std::max(top, c.logit);
    const double least = static_cast<double>(top) + std::log(o.min_p);
    // top_p is a share of all tokens, so it needs the others too.
    if (o.top_p == 1)
      std::erase_if(candidates, [&](const Candidate& c) { return static_cast<double>(c.logit) < least; });
  }
  if (k < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(k), candidates.end(),
                     MoreLikely());
    candidates.resize(k);
  }
  std::sort(candidates.begin(), candidates.end(), MoreLikely());
  const double top = candidates[0].logit;
  if (o.top_p < 1) {
    double total = 0, sum = 0;
    for (const Candidate& c : candidates) total += std::exp(c.logit - top);
    size_t n = 0;
    while (n < candidates.size() && sum < o.top_p * total) sum += std::exp(candidates[n++].logit - top);
    candidates.resize(std::max<size_t>(n, 1));
  }
  if (o.min_p > 0) std::erase_if(candidates, [&](const Candidate& c) { return std::exp(c.logit - top) < o.min_p; });
}

double Sampler::uniform() {
  const uint64_t bits = mix64(mix64(options_.seed + 0x9E3779B97F4A7C15) ^ (++draws_ * 0xD1B54A32D192ED03));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

int32_t Sampler::draw(const std::vector<Candidate>& candidates) {
  const double top = candidates[0].logit, temperature = options_.temperature;
  double total = 0;
  for (const Candidate& c : candidates) total += std::exp((c.logit - top) / temperature);
  double left = uniform() * total;
  for (const Candidate& c : candidates) {
    left -= std::exp((c.logit - top) / temperature);
    if (left < 0) return c.token;
  }
  return candidates.back().token;
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
  candidates_.clear();
  constexpr float kBanned = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < logits_.size(); i++) {
    const bool open = allowed.empty() || (allowed[i / kBits] >> (i % kBits) & 1) != 0;
    if (open && logits_[i] > kBanned) candidates_.push_back({static_cast<int32_t>(i), logits_[i]});  // NaN: no
  }
  TG_CHECK(ValueError, !candidates_.empty(),
           "[sampler] no token is left: all are masked or banned, or no logit is a number");
  int32_t token = std::min_element(candidates_.begin(), candidates_.end(), MoreLikely())->token;
  if (options_.temperature > 0) {
    cut(candidates_);
    token = draw(candidates_);
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
