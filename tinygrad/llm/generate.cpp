/// \file The loop of a reply.
#include "tinygrad/llm/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/error.h"

namespace tg::llm {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Forgets the older half of what comes after the first `keep` tokens, and computes the rest at its new positions.
void shift(LanguageModel& model, int64_t s, int64_t keep) {
  const std::span<const int32_t> held = model.tokens(s);
  const auto n = static_cast<int64_t>(held.size()), kept = std::clamp<int64_t>(keep, 0, n);
  const int64_t dropped = std::max<int64_t>(1, (n - kept) / 2);
  std::vector<int32_t> rest(held.begin() + kept + dropped, held.end());
  const int64_t back = model.rewindable(s, kept);
  rest.insert(rest.begin(), held.begin() + back, held.begin() + kept);
  model.rewind(s, back);
  if (!rest.empty()) model.prefill(s, rest);
}

/// One reply while it is made.
class Reply {
 public:
  Reply(LanguageModel& model, int64_t s, const TokenText& text, const GenerateOptions& o)
      : model_(model), s_(s), text_(text), o_(o), sampler_(o.sampling), stop_(o.stop) {}

  Generated run(std::span<const int32_t> prompt) {
    for (const int32_t t : prompt) sampler_.accept(t);
    std::optional<StopScope> stoppable;
    if (o_.cancel) stoppable.emplace(*o_.cancel);
    try {
      compute(prompt);
    } catch (const Cancelled&) {
      if (!o_.cancel || !o_.cancel->load()) throw;  // somebody else's scope
      finish(FinishReason::kCancelled);
    }
    if (!stop_.stopped()) out_.text += stop_.finish();
    return std::move(out_);
  }

 private:
  void compute(std::span<const int32_t> prompt) {
    const auto start = Clock::now();
    out_.prefill_tokens = static_cast<int64_t>(prompt.size());
    std::span<const float> logits = model_.prefill(s_, prompt);
    out_.prefill_seconds = seconds_since(start);
    const auto decoding = Clock::now();
    while (!finished(logits)) {
      const NextToken next{s_, out_.tokens.back()};
      logits = model_.decode({&next, 1});
    }
    out_.decode_seconds = seconds_since(decoding);
  }
  bool finish(FinishReason r) {
    out_.reason = r;
    return true;
  }
  bool at_length() const { return o_.max_tokens >= 0 && static_cast<int64_t>(out_.tokens.size()) >= o_.max_tokens; }
  /// Draws a token; true when the reply ends.
  bool finished(std::span<const float> logits) {
    if (o_.cancel && o_.cancel->load()) return finish(FinishReason::kCancelled);
    if (at_length()) return finish(FinishReason::kLength);
    const int32_t token = sampler_.sample(logits, o_.mask ? o_.mask() : TokenMask());
    if (std::find(o_.stop_tokens.begin(), o_.stop_tokens.end(), token) != o_.stop_tokens.end())
      return finish(FinishReason::kStop);
    record(token, logits);
    const std::string shown = stop_.add(text_ ? text_(token) : std::string());
    out_.text += shown;
    if (o_.on_token && !o_.on_token(token, shown)) return finish(FinishReason::kCancelled);
    if (stop_.stopped()) return finish(FinishReason::kStop);
    if (at_length()) return finish(FinishReason::kLength);  // the logits after the last token are not needed
    return full();
  }
  void record(int32_t token, std::span<const float> logits) {
    out_.tokens.push_back(token);
    if (o_.logprobs < 0) return;
    out_.logprobs.push_back({token, logprob_of(logits, token)});
    out_.top_logprobs.push_back(top_logprobs(logits, o_.logprobs));
  }
  /// Makes room for the token that was drawn; true when there is none.
  bool full() {
    if (model_.position(s_) < model_.max_context()) return false;
    if (!o_.shift_context || o_.keep >= model_.max_context()) return finish(FinishReason::kContext);
    shift(model_, s_, o_.keep);
    out_.shifts++;
    return false;
  }

  LanguageModel& model_;
  int64_t s_;
  const TokenText& text_;
  const GenerateOptions& o_;
  Sampler sampler_;
  StopStrings stop_;
  Generated out_;
};

}  // namespace

const char* finish_reason_name(FinishReason r) {
  switch (r) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "";
}

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  std::erase(strings_, std::string());
}

std::string StopStrings::add(const std::string& piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& s : strings_) {
    const size_t at = held_.find(s);
    if (at < end) matched_ = s;
    end = std::min(end, at);
  }
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(end);
    return std::exchange(held_, {});
  }
  // The longest end of the text that a stop string begins with.
  size_t keep = 0;
  for (const std::string& s : strings_)
    for (size_t n = std::min(held_.size(), s.size() - 1); n > keep; n--)
      if (held_.ends_with(std::string_view(s).substr(0, n))) keep = n;
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

Generated generate(LanguageModel& model, int64_t s, std::span<const int32_t> prompt, const TokenText& text,
                   const GenerateOptions& o) {
  TG_CHECK(ValueError, !prompt.empty(), "[generate] got no tokens, expected a prompt");
  const int64_t room = model.max_context() - model.position(s);
  TG_CHECK(ValueError, static_cast<int64_t>(prompt.size()) <= room, "[generate] got a prompt of ", prompt.size(),
           " tokens, but the context of ", model.max_context(), " tokens has room for ", room);
  return Reply(model, s, text, o).run(prompt);
}

}  // namespace tg::llm
