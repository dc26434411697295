/// \file Answers of /v1/responses: a list of items (reasoning, messages, calls of functions), or the events of it.
/// Source: https://platform.openai.com/docs/api-reference/responses-streaming
#include "tinygrad/llm/serve/answer_format.h"

namespace tg::llm {
namespace {

using Entries = std::vector<Value::Entry>;

Entries operator+(Entries a, const Entries& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// An item of the output while it is written.
struct Item {
  enum class Kind : uint8_t { kNone, kReasoning, kMessage, kCall } kind = Kind::kNone;
  std::string id, text;  ///< the text, or the arguments
  ToolCall call = {};
  std::vector<Value> logprobs = {};
};

std::string_view part_type(const Item& item) {
  return item.kind == Item::Kind::kReasoning ? "reasoning_text" : "output_text";
}
Value part_value(const Item& item) {
  Entries entries{{"type", Value(part_type(item))}, {"text", item.text}};
  if (item.kind == Item::Kind::kMessage) {
    entries.emplace_back("annotations", Value::list({}));
    entries.emplace_back("logprobs", Value::list(item.logprobs));
  }
  return Value::dict(std::move(entries));
}
/// `begins`: nothing of it is written yet.
Value item_value(const Item& item, const char* status, bool begins = false) {
  const Entries head{{"id", item.id}, {"status", status}};
  const Value content = Value::list(begins ? std::vector<Value>{} : std::vector<Value>{part_value(item)});
  if (item.kind == Item::Kind::kCall)
    return Value::dict(head + Entries{{"type", "function_call"},
                                      {"call_id", item.call.id},
                                      {"name", item.call.name},
                                      {"arguments", begins ? std::string() : item.text}});
  if (item.kind == Item::Kind::kReasoning)
    return Value::dict(head + Entries{{"type", "reasoning"}, {"summary", Value::list({})}, {"content", content}});
  return Value::dict(head + Entries{{"type", "message"}, {"role", "assistant"}, {"content", content}});
}

class ResponsesAnswer final : public AnswerFormat {
 public:
  ResponsesAnswer(ReplyState& s, Value echo) : s_(s), echo_(std::move(echo)), id_(random_id("resp_")) {}

  std::string begin() override {
    const Value response = this->response("in_progress");
    std::string events = event("response.created", {{"response", response}});
    events += event("response.in_progress", {{"response", response}});
    return events;
  }
  std::string delta(size_t i, const ReplyDelta& delta) override {
    std::vector<Value> logprobs = take_logprobs(s_.choices[i]);
    std::string events;
    if (!delta.reasoning.empty()) events += piece(Item::Kind::kReasoning, delta.reasoning, {});
    if (!delta.content.empty()) events += piece(Item::Kind::kMessage, delta.content, std::move(logprobs));
    for (const ToolCall& call : delta.tool_calls) events += whole_call(call);
    return events;
  }
  std::string end(size_t i) override { return close(is_cut_off(s_.choices[i]) ? "incomplete" : "completed"); }
  std::string finish() override {
    const std::string type = str("response.", is_cut_off(s_.choices[0]) ? "incomplete" : "completed");
    return event(type, {{"response", finished_response()}});
  }
  std::string failure(const ApiError& e) override {
    const Value error =
        Value::dict({{"code", e.code.empty() ? "server_error" : e.code.c_str()}, {"message", Value(e.what())}});
    return event("response.failed", {{"response", response("failed", error)}});
  }
  std::string whole() override {
    const ReplyDelta all{s_.choices[0].content, s_.choices[0].reasoning, s_.choices[0].calls};
    delta(0, all);
    end(0);
    return finished_response().json(compact_json());
  }

 private:
  static bool is_cut_off(const ReplyChoice& c) { return c.end.reason != FinishReason::kStop; }

  Value usage() const {
    const ReplyUsage u = usage_of(s_);
    const std::string& thoughts = s_.choices[0].reasoning;
    const auto reasoning = static_cast<int64_t>(thoughts.empty() ? 0 : s_.tokenizer.encode(thoughts).size());
    return Value::dict({{"input_tokens", u.prompt},
                        {"input_tokens_details", Value::dict({{"cached_tokens", u.cached}})},
                        {"output_tokens", u.reply},
                        {"output_tokens_details", Value::dict({{"reasoning_tokens", std::min(reasoning, u.reply)}})},
                        {"total_tokens", u.prompt + u.reply}});
  }
  Value response(const char* status, const Value& error = {}, const Value& tokens = {}) const {
    const bool incomplete = std::string_view(status) == "incomplete";
    Entries entries{{"id", id_},
                    {"object", "response"},
                    {"created_at", s_.created},
                    {"status", status},
                    {"error", error},
                    {"incomplete_details", incomplete ? Value::dict({{"reason", "max_output_tokens"}}) : Value()},
                    {"model", s_.model},
                    {"output", Value::list(output_)},
                    {"usage", tokens}};
    entries.insert(entries.end(), echo_.entries().begin(), echo_.entries().end());
    return Value::dict(std::move(entries));
  }
  Value finished_response() const {
    return response(is_cut_off(s_.choices[0]) ? "incomplete" : "completed", Value(), usage());
  }
  std::string event(const std::string& type, Entries entries) {
    const Entries head{{"type", type}, {"sequence_number", sequence_++}};
    return stream_event(type, Value::dict(head + entries).json(compact_json()));
  }
  /// Returns an event about the open item, or about the part of it that holds text.
  std::string item_event(const std::string& type, const Entries& more) {
    return event(type, Entries{{"output_index", static_cast<int64_t>(output_.size())}} + more);
  }
  std::string part_event(const std::string& type, const Entries& more) {
    return item_event(type, Entries{{"item_id", item_.id}, {"content_index", 0}} + more);
  }

  /// Returns the events that add text to an item of this kind, which is begun unless the open one is of it.
  std::string piece(Item::Kind kind, const std::string& text, std::vector<Value> logprobs) {
    std::string events;
    if (item_.kind != kind) {
      events = close("completed");
      item_ = {kind, random_id(kind == Item::Kind::kReasoning ? "rs_" : "msg_"), {}};
      events += item_event("response.output_item.added", {{"item", item_value(item_, "in_progress", true)}});
      events += part_event("response.content_part.added", {{"part", part_value(item_)}});
    }
    item_.text += text;
    item_.logprobs.insert(item_.logprobs.end(), logprobs.begin(), logprobs.end());
    Entries more{{"delta", text}};
    if (kind == Item::Kind::kMessage) more.emplace_back("logprobs", Value::list(std::move(logprobs)));
    events += part_event(str("response.", part_type(item_), ".delta"), more);
    return events;
  }
  std::string whole_call(const ToolCall& call) {
    std::string events = close("completed");
    item_ = {Item::Kind::kCall, random_id("fc_"), call.arguments, call};
    events += item_event("response.output_item.added", {{"item", item_value(item_, "in_progress", true)}});
    const std::string type = "response.function_call_arguments.";
    events += item_event(type + "delta", {{"item_id", item_.id}, {"delta", item_.text}});
    events += item_event(type + "done", {{"item_id", item_.id}, {"name", call.name}, {"arguments", item_.text}});
    events += close("completed");
    return events;
  }
  /// Returns the events that end the open item, which becomes part of the output.
  std::string close(const char* status) {
    if (item_.kind == Item::Kind::kNone) return {};
    std::string events;
    if (item_.kind != Item::Kind::kCall) {
      Entries more{{"text", item_.text}};
      if (item_.kind == Item::Kind::kMessage) more.emplace_back("logprobs", Value::list(item_.logprobs));
      events += part_event(str("response.", part_type(item_), ".done"), more);
      events += part_event("response.content_part.done", {{"part", part_value(item_)}});
    }
    const Value item = item_value(item_, status);
    events += item_event("response.output_item.done", {{"item", item}});
    output_.push_back(item);
    item_ = {};
    return events;
  }
  std::vector<Value> take_logprobs(ReplyChoice& c) const {
    std::vector<Value> all;
    if (s_.options.logprobs >= 0) {
      const Value records = Value::parse_json(chat_logprobs(s_.tokenizer, c.records));
      all.assign(records.find("content")->items().begin(), records.find("content")->items().end());
    }
    c.records.clear();
    return all;
  }

  ReplyState& s_;
  Value echo_;
  std::string id_;
  Item item_;
  std::vector<Value> output_;
  int64_t sequence_ = 0;
};

}  // namespace

AnswerFormatFactory responses_answer(Value echo) {
  return [echo = std::move(echo)](ReplyState& s) { return std::make_unique<ResponsesAnswer>(s, echo); };
}

}  // namespace tg::llm
