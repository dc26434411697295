/// \file Requests of /v1/messages, translated to chats.
/// Source: https://docs.anthropic.com/en/api/messages
#include <utility>

#include "tinygrad/base/contains.h"
#include "tinygrad/llm/serve/chat_request_parts.h"

namespace tg::llm {
namespace {

constexpr TextPart kParts[] = {{"text", "text"}};
constexpr std::string_view kToolChoices[] = {"auto", "any", "tool", "none"};
/// Appends the messages that the blocks of a message are.
class BlockReader {
 public:
  BlockReader(std::string role, std::vector<Value>& messages) : role_(std::move(role)), messages_(messages) {}

  void read(const Value& block, const std::string& path) {
    const ApiFields fields(block, path);
    const std::string type = fields.required_text("type");
    const bool assistant = role_ == "assistant";
    if (type == "text") {
      text_ += fields.required_text("text");
      said_ = true;
    } else if (type == "tool_use" && assistant) {
      const Value input = fields.object("input").value_or(Value::dict({}));
      calls_.push_back(call_of_tool(fields.required_text("id"), fields.required_text("name"), input));
    } else if (type == "thinking" && assistant) {
      thought_ += fields.text("thinking");
    } else if (type == "tool_result" && !assistant) {
      flush();
      messages_.push_back(Value::dict({{"role", "tool"},
                                       {"content", read_text(fields, "content", kParts)},
                                       {"tool_call_id", fields.required_text("tool_use_id")}}));
      any_ = true;
    } else if (type != "redacted_thinking" || !assistant) {  // which nobody can read
      refuse_field(fields.path_of("type"), str("a message of the ", role_, " cannot hold '", type, "'"));
    }
  }
  /// Adds what the last blocks said.
  void finish() {
    said_ |= !any_;
    flush();
  }

 private:
  void flush() {
    if (!said_ && calls_.empty()) return;
    std::vector<Value::Entry> entries{{"role", role_}, {"content", std::exchange(text_, {})}};
    if (!thought_.empty()) entries.emplace_back("reasoning_content", std::exchange(thought_, {}));
    if (!calls_.empty()) entries.emplace_back("tool_calls", Value::list(std::exchange(calls_, {})));
    messages_.push_back(Value::dict(std::move(entries)));
    said_ = false;
    any_ = true;
  }

  std::string role_;
  std::vector<Value>& messages_;
  bool said_ = false, any_ = false;
  std::string text_, thought_;
  std::vector<Value> calls_;
};

void read_message(const Value& message, const std::string& path, std::vector<Value>& messages) {
  const ApiFields fields(message, path);
  const std::string role = fields.required_text("role");
  if (role != "user" && role != "assistant") refuse_field(fields.path_of("role"), "expected user or assistant");
  const Value* content = fields.find("content");
  if (!content || (!content->is_string() && !content->is_list()))
    fields.refuse("content", "a string or a list of blocks");
  if (content->is_string()) {
    messages.push_back(Value::dict({{"role", role}, {"content", *content}}));
    return;
  }
  BlockReader blocks(role, messages);
  for (size_t i = 0; i < content->size(); i++)
    blocks.read(content->items()[i], str(fields.path_of("content"), "[", i, "]"));
  blocks.finish();
}

Value read_messages(const ApiFields& fields) {
  std::vector<Value> all;
  if (const std::string system = read_text(fields, "system", kParts); !system.empty())
    all.push_back(Value::dict({{"role", "system"}, {"content", system}}));
  const std::optional<Value> messages = fields.list("messages", kApiMessages);
  if (!messages || messages->size() == 0) fields.refuse("messages", "a list of at least one message");
  for (size_t i = 0; i < messages->size(); i++) read_message(messages->items()[i], str("messages[", i, "]"), all);
  const Value* role = all.back().find("role");
  if (role->as_string() == "assistant")
    refuse_field("messages", "the last one must be the user's: this server does not continue what a reply began with");
  return Value::list(std::move(all));
}

void read_tools(const ApiFields& fields, ChatRequest& request) {
  const std::optional<Value> tools = fields.list("tools", kApiTools);
  std::vector<Value> all;
  for (size_t i = 0; tools && i < tools->size(); i++) {
    const std::string path = str("tools[", i, "]");
    if (ApiFields(tools->items()[i], path).text("type", "custom") != "custom")
      refuse_field(path + ".type", "expected custom: this server has no tools itself");
    all.push_back(read_function(tools->items()[i], path, "input_schema"));
  }
  if (!all.empty()) request.tools = Value::list(std::move(all));
  const std::optional<Value> choice = fields.object("tool_choice");
  if (!choice) return choose_tools(request, ToolChoice::kAuto);
  const ApiFields inner(*choice, "tool_choice");
  const std::string type = inner.required_text("type");
  if (!contains(kToolChoices, type)) refuse_field("tool_choice.type", "expected auto, any, tool or none");
  request.one_call = inner.flag("disable_parallel_tool_use", false);
  const std::string only = type == "tool" ? inner.required_text("name") : std::string();
  choose_tools(request,
               type == "none"   ? ToolChoice::kNone
               : type == "auto" ? ToolChoice::kAuto
                                : ToolChoice::kRequired,
               only);
}

/// Reads whether the model may think; the budget is not enforced.
void read_thinking(const ApiFields& fields, ChatRequest& request) {
  const std::optional<Value> thinking = fields.object("thinking");
  if (!thinking) return;
  const std::string type = ApiFields(*thinking, "thinking").required_text("type");
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    refuse_field("thinking.type", "expected enabled, adaptive or disabled");
  add_template_variable(request, "enable_thinking", type != "disabled");
}

/// Reads the schema of the reply, and how much the template lets the model think.
void read_output_config(const ApiFields& fields, ChatRequest& request) {
  const std::optional<Value> config = fields.object("output_config");
  if (!config) return;
  const ApiFields inner(*config, "output_config");
  if (const std::optional<Value> format = inner.object("format"))
    read_format(ApiFields(*format, "output_config.format"), "output_config.format", request);
  if (inner.find("effort")) add_template_variable(request, "reasoning_effort", inner.text("effort"));
  inner.refuse_others();
}

}  // namespace

ChatRequest read_messages_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary,
                                  bool generates) {
  const ApiFields fields(body);
  ChatRequest request;
  request.messages = read_messages(fields);
  ApiReplyOptions& r = request.reply;
  r.model = fields.text("model");
  if (generates && !fields.find("max_tokens")) fields.refuse("max_tokens", "an integer");
  r.max_tokens = fields.integer("max_tokens", 1, kApiMaxTokens, -1);
  r.sampling = read_sampling(fields, defaults, vocabulary);
  r.stop = fields.texts("stop_sequences", kApiStops, kApiStopBytes);
  r.stream = fields.flag("stream", false);
  read_tools(fields, request);
  read_template_variables(fields, request);
  read_thinking(fields, request);
  read_output_config(fields, request);
  fields.refuse_others(kIgnoredFields);
  return request;
}

}  // namespace tg::llm
