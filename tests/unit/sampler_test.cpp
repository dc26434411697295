/// \file Drawing tokens: what each option keeps, values at the ends of their ranges, and which draws are the same.
#include "tinygrad/llm/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tinygrad/base/error.h"

namespace tg::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
const std::vector<float> kLogits{1, 3, 2, 3, -1};  // probabilities 0.054, 0.397, 0.146, 0.397, 0.007

/// Options that keep every token.
SamplingOptions open() {
  SamplingOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  return o;
}

/// Returns the tokens that many draws give.
std::set<int32_t> drawn(const SamplingOptions& o, const std::vector<float>& logits = kLogits) {
  Sampler s(o);
  std::set<int32_t> out;
  for (int i = 0; i < 2000; i++) out.insert(s.sample(logits));
  return out;
}

std::vector<int32_t> draws(const SamplingOptions& o, int n = 50) {
  Sampler s(o);
  std::vector<int32_t> out;
  for (int i = 0; i < n; i++) out.push_back(s.sample(kLogits));
  return out;
}

TEST(Sampler, TopK) {
  SamplingOptions o = open();
  EXPECT_THAT(drawn(o), ElementsAre(0, 1, 2, 3, 4));
  o.top_k = 1;
  EXPECT_THAT(drawn(o), ElementsAre(1)) << "the lower number among equals";
  o.top_k = 2;
  EXPECT_THAT(drawn(o), ElementsAre(1, 3));
  o.top_k = 3;
  EXPECT_THAT(drawn(o), ElementsAre(1, 2, 3));
  o.top_k = 5;
  EXPECT_EQ(drawn(o).size(), 5u);
  o.top_k = INT64_MAX;
  EXPECT_EQ(drawn(o).size(), 5u);
}

TEST(Sampler, TopP) {
  SamplingOptions o = open();
  o.top_p = 1e-300;
  EXPECT_THAT(drawn(o), ElementsAre(1)) << "one is always left";
  o.top_p = 0.396;
  EXPECT_THAT(drawn(o), ElementsAre(1));
  o.top_p = 0.4;
  EXPECT_THAT(drawn(o), ElementsAre(1, 3)) << "the fewest whose sum is at least p";
  o.top_p = 0.8;
  EXPECT_THAT(drawn(o), ElementsAre(1, 2, 3));
  o.top_p = std::nextafter(1.0, 0.0);
  EXPECT_EQ(drawn(o).size(), 5u);
}

TEST(Sampler, MinP) {
  SamplingOptions o = open();
  o.min_p = 1;
  EXPECT_THAT(drawn(o), ElementsAre(1, 3)) << "as likely as the best";
  o.min_p = std::exp(-1.0) * 0.999;
  EXPECT_THAT(drawn(o), ElementsAre(1, 2, 3));
  o.min_p = std::exp(-1.0) * 1.001;
  EXPECT_THAT(drawn(o), ElementsAre(1, 3));
  o.min_p = 1e-9;
  EXPECT_EQ(drawn(o).size(), 5u);
  o.min_p = std::exp(-1.0) * 0.999;
  o.top_p = 0.999999;  // the other way through: sorted first
  EXPECT_THAT(drawn(o), ElementsAre(1, 2, 3));
}

TEST(Sampler, CutsAreMadeBeforeTemperature) {
  SamplingOptions o = open();
  o.temperature = 1000;
  o.top_p = 0.4;
  EXPECT_THAT(drawn(o), ElementsAre(1, 3));
  o = open();
  o.temperature = 100;
  EXPECT_EQ(drawn(o).size(), 5u);
  o.temperature = 1e-3;
  EXPECT_THAT(drawn(o), ElementsAre(1, 3));
  o.temperature = 1e-300;
  EXPECT_THAT(drawn(o), ElementsAre(1, 3));
  o.temperature = 0;
  EXPECT_THAT(drawn(o), ElementsAre(1));
}

TEST(Sampler, SeedsDecideTheDraws) {
  SamplingOptions o = open();
  o.seed = 7;
  const std::vector<int32_t> first = draws(o);
  EXPECT_EQ(draws(o), first);
  EXPECT_THAT(std::vector(first.begin(), first.begin() + 12), ElementsAre(1, 3, 2, 1, 3, 3, 1, 1, 3, 1, 1, 1))
      << "on every machine";
  o.top_k = 5;  // cut, though nothing is cut off: the most likely come first
  EXPECT_THAT(draws(o, 12), ElementsAre(3, 3, 3, 3, 3, 3, 3, 1, 2, 1, 1, 1));
  o.top_k = 0;
  o.seed = 8;
  EXPECT_NE(draws(o), first);
  o.seed = UINT64_MAX;
  EXPECT_NE(draws(o), first);
  o.seed = 7;
  Sampler s(o);
  for (int i = 0; i < 5; i++) s.sample(kLogits);
  s.reset();
  std::vector<int32_t> again;
  for (int i = 0; i < 50; i++) again.push_back(s.sample(kLogits));
  EXPECT_EQ(again, first);
}

TEST(Sampler, Penalties) {
  SamplingOptions o = open();
  o.temperature = 0;
  o.repetition_penalty = 2;
  const auto greedy = [&](const std::vector<float>& logits, std::vector<int32_t> said) {
    Sampler s(o);
    for (const int32_t t : said) s.accept(t);
    return s.sample(logits);
  };
  EXPECT_EQ(greedy({3, 2}, {0}), 1) << "positive logits are divided";
  EXPECT_EQ(greedy({-3, -5}, {0}), 1) << "negative ones multiplied";
  EXPECT_EQ(greedy({-3, -7}, {0}), 0);
  EXPECT_EQ(greedy({3, 2}, {0, 0, 0}), 1) << "once, however often it was said";
  EXPECT_EQ(greedy({3, 1.4f}, {0, 0, 0}), 0);
  o.penalty_window = 2;
  EXPECT_EQ(greedy({3, 2}, {0, 1, 1}), 0) << "outside of the window";
  o.penalty_window = 0;
  EXPECT_EQ(greedy({3, 2}, {0}), 0);
  o.penalty_window = -1;
  EXPECT_EQ(greedy({3, 2}, std::vector<int32_t>(1000, 0)), 1);
  EXPECT_EQ(greedy({3, 2}, {-5, 70}), 0) << "no tokens of this model";
  o.repetition_penalty = 1;
  o.frequency_penalty = 0.4;
  EXPECT_EQ(greedy({3, 2}, {0, 0}), 0);
  EXPECT_EQ(greedy({3, 2}, {0, 0, 0}), 1) << "for each time";
  o.frequency_penalty = -0.4;
  EXPECT_EQ(greedy({2, 3}, {0, 0, 0}), 0) << "a negative one is a reward";
  o.frequency_penalty = 0;
  o.presence_penalty = 0.9;
  EXPECT_EQ(greedy({3, 2}, {0, 0, 0}), 0);
  o.presence_penalty = 1.1;
  EXPECT_EQ(greedy({3, 2}, {0}), 1);
}

TEST(Sampler, LogitsThatAreNoNumbers) {
  EXPECT_THAT(drawn(open(), {kNan, 1, kNan}), ElementsAre(1));
  EXPECT_THAT(drawn(open(), {-kInf, 1, -kInf}), ElementsAre(1));
  SamplingOptions greedy = open();
  greedy.temperature = 0;
  EXPECT_THAT(drawn(greedy, {kNan, 1, 2}), ElementsAre(2));
  for (const std::vector<float>& logits : {std::vector<float>{kNan, kNan}, {-kInf, -kInf}, {kNan, -kInf}})
    EXPECT_THAT([&] { Sampler(open()).sample(logits); }, ThrowsMessage<ValueError>(HasSubstr("no logit is a number")));
  EXPECT_THROW(Sampler().sample({}), ValueError);
}

TEST(Sampler, BiasAndMasks) {
  SamplingOptions o = open();
  o.logit_bias = {{1, -std::numeric_limits<double>::infinity()}, {3, -100}, {99, 5}};
  EXPECT_THAT(drawn(o), ElementsAre(0, 2, 4));
  const uint64_t mask[] = {0b10001};
  Sampler s(o);
  std::set<int32_t> out;
  for (int i = 0; i < 2000; i++) out.insert(s.sample(kLogits, mask));
  EXPECT_THAT(out, ElementsAre(0, 4));
  const uint64_t none[] = {~uint64_t{0b11111}};
  EXPECT_THROW(s.sample(kLogits, none), ValueError) << "bits beyond the vocabulary are no tokens";
}

TEST(Sampler, OptionsOutOfRange) {
  const auto refused = [](const char* name, auto&& set) {
    SamplingOptions o;
    set(o);
    EXPECT_THAT([&] { Sampler s(o); }, ThrowsMessage<ValueError>(HasSubstr(name)));
  };
  for (const double v : {-1.0, -1e-300, double{kNan}, double{kInf}})
    refused("temperature", [&](auto& o) { o.temperature = v; });
  for (const double v : {0.0, -0.5, 1.0000001, double{kNan}}) refused("top_p", [&](auto& o) { o.top_p = v; });
  for (const double v : {-0.5, 1.0000001, double{kNan}}) refused("min_p", [&](auto& o) { o.min_p = v; });
  for (const double v : {0.0, -1.0, double{kNan}, double{kInf}})
    refused("repetition_penalty", [&](auto& o) { o.repetition_penalty = v; });
  refused("frequency_penalty", [](auto& o) { o.frequency_penalty = kInf; });
  refused("presence_penalty", [](auto& o) { o.presence_penalty = kNan; });
  refused("top_k", [](auto& o) { o.top_k = -1; });
  refused("penalty_window", [](auto& o) { o.penalty_window = -2; });
  refused("logit_bias", [](auto& o) { o.logit_bias = {{-1, 0.0}}; });
  refused("logit_bias", [](auto& o) { o.logit_bias = {{1, kNan}}; });
}

TEST(Sampler, LogProbabilities) {
  EXPECT_NEAR(logprob_of(kLogits, 1), -0.924866, 1e-6);
  EXPECT_EQ(logprob_of(std::vector<float>{5}, 0), 0);
  EXPECT_EQ(logprob_of(std::vector<float>{0, -kInf}, 1), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(top_logprobs(kLogits, 0).size(), 0u);
  EXPECT_EQ(top_logprobs(kLogits, 99).size(), 5u);
  EXPECT_EQ(top_logprobs(kLogits, 2)[1].token, 3);
  EXPECT_THROW(logprob_of(kLogits, 5), ValueError);
  EXPECT_THROW(logprob_of(kLogits, -1), ValueError);
  EXPECT_THROW(top_logprobs(kLogits, -1), ValueError);
}

}  // namespace
}  // namespace tg::llm
