/// \file Requests of /v1/responses, translated to chats. Nothing is stored: a request brings its whole conversation.
/// Source: https://platform.openai.com/docs/api-reference/responses/create
#include <algorithm>
#include <utility>

#include "tinygrad/base/contains.h"
#include "tinygrad/llm/serve/chat_request_parts.h"

namespace tg::llm {
namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant"};
constexpr TextPart kParts[] = {{"input_text", "text"}, {"output_text", "text"}, {"refusal", "refusal"}};
constexpr TextPart kThoughts[] = {{"reasoning_text", "text"}, {"text", "text"}};
/// Collects the messages of items: reasoning and calls belong to the message of the assistant around them.
class ItemReader {
 public:
  void read(const Value& item, const std::string& path) {
    const ApiFields fields(item, path);
    const std::string type = fields.text("type", "message");
    if (type == "message") return read_message(fields);
    if (type == "function_call") return read_call(fields);
    if (type == "reasoning") {
      thought_ += read_text(fields, "content", kThoughts);
      return;
    }
    if (type != "function_call_output")
      refuse_field(fields.path_of("type"), "expected message, function_call, function_call_output or reasoning");
    flush();
    messages_.push_back(Value::dict({{"role", "tool"},
                                     {"content", read_text(fields, "output", kParts)},
                                     {"tool_call_id", fields.required_text("call_id")}}));
  }
  void add(const std::string& role, const std::string& text) {
    if (role != "assistant") flush();
    if (role == "assistant" && (said_ || !calls_.empty())) flush();
    if (role == "assistant") {
      said_ = true;
      text_ = text;
    } else {
      messages_.push_back(Value::dict({{"role", role}, {"content", text}}));
    }
  }
  std::vector<Value> take() {
    flush();
    return std::move(messages_);
  }

 private:
  void read_message(const ApiFields& fields) {
    std::string role = fields.required_text("role");
    if (role == "developer") role = "system";
    if (!contains(kRoles, role)) refuse_field(fields.path_of("role"), "expected system, developer, user or assistant");
    if (!fields.find("content")) fields.refuse("content", "a string or a list of parts");
    add(role, read_text(fields, "content", kParts));
  }
  void read_call(const ApiFields& fields) {
    const Value arguments = read_arguments(fields.text("arguments", "{}"), fields.path_of("arguments"));
    calls_.push_back(call_of_tool(fields.required_text("call_id"), fields.required_text("name"), arguments));
  }
  void flush() {
    if (!said_ && calls_.empty()) return thought_.clear();
    std::vector<Value::Entry> entries{{"role", "assistant"}, {"content", std::exchange(text_, {})}};
    if (!thought_.empty()) entries.emplace_back("reasoning_content", std::exchange(thought_, {}));
    if (!calls_.empty()) entries.emplace_back("tool_calls", Value::list(std::exchange(calls_, {})));
    messages_.push_back(Value::dict(std::move(entries)));
    said_ = false;
  }

  std::vector<Value> messages_;
  bool said_ = false;
  std::string text_, thought_;
  std::vector<Value> calls_;
};

Value read_input(const ApiFields& fields) {
  ItemReader items;
  if (const std::string text = fields.text("instructions"); !text.empty()) items.add("system", text);
  const Value* input = fields.find("input");
  if (!input) fields.refuse("input", "a string or a list of items");
  if (input->is_string()) {
    items.add("user", input->as_string());
  } else {
    const std::optional<Value> list = fields.list("input", kApiMessages);
    if (list->size() == 0) fields.refuse("input", "a list of at least one item");
    for (size_t i = 0; i < list->size(); i++) items.read(list->items()[i], str("input[", i, "]"));
  }
  std::vector<Value> messages = items.take();
  if (messages.empty()) refuse_field("input", "holds no message");
  return Value::list(std::move(messages));
}

void read_tools(const ApiFields& fields, ChatRequest& request) {
  const std::optional<Value> tools = fields.list("tools", kApiTools);
  std::vector<Value> all;
  for (size_t i = 0; tools && i < tools->size(); i++) {
    const std::string path = str("tools[", i, "]");
    if (ApiFields(tools->items()[i], path).required_text("type") != "function")
      refuse_field(path + ".type", "expected function: this server has no tools itself");
    all.push_back(read_function(tools->items()[i], path, "parameters"));
  }
  if (!all.empty()) request.tools = Value::list(std::move(all));
  request.one_call = !fields.flag("parallel_tool_calls", true);
  const Value* choice = fields.find("tool_choice");
  if (choice && choice->is_dict()) {
    const ApiFields inner(*choice, "tool_choice");
    if (inner.required_text("type") != "function") refuse_field("tool_choice.type", "expected function");
    return choose_tools(request, ToolChoice::kRequired, inner.required_text("name"));
  }
  choose_tools(request, choice ? named_tool_choice(*choice) : ToolChoice::kAuto);
}

/// Refuses what needs a store of earlier responses, or work after the answer.
void refuse_stored(const ApiFields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"})
    if (fields.find(name)) refuse_field(name, "this server stores nothing: send the whole conversation");
  if (fields.flag("background", false)) refuse_field("background", "this server stores nothing: leave it out");
  if (fields.text("truncation", "disabled") != "disabled") refuse_field("truncation", "expected disabled");
}

/// Returns the fields that the answer repeats, as they were given or understood.
Value echo_of(const ApiFields& fields, const ChatRequest& request) {
  const auto given = [&](const char* name, Value missing) {
    const Value* v = fields.find(name);
    return v ? *v : missing;
  };
  Value most;
  if (request.reply.max_tokens >= 0) most = request.reply.max_tokens;
  const Value text = Value::dict({{"format", Value::dict({{"type", "text"}})}});
  const Value reasoning = Value::dict({{"effort", Value()}, {"summary", Value()}});
  return Value::dict({{"instructions", given("instructions", Value())},
                      {"max_output_tokens", most},
                      {"metadata", given("metadata", Value::dict({}))},
                      {"parallel_tool_calls", !request.one_call},
                      {"previous_response_id", Value()},
                      {"reasoning", given("reasoning", reasoning)},
                      {"store", false},
                      {"temperature", request.reply.sampling.temperature},
                      {"text", given("text", text)},
                      {"tool_choice", given("tool_choice", "auto")},
                      {"tools", given("tools", Value::list({}))},
                      {"top_p", request.reply.sampling.top_p},
                      {"truncation", "disabled"},
                      {"user", given("user", Value())}});
}

}  // namespace

ResponsesRequest read_responses_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary) {
  const ApiFields fields(body);
  ChatRequest request;
  request.messages = read_input(fields);
  request.messages_field = "input";
  ApiReplyOptions& r = request.reply;
  r.model = fields.text("model");
  r.max_tokens = fields.integer("max_output_tokens", 1, kApiMaxTokens, -1);
  r.sampling = read_sampling(fields, defaults, vocabulary);
  r.stream = fields.flag("stream", false);
  const int64_t top = fields.integer("top_logprobs", 0, kApiTopLogprobs, -1);
  const std::optional<Value> include = fields.list("include", kApiTools);
  const bool wanted = include && contains(include->items(), Value("message.output_text.logprobs"));
  if (top >= 0 || wanted) r.logprobs = std::max<int64_t>(top, 0);
  read_tools(fields, request);
  if (const std::optional<Value> text = fields.object("text")) {
    constexpr std::string_view kIgnoredOfText[] = {"verbosity"};
    const ApiFields inner(*text, "text");
    if (const std::optional<Value> format = inner.object("format"))
      read_format(ApiFields(*format, "text.format"), "text.format", request);
    inner.refuse_others(kIgnoredOfText);
  }
  read_template_variables(fields, request);
  if (const std::optional<Value> reasoning = fields.object("reasoning")) {
    const ApiFields inner(*reasoning, "reasoning");
    if (inner.find("effort")) add_template_variable(request, "reasoning_effort", inner.text("effort"));
  }
  refuse_stored(fields);
  fields.integer("max_tool_calls", 1, kApiMaxTokens, 1);  // of tools that servers run
  fields.object("stream_options");                        // padding against listeners
  fields.refuse_others(kIgnoredFields);
  Value echo = echo_of(fields, request);
  return {std::move(request), std::move(echo)};
}

}  // namespace tg::llm
