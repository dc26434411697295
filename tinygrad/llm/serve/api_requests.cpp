#include "tinygrad/llm/serve/api_requests.h"

#include "tinygrad/base/contains.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/chat_request_parts.h"

namespace tg::llm {
namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};
constexpr TextPart kParts[] = {{"text", "text"}, {"refusal", "refusal"}};

// ---- what chats and completions have in common ----

ApiReplyOptions read_reply(const ApiFields& fields, const SamplingOptions& defaults, int64_t vocabulary) {
  ApiReplyOptions r;
  r.model = fields.text("model");
  r.max_tokens = fields.integer("max_tokens", 0, kApiMaxTokens, -1);
  r.choices = fields.integer("n", 1, kApiChoices, 1);
  r.sampling = read_sampling(fields, defaults, vocabulary);
  r.stop = fields.texts("stop", kApiStops, kApiStopBytes);
  r.stream = fields.flag("stream", false);
  if (const std::optional<Value> options = fields.object("stream_options")) {
    constexpr std::string_view kIgnored[] = {"include_obfuscation"};
    const ApiFields inner(*options, "stream_options");
    r.include_usage = inner.flag("include_usage", false);
    inner.refuse_others(kIgnored);
  }
  return r;
}

// ---- messages ----

/// Returns a call of a tool as templates read it: with its arguments as an object.
Value read_tool_call(const Value& call, const std::string& path) {
  const ApiFields fields(call, path);
  const std::optional<Value> function = fields.object("function");
  if (!function) fields.refuse("function", "an object");
  const ApiFields inner(*function, fields.path_of("function"));
  const std::string name = inner.required_text("name");
  return call_of_tool(fields.text("id"), name,
                      read_arguments(inner.text("arguments", "{}"), inner.path_of("arguments")));
}

Value read_message(const Value& message, const std::string& path) {
  const ApiFields fields(message, path);
  std::string role = fields.required_text("role");
  if (role == "developer") role = "system";
  if (!contains(kRoles, role))
    refuse_field(fields.path_of("role"), "expected system, developer, user, assistant or tool");
  std::vector<Value::Entry> entries{{"role", role}};
  const std::optional<Value> calls = role == "assistant" ? fields.list("tool_calls", kApiTools) : std::nullopt;
  const bool refused = role == "assistant" && !fields.find("content") && fields.find("refusal");
  if (!fields.find("content") && !refused && (role != "assistant" || !calls)) fields.refuse("content", "a string");
  entries.emplace_back("content", refused ? fields.text("refusal") : read_text(fields, "content", kParts));
  if (fields.find("name")) entries.emplace_back("name", fields.text("name"));
  if (fields.find("tool_call_id")) entries.emplace_back("tool_call_id", fields.text("tool_call_id"));
  if (fields.find("reasoning_content")) entries.emplace_back("reasoning_content", fields.text("reasoning_content"));
  if (calls && calls->size() > 0) {
    std::vector<Value> list;
    for (size_t i = 0; i < calls->size(); i++)
      list.push_back(read_tool_call(calls->items()[i], str(fields.path_of("tool_calls"), "[", i, "]")));
    entries.emplace_back("tool_calls", Value::list(std::move(list)));
  }
  return Value::dict(std::move(entries));
}

Value read_messages(const ApiFields& fields) {
  const std::optional<Value> messages = fields.list("messages", kApiMessages);
  if (!messages || messages->size() == 0) fields.refuse("messages", "a list of at least one message");
  std::vector<Value> all;
  for (size_t i = 0; i < messages->size(); i++)
    all.push_back(read_message(messages->items()[i], str("messages[", i, "]")));
  return Value::list(std::move(all));
}

// ---- tools ----

Value read_tool(const Value& tool, const std::string& path) {
  const ApiFields fields(tool, path);
  if (fields.required_text("type") != "function") refuse_field(fields.path_of("type"), "expected function");
  const std::optional<Value> function = fields.object("function");
  if (!function) fields.refuse("function", "an object");
  return read_function(*function, fields.path_of("function"), "parameters");
}

void read_tools(const ApiFields& fields, ChatRequest& request) {
  const std::optional<Value> tools = fields.list("tools", kApiTools);
  std::vector<Value> all;
  for (size_t i = 0; tools && i < tools->size(); i++)
    all.push_back(read_tool(tools->items()[i], str("tools[", i, "]")));
  if (!all.empty()) request.tools = Value::list(std::move(all));
  request.one_call = !fields.flag("parallel_tool_calls", true);
  const Value* choice = fields.find("tool_choice");
  if (choice && choice->is_dict()) {
    const ApiFields inner(*choice, "tool_choice");
    const std::optional<Value> function = inner.object("function");
    return choose_tools(request, ToolChoice::kRequired,
                        ApiFields(function.value_or(Value()), "tool_choice.function").required_text("name"));
  }
  choose_tools(request, choice ? named_tool_choice(*choice) : ToolChoice::kAuto);
}

// ---- texts or tokens ----

/// Returns a field that is a text, a list of texts, a list of tokens, or a list of such lists.
std::vector<TextOrTokens> read_inputs(const ApiFields& fields, std::string_view name, size_t most, int64_t vocabulary) {
  const Value* v = fields.find(name);
  if (!v) fields.refuse(name, "a string, a list of strings, or a list of tokens");
  if (v->is_string()) return {v->as_string()};
  if (!v->is_list() || v->size() == 0) fields.refuse(name, "a string, a list of strings, or a list of tokens");
  if (v->items()[0].is_integer()) return {api_tokens(*v, vocabulary, std::string(name))};
  if (v->size() > most) refuse_field(std::string(name), str("at most ", most, " at once"));
  std::vector<TextOrTokens> all;
  for (size_t i = 0; i < v->size(); i++) {
    const Value& item = v->items()[i];
    const std::string path = str(name, "[", i, "]");
    if (item.is_string()) all.emplace_back(item.as_string());
    else all.emplace_back(api_tokens(item, vocabulary, path));
  }
  return all;
}

}  // namespace

Value parse_api_body(std::string_view body) {
  Value v;
  try {
    v = Value::parse_json(body, "body", {.values = kApiJsonValues, .depth = kApiJsonDepth});
  } catch (const Error& e) { throw ApiError(400, e.what(), {}, "invalid_json"); }
  if (!v.is_dict()) throw ApiError(400, "the body must be a JSON object");
  return v;
}

ChatRequest read_chat_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary) {
  const ApiFields fields(body);
  ChatRequest request;
  request.messages = read_messages(fields);
  request.reply = read_reply(fields, defaults, vocabulary);
  request.reply.max_tokens = fields.integer("max_completion_tokens", 0, kApiMaxTokens, request.reply.max_tokens);
  const int64_t top = fields.integer("top_logprobs", 0, kApiTopLogprobs, 0);
  if (fields.flag("logprobs", false)) request.reply.logprobs = top;
  else if (top > 0) refuse_field("top_logprobs", "needs logprobs");
  read_tools(fields, request);
  if (const std::optional<Value> format = fields.object("response_format"))
    read_format(ApiFields(*format, "response_format"), "response_format", request);
  read_template_variables(fields, request);
  if (fields.find("reasoning_effort"))
    add_template_variable(request, "reasoning_effort", fields.text("reasoning_effort"));
  const std::optional<Value> modalities = fields.list("modalities", 2);
  if (modalities && *modalities != Value::list({"text"})) refuse_field("modalities", "this model writes text only");
  fields.refuse_others(kIgnoredFields);
  return request;
}

CompletionRequest read_completion_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary) {
  const ApiFields fields(body);
  CompletionRequest request;
  request.reply = read_reply(fields, defaults, vocabulary);
  request.prompts = read_inputs(fields, "prompt", kApiPrompts, vocabulary);
  request.echo = fields.flag("echo", false);
  request.reply.logprobs = fields.integer("logprobs", 0, kApiTopLogprobs, -1);
  if (!fields.text("suffix").empty()) refuse_field("suffix", "is not supported");
  const int64_t best = fields.integer("best_of", 1, kApiChoices, request.reply.choices);
  if (best != request.reply.choices) refuse_field("best_of", "is not supported beside another n");
  if (request.prompts.size() * static_cast<size_t>(request.reply.choices) > kApiReplies)
    refuse_field("n", str("at most ", kApiReplies, " replies of one request"));
  fields.refuse_others(kIgnoredFields);
  return request;
}

EmbeddingRequest read_embedding_request(const Value& body, int64_t vocabulary) {
  const ApiFields fields(body);
  EmbeddingRequest request;
  request.model = fields.text("model");
  request.inputs = read_inputs(fields, "input", kApiInputs, vocabulary);
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64") refuse_field("encoding_format", "expected float or base64");
  request.base64 = format == "base64";
  request.dimensions = fields.integer("dimensions", 1, kApiMaxTokens, 0);
  fields.refuse_others(kIgnoredFields);
  return request;
}

RerankRequest read_rerank_request(const Value& body) {
  const ApiFields fields(body);
  RerankRequest request;
  request.model = fields.text("model");
  request.query = fields.required_text("query");
  const std::optional<Value> documents = fields.list("documents", kApiInputs);
  if (!documents || documents->size() == 0) fields.refuse("documents", "a list of at least one text");
  for (size_t i = 0; i < documents->size(); i++) {
    const Value& d = documents->items()[i];
    const std::string path = str("documents[", i, "]");
    if (!d.is_string() && !d.is_dict()) refuse_field(path, "expected a text, or an object with a text");
    request.documents.push_back(d.is_string() ? d.as_string() : ApiFields(d, path).required_text("text"));
  }
  request.top = fields.integer("top_n", 1, kApiMaxTokens, 0);
  request.with_documents = fields.flag("return_documents", false);
  fields.refuse_others(kIgnoredFields);
  return request;
}

}  // namespace tg::llm
