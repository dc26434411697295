/// \file Answers of /v1/messages: a message of blocks (thinking, text, calls of tools), or the events that build it.
/// Source: https://docs.anthropic.com/en/api/messages-streaming
#include "tinygrad/llm/serve/answer_format.h"

namespace tg::llm {
namespace {

Value text_or_null(const std::string& s) { return s.empty() ? Value() : Value(s); }

std::string stop_reason(const ReplyChoice& c) {
  if (!c.calls.empty()) return "tool_use";
  if (!c.stop_string.empty()) return "stop_sequence";
  return c.end.reason == FinishReason::kStop ? "end_turn" : "max_tokens";
}

Value text_block(const std::string& text) { return Value::dict({{"type", "text"}, {"text", text}}); }
Value thinking_block(const std::string& text) {
  return Value::dict({{"type", "thinking"}, {"thinking", text}, {"signature", ""}});
}
Value call_block(const ToolCall& call, const Value& input) {
  return Value::dict({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", input}});
}

class MessagesAnswer final : public AnswerFormat {
 public:
  explicit MessagesAnswer(ReplyState& s) : s_(s), id_(random_id("msg_")) {}

  ErrorShape errors() const override { return ErrorShape::kAnthropic; }
  std::string begin() override {
    const auto tokens = static_cast<int64_t>(s_.prompt_tokens[0]);
    return event("message_start", {{"message", message({}, Value(), Value(), usage(tokens, 0, 0))}});
  }
  std::string delta(size_t, const ReplyDelta& delta) override {
    std::string events;
    if (!delta.reasoning.empty())
      events += piece(thinking_block(""), {{"type", "thinking_delta"}, {"thinking", delta.reasoning}});
    if (!delta.content.empty()) events += piece(text_block(""), {{"type", "text_delta"}, {"text", delta.content}});
    for (const ToolCall& call : delta.tool_calls) {
      events += close();
      events +=
          piece(call_block(call, Value::dict({})), {{"type", "input_json_delta"}, {"partial_json", call.arguments}});
      events += close();
    }
    return events;
  }
  std::string end(size_t i) override {
    const ReplyChoice& c = s_.choices[i];
    const Value delta = Value::dict({{"stop_reason", stop_reason(c)}, {"stop_sequence", text_or_null(c.stop_string)}});
    return close() + event("message_delta", {{"delta", delta}, {"usage", final_usage()}});
  }
  std::string finish() override { return event("message_stop", {}); }
  std::string failure(const ApiError& e) override { return stream_event("error", api_error_json(e, errors())); }
  std::string whole() override {
    const ReplyChoice& c = s_.choices[0];
    std::vector<Value> blocks;
    if (!c.reasoning.empty()) blocks.push_back(thinking_block(c.reasoning));
    if (!c.content.empty()) blocks.push_back(text_block(c.content));
    for (const ToolCall& call : c.calls)
      blocks.push_back(call_block(call, Value::parse_json(call.arguments, "arguments")));
    return message(std::move(blocks), stop_reason(c), text_or_null(c.stop_string), final_usage()).json(compact_json());
  }

 private:
  /// Tokens that came from the cache are not counted as input again.
  static Value usage(int64_t prompt, int64_t cached, int64_t reply) {
    return Value::dict({{"input_tokens", prompt - cached},
                        {"cache_creation_input_tokens", 0},
                        {"cache_read_input_tokens", cached},
                        {"output_tokens", reply}});
  }
  Value final_usage() const {
    const ReplyUsage u = usage_of(s_);
    return usage(u.prompt, u.cached, u.reply);
  }
  Value message(std::vector<Value> content, const Value& reason, const Value& sequence, const Value& tokens) const {
    return Value::dict({{"id", id_},
                        {"type", "message"},
                        {"role", "assistant"},
                        {"model", s_.model},
                        {"content", Value::list(std::move(content))},
                        {"stop_reason", reason},
                        {"stop_sequence", sequence},
                        {"usage", tokens}});
  }
  std::string event(const std::string& type, std::vector<Value::Entry> entries) const {
    entries.insert(entries.begin(), {"type", type});
    return stream_event(type, Value::dict(std::move(entries)).json(compact_json()));
  }
  /// Returns the events that add to a block of this type, which is begun unless the last one is of it.
  std::string piece(const Value& block, std::vector<Value::Entry> delta) {
    const std::string& type = block.find("type")->as_string();
    std::string events;
    if (type != open_) {
      events = close();
      events += event("content_block_start", {{"index", index_}, {"content_block", block}});
      open_ = type;
    }
    return events + event("content_block_delta", {{"index", index_}, {"delta", Value::dict(std::move(delta))}});
  }
  std::string close() {
    if (open_.empty()) return {};
    open_.clear();
    return event("content_block_stop", {{"index", index_++}});
  }

  ReplyState& s_;
  std::string id_;
  std::string open_;  // the type of the block that is being written; empty: none is
  int64_t index_ = 0;
};

}  // namespace

std::unique_ptr<AnswerFormat> make_messages_answer(ReplyState& s) { return std::make_unique<MessagesAnswer>(s); }

}  // namespace tg::llm
