/// \file Answers of /v1/chat/completions and /v1/completions.
#include "tinygrad/llm/serve/answer_format.h"

namespace tg::llm {
namespace {

std::string finish_reason(const ReplyChoice& c) {
  if (!c.calls.empty()) return "tool_calls";
  return c.end.reason == FinishReason::kStop ? "stop" : "length";
}

Value usage(const ReplyState& s) {
  const ReplyUsage u = usage_of(s);
  return Value::dict({{"prompt_tokens", u.prompt},
                      {"completion_tokens", u.reply},
                      {"total_tokens", u.prompt + u.reply},
                      {"prompt_tokens_details", Value::dict({{"cached_tokens", u.cached}})}});
}

/// Returns how long the first choice took, in milliseconds.
Value timings(const ReplyState& s) {
  const ReplyEnd& e = s.choices[0].end;
  return Value::dict({{"queue_ms", e.queue_seconds * 1e3},
                      {"prompt_n", e.prompt_tokens - e.cached_tokens},
                      {"cache_n", e.cached_tokens},
                      {"prompt_ms", e.prefill_seconds * 1e3},
                      {"predicted_n", e.reply_tokens},
                      {"predicted_ms", e.decode_seconds * 1e3}});
}

/// Returns JSON with further members.
std::string with_members(std::string object, const std::vector<std::pair<std::string_view, std::string>>& members) {
  object.pop_back();
  for (const auto& [name, json] : members) object += str(",\"", name, "\":", json);
  return object + "}";
}

/// What both routes have in common: choices in a list.
class OpenAiAnswer : public AnswerFormat {
 public:
  OpenAiAnswer(ReplyState& s, std::string_view id) : s_(s), id_(random_id(id)) {}

  std::string delta(size_t i, const ReplyDelta& delta) override { return event(delta_choice(i, delta, Value())); }
  std::string end(size_t i) override { return event(delta_choice(i, {}, finish_reason(s_.choices[i]))); }
  std::string finish() override {
    std::string events;
    if (s_.options.include_usage)
      events = stream_event(
          {}, with_members(head(stream_object()), {{"choices", "[]"}, {"usage", usage(s_).json(compact_json())}}));
    return events + stream_event({}, "[DONE]");
  }
  std::string failure(const ApiError& e) override { return stream_event({}, api_error_json(e)); }
  std::string whole() override {
    std::string all;
    for (size_t i = 0; i < s_.choices.size(); i++) all += (i ? "," : "[") + whole_choice(i);
    return with_members(head(whole_object()), {{"choices", all + "]"},
                                               {"usage", usage(s_).json(compact_json())},
                                               {"timings", timings(s_).json(compact_json())}});
  }

 protected:
  virtual std::string_view whole_object() const = 0;
  virtual std::string_view stream_object() const = 0;
  virtual std::string whole_choice(size_t i) = 0;
  virtual std::string delta_choice(size_t i, const ReplyDelta& delta, const Value& finish) = 0;
  virtual std::string log_probabilities(ReplyChoice& c) const = 0;

  std::string event(const std::string& choice) const {
    std::vector<std::pair<std::string_view, std::string>> members{{"choices", str("[", choice, "]")}};
    if (s_.options.include_usage) members.emplace_back("usage", "null");
    return stream_event({}, with_members(head(stream_object()), members));
  }
  /// Returns the log-probabilities of the tokens that are not written yet.
  std::string take_logprobs(ReplyChoice& c) const {
    const bool none = s_.options.logprobs < 0 || (s_.options.stream && c.records.empty());
    std::string json = none ? "null" : log_probabilities(c);
    c.records.clear();
    return json;
  }

  ReplyState& s_;

 private:
  std::string head(std::string_view object) const {
    return Value::dict({{"id", id_}, {"object", Value(object)}, {"created", s_.created}, {"model", s_.model}})
        .json(compact_json());
  }
  std::string id_;
};

class ChatAnswer final : public OpenAiAnswer {
 public:
  explicit ChatAnswer(ReplyState& s) : OpenAiAnswer(s, "chatcmpl-") {}

  std::string begin() override {
    std::string events;
    const Value role = Value::dict({{"role", "assistant"}, {"content", ""}});
    for (size_t i = 0; i < s_.choices.size(); i++) {
      const Value choice =
          Value::dict({{"index", static_cast<int64_t>(i)}, {"delta", role}, {"finish_reason", Value()}});
      events += event(with_member(choice, "logprobs", "null"));
    }
    return events;
  }

 private:
  std::string_view whole_object() const override { return "chat.completion"; }
  std::string_view stream_object() const override { return "chat.completion.chunk"; }
  std::string log_probabilities(ReplyChoice& c) const override { return chat_logprobs(s_.tokenizer, c.records); }
  std::string whole_choice(size_t i) override {
    ReplyChoice& c = s_.choices[i];
    std::vector<Value::Entry> message{{"role", "assistant"}};
    message.emplace_back("content", c.content.empty() && !c.calls.empty() ? Value() : Value(c.content));
    if (!c.reasoning.empty()) message.emplace_back("reasoning_content", c.reasoning);
    if (!c.calls.empty()) {
      std::vector<Value> calls;
      for (const ToolCall& call : c.calls) calls.push_back(tool_call_value(call));
      message.emplace_back("tool_calls", Value::list(std::move(calls)));
    }
    const Value choice = Value::dict({{"index", static_cast<int64_t>(i)},
                                      {"message", Value::dict(std::move(message))},
                                      {"finish_reason", finish_reason(c)}});
    return with_member(choice, "logprobs", take_logprobs(c));
  }
  std::string delta_choice(size_t i, const ReplyDelta& delta, const Value& finish) override {
    ReplyChoice& c = s_.choices[i];
    std::vector<Value::Entry> entries;
    if (!delta.content.empty()) entries.emplace_back("content", delta.content);
    if (!delta.reasoning.empty()) entries.emplace_back("reasoning_content", delta.reasoning);
    if (!delta.tool_calls.empty()) {
      std::vector<Value> calls;
      for (const ToolCall& call : delta.tool_calls)
        calls.push_back(tool_call_value(call, static_cast<int64_t>(c.calls.size() + calls.size())));
      entries.emplace_back("tool_calls", Value::list(std::move(calls)));
    }
    const Value choice = Value::dict(
        {{"index", static_cast<int64_t>(i)}, {"delta", Value::dict(std::move(entries))}, {"finish_reason", finish}});
    return with_member(choice, "logprobs", take_logprobs(c));
  }
};

class CompletionAnswer final : public OpenAiAnswer {
 public:
  explicit CompletionAnswer(ReplyState& s) : OpenAiAnswer(s, "cmpl-") {}

  std::string begin() override {
    std::string events;
    for (size_t i = 0; i < s_.choices.size(); i++) {
      ReplyDelta echo;
      echo.content = echo_of(i);
      if (!echo.empty()) events += delta(i, echo);
    }
    return events;
  }

 private:
  std::string_view whole_object() const override { return "text_completion"; }
  std::string_view stream_object() const override { return "text_completion"; }
  std::string log_probabilities(ReplyChoice& c) const override {
    return completion_logprobs(s_.tokenizer, c.records, c.text_offset);
  }
  std::string echo_of(size_t i) const { return s_.echo.empty() ? std::string() : s_.echo[s_.prompt_of(i)]; }
  std::string choice(size_t i, const std::string& text, const Value& finish) {
    const Value v = Value::dict({{"text", text}, {"index", static_cast<int64_t>(i)}, {"finish_reason", finish}});
    return with_member(v, "logprobs", take_logprobs(s_.choices[i]));
  }
  std::string whole_choice(size_t i) override {
    return choice(i, echo_of(i) + s_.choices[i].content, finish_reason(s_.choices[i]));
  }
  std::string delta_choice(size_t i, const ReplyDelta& delta, const Value& finish) override {
    return choice(i, delta.content, finish);
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_answer(ReplyState& s) { return std::make_unique<ChatAnswer>(s); }
std::unique_ptr<AnswerFormat> make_completion_answer(ReplyState& s) { return std::make_unique<CompletionAnswer>(s); }

}  // namespace tg::llm
