/// \file A language model whose next token is a simple function of what its sequence holds, so that tests of engine and
/// server know every reply, and see which tokens were computed where.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/llm/language_model.h"

namespace tg::test {

/// Tokens 0..255 are bytes, then come the special ones.
inline constexpr int32_t kFakeEnd = 256;    ///< <|im_end|>
inline constexpr int32_t kFakeStart = 257;  ///< <|im_start|>
inline constexpr int32_t kFakeVocabulary = 258;

class FakeLanguageModel : public llm::LanguageModel {
 public:
  explicit FakeLanguageModel(int64_t sequences = 4, int64_t context = 256) : held_(static_cast<size_t>(sequences)) {
    options_.max_sequences = sequences;
    options_.max_context = context;
    config_.vocab_size = kFakeVocabulary;
    config_.dim = 3;
    config_.name = "fake";
  }

  /// Gives the reply to a conversation that ends with kFakeStart, "assistant" and a line feed; kFakeEnd ends it.
  std::function<std::string(const std::string& conversation)> script;
  /// Called before each call of the model; may throw or sleep.
  std::function<void(const std::string& call)> before;

  struct Call {
    std::string kind;  ///< "prefill", "hidden", "decode", "copy", "rewind"
    std::vector<int64_t> sequences;
    int64_t tokens = 0;
  };
  std::vector<Call> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  /// Returns how many tokens of prompts were computed.
  int64_t prefilled() const {
    int64_t n = 0;
    for (const Call& c : calls()) n += c.kind == "prefill" ? c.tokens : 0;
    return n;
  }
  /// Returns the token after this history without a script.
  static int32_t successor(const std::vector<int32_t>& history) {
    uint32_t h = 2166136261u;
    for (const int32_t t : history) h = (h ^ static_cast<uint32_t>(t)) * 16777619u;
    return static_cast<int32_t>('a' + (h >> 8) % 26);
  }
  static std::vector<int32_t> continuation(std::vector<int32_t> history, int64_t tokens) {
    std::vector<int32_t> out;
    for (int64_t i = 0; i < tokens; i++) {
      out.push_back(successor(history));
      history.push_back(out.back());
    }
    return out;
  }

  bool recurrent = false;  ///< knows its last state only

  const llm::ModelConfig& config() const override { return config_; }
  const llm::ModelOptions& options() const override { return options_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t cache_bytes() const override { return 0; }
  std::span<const int32_t> tokens(int64_t s) const override { return held_.at(static_cast<size_t>(s)); }
  int64_t rewindable(int64_t s, int64_t tokens) const override {
    return recurrent && tokens < position(s) ? 0 : tokens;
  }
  void rewind(int64_t s, int64_t tokens) override {
    note("rewind", {s}, tokens);
    TG_CHECK(ValueError, tokens <= position(s) && rewindable(s, tokens) == tokens, "[fake] cannot rewind");
    held_[static_cast<size_t>(s)].resize(static_cast<size_t>(tokens));
  }
  void copy(int64_t from, int64_t to, int64_t tokens) override {
    note("copy", {from, to}, tokens);
    TG_CHECK(ValueError, from != to && tokens <= position(from), "[fake] cannot copy");
    const std::vector<int32_t>& source = held_[static_cast<size_t>(from)];
    held_[static_cast<size_t>(to)].assign(source.begin(), source.begin() + tokens);
  }
  std::span<const float> prefill(int64_t s, std::span<const int32_t> tokens) override {
    note("prefill", {s}, static_cast<int64_t>(tokens.size()));
    append(s, tokens);
    logits_.assign(kFakeVocabulary, 0);
    score(held_[static_cast<size_t>(s)], logits_.data());
    return logits_;
  }
  std::vector<float> prefill_all(int64_t, std::span<const int32_t>) override { throw ValueError("[fake] not here"); }
  /// A token's vector is (token, position, 1).
  std::vector<float> prefill_hidden(int64_t s, std::span<const int32_t> tokens) override {
    note("hidden", {s}, static_cast<int64_t>(tokens.size()));
    std::vector<float> out;
    for (const int32_t t : tokens) {
      out.insert(out.end(), {static_cast<float>(t), static_cast<float>(position(s)), 1});
      append(s, {&t, 1});
    }
    return out;
  }
  std::span<const float> decode(std::span<const llm::NextToken> next) override {
    std::vector<int64_t> sequences;
    for (const llm::NextToken& n : next) sequences.push_back(n.sequence);
    note("decode", sequences, static_cast<int64_t>(next.size()));
    logits_.assign(next.size() * kFakeVocabulary, 0);
    for (size_t i = 0; i < next.size(); i++) {
      append(next[i].sequence, {&next[i].token, 1});
      score(held_[static_cast<size_t>(next[i].sequence)], logits_.data() + i * kFakeVocabulary);
    }
    return logits_;
  }

 private:
  void note(const char* kind, std::vector<int64_t> sequences, int64_t tokens) {
    if (before) before(kind);
    const std::lock_guard lock(mutex_);
    calls_.push_back({kind, std::move(sequences), tokens});
  }
  void append(int64_t s, std::span<const int32_t> tokens) {
    TG_CHECK(ValueError, position(s) + static_cast<int64_t>(tokens.size()) <= max_context(), "[fake] context is full");
    std::vector<int32_t>& held = held_[static_cast<size_t>(s)];
    held.insert(held.end(), tokens.begin(), tokens.end());
  }
  /// The wanted token is far ahead; then come those that end JSON texts soon.
  void score(const std::vector<int32_t>& history, float* logits) const {
    for (int32_t t = 0; t < kFakeVocabulary; t++) logits[t] = -0.001f * static_cast<float>(t);
    for (const char c : std::string("}]\"")) logits[static_cast<unsigned char>(c)] = 2;
    logits[size_t{'x'}] = 1;
    int32_t wanted = successor(history);
    const auto marker = std::find(history.rbegin(), history.rend(), kFakeStart).base();
    if (script && marker != history.begin()) {
      std::string text, said;
      const std::string head = "assistant\n";
      for (auto i = history.begin(); i != history.end(); ++i) {
        const std::string piece = *i < 256 ? std::string(1, static_cast<char>(*i)) : std::string("|");
        (i < marker + static_cast<int64_t>(head.size()) ? text : said) += piece;
      }
      const std::string reply = script(text);
      wanted = said.size() < reply.size() ? static_cast<unsigned char>(reply[said.size()]) : kFakeEnd;
    }
    logits[wanted] = 20;
  }

  llm::ModelConfig config_;
  llm::ModelOptions options_;
  std::vector<std::vector<int32_t>> held_;
  std::vector<float> logits_;
  mutable std::mutex mutex_;
  std::vector<Call> calls_;
};

}  // namespace tg::test
