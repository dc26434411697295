#include "tinygrad/llm/serve/api_requests.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "tinygrad/base/contains.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/api_fields.h"

namespace tg::llm {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 31;
constexpr size_t kToolNameBytes = 64;
constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};
constexpr std::string_view kToolChoices[] = {"none", "auto", "required"};
constexpr double kBannedBias = -100;  // what OpenAI's documentation calls a ban

[[noreturn]] void refuse(const std::string& path, std::string_view what) {
  throw ApiError(400, str(path, ": ", what), path);
}

const Value* field(const Value& object, std::string_view name) { return object.find(name); }

// ---- what all requests have ----

std::vector<std::pair<int32_t, double>> read_biases(const ApiFields& fields, int64_t vocabulary) {
  const std::optional<Value> biases = fields.object("logit_bias");
  std::vector<std::pair<int32_t, double>> all;
  if (!biases) return all;
  if (biases->size() > kApiBiases) refuse("logit_bias", str("at most ", kApiBiases, " tokens"));
  for (const auto& [key, bias] : biases->entries()) {
    const std::string& name = key.as_string();
    int64_t token = -1;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), token);
    const bool whole = failed == std::errc{} && end == name.data() + name.size();
    if (!whole || token < 0 || token >= vocabulary) refuse("logit_bias", "its keys are tokens of the vocabulary");
    if (!bias.is_number() || !(std::abs(bias.as_double()) <= 100))
      refuse("logit_bias", "its values are numbers from -100 to 100");
    const double value = bias.as_double();
    all.emplace_back(static_cast<int32_t>(token),
                     value == kBannedBias ? -std::numeric_limits<double>::infinity() : value);
  }
  return all;
}

SamplingOptions read_sampling(const ApiFields& fields, const SamplingOptions& defaults, int64_t vocabulary) {
  SamplingOptions s = defaults;
  s.temperature = fields.number("temperature", 0, 2, s.temperature);
  s.top_p = fields.number("top_p", 0, 1, s.top_p);
  s.top_k = fields.integer("top_k", -1, kMaxTokens, s.top_k);
  if (s.top_k < 0) s.top_k = 0;
  s.min_p = fields.number("min_p", 0, 1, s.min_p);
  s.frequency_penalty = fields.number("frequency_penalty", -2, 2, s.frequency_penalty);
  s.presence_penalty = fields.number("presence_penalty", -2, 2, s.presence_penalty);
  s.repetition_penalty = fields.number("repeat_penalty", 0.1, 10, s.repetition_penalty);
  s.repetition_penalty = fields.number("repetition_penalty", 0.1, 10, s.repetition_penalty);
  s.logit_bias = read_biases(fields, vocabulary);
  if (s.top_p == 0) {  // the fewest tokens that reach 0 are the first one
    s.top_p = 1;
    s.temperature = 0;
  }
  const int64_t seed = fields.integer("seed", INT64_MIN, INT64_MAX, static_cast<int64_t>(s.seed));
  s.seed = static_cast<uint64_t>(seed);
  return s;
}

ApiReplyOptions read_reply(const ApiFields& fields, const SamplingOptions& defaults, int64_t vocabulary) {
  ApiReplyOptions r;
  r.model = fields.text("model");
  r.max_tokens = fields.integer("max_tokens", 0, kMaxTokens, -1);
  r.choices = fields.integer("n", 1, kApiChoices, 1);
  r.sampling = read_sampling(fields, defaults, vocabulary);
  r.stop = fields.texts("stop", kApiStops, kApiStopBytes);
  r.stream = fields.flag("stream", false);
  if (const std::optional<Value> options = fields.object("stream_options"))
    r.include_usage = ApiFields(*options, "stream_options").flag("include_usage", false);
  return r;
}

// ---- messages ----

/// Returns the text of a message's content: a string, or parts that are text or a refusal.
std::string content_text(const ApiFields& message) {
  const Value* content = message.find("content");
  if (!content) return {};
  if (content->is_string()) return content->as_string();
  if (!content->is_list()) message.refuse("content", "a string or a list of parts");
  std::string text;
  for (size_t i = 0; i < content->size(); i++) {
    const ApiFields part(content->items()[i], str(message.path_of("content"), "[", i, "]"));
    const std::string type = part.required_text("type");
    if (type != "text" && type != "refusal")
      refuse(part.path_of("type"), str("this model reads text only, got '", type, "'"));
    text += part.required_text(type);
  }
  return text;
}

/// Returns a call of a tool as templates read it: with its arguments as an object.
Value read_tool_call(const Value& call, const std::string& path) {
  const ApiFields fields(call, path);
  const std::optional<Value> function = fields.object("function");
  if (!function) fields.refuse("function", "an object");
  const ApiFields inner(*function, fields.path_of("function"));
  const std::string name = inner.required_text("name");
  const std::string text = inner.text("arguments", "{}");
  Value arguments;
  try {
    arguments =
        Value::parse_json(text.empty() ? "{}" : text, "arguments", {.values = kApiJsonValues, .depth = kApiJsonDepth});
  } catch (const FormatError& e) { refuse(inner.path_of("arguments"), e.what()); }
  if (!arguments.is_dict()) refuse(inner.path_of("arguments"), "expected the text of a JSON object");
  return Value::dict({{"id", fields.text("id")},
                      {"type", "function"},
                      {"function", Value::dict({{"name", name}, {"arguments", arguments}})}});
}

Value read_message(const Value& message, const std::string& path) {
  const ApiFields fields(message, path);
  std::string role = fields.required_text("role");
  if (role == "developer") role = "system";
  if (!contains(kRoles, role)) refuse(fields.path_of("role"), "expected system, developer, user, assistant or tool");
  std::vector<Value::Entry> entries{{"role", role}};
  const std::optional<Value> calls = role == "assistant" ? fields.list("tool_calls", kApiTools) : std::nullopt;
  const bool refused = role == "assistant" && !fields.find("content") && fields.find("refusal");
  if (!fields.find("content") && !refused && (role != "assistant" || !calls)) fields.refuse("content", "a string");
  entries.emplace_back("content", refused ? fields.text("refusal") : content_text(fields));
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

/// Returns the function of a tool, checked; its schema is compiled where it is enforced.
void check_tool(const Value& tool, const std::string& path) {
  const ApiFields fields(tool, path);
  const std::string type = fields.required_text("type");
  if (type != "function") refuse(fields.path_of("type"), "expected function");
  const std::optional<Value> function = fields.object("function");
  if (!function) fields.refuse("function", "an object");
  const ApiFields inner(*function, fields.path_of("function"));
  const std::string name = inner.required_text("name");
  if (name.empty() || name.size() > kToolNameBytes) refuse(inner.path_of("name"), "expected 1 to 64 bytes");
  inner.text("description");
  inner.object("parameters");
}

/// Returns the schema of a reply that is a call of one of the tools; of `only`, where that is not empty.
Value call_schema(const Value& tools, std::string_view only) {
  std::vector<Value> alternatives;
  for (const Value& tool : tools.items()) {
    const Value& function = *field(tool, "function");
    const std::string& name = field(function, "name")->as_string();
    if (!only.empty() && name != only) continue;
    const Value* parameters = field(function, "parameters");
    const Value schema =
        parameters && parameters->is_dict() && parameters->size() > 0 ? *parameters : Value::dict({{"type", "object"}});
    alternatives.push_back(
        Value::dict({{"type", "object"},
                     {"properties", Value::dict({{"name", Value::dict({{"const", name}})}, {"arguments", schema}})},
                     {"required", Value::list({"name", "arguments"})},
                     {"additionalProperties", false}}));
  }
  if (alternatives.empty()) refuse("tool_choice", "names no tool of `tools`");
  return alternatives.size() == 1 ? alternatives[0] : Value::dict({{"anyOf", Value::list(std::move(alternatives))}});
}

void read_tools(const ApiFields& fields, ChatRequest& request) {
  const std::optional<Value> tools = fields.list("tools", kApiTools);
  for (size_t i = 0; tools && i < tools->size(); i++) check_tool(tools->items()[i], str("tools[", i, "]"));
  const bool any = tools && tools->size() > 0;
  if (any) request.tools = *tools;
  request.tool_choice = any ? ToolChoice::kAuto : ToolChoice::kNone;
  const Value* choice = fields.find("tool_choice");
  if (!choice) return;
  std::string only;
  if (choice->is_dict()) {
    const ApiFields inner(*choice, "tool_choice");
    const std::optional<Value> function = inner.object("function");
    only = ApiFields(function.value_or(Value()), "tool_choice.function").required_text("name");
  } else if (!choice->is_string() || !contains(kToolChoices, choice->as_string())) {
    refuse("tool_choice", "expected none, auto, required or a function");
  }
  if (choice->is_string() && choice->as_string() == "none") request.tool_choice = ToolChoice::kNone;
  if (choice->is_string() && choice->as_string() != "required") return;
  if (!any) refuse("tool_choice", "there are no tools");
  request.tool_choice = ToolChoice::kRequired;
  request.constraint = call_schema(*tools, only);
}

void read_response_format(const ApiFields& fields, ChatRequest& request) {
  const std::optional<Value> format = fields.object("response_format");
  if (!format) return;
  const ApiFields inner(*format, "response_format");
  const std::string type = inner.required_text("type");
  if (type == "text") return;
  if (type != "json_object" && type != "json_schema")
    refuse("response_format.type", "expected text, json_object or json_schema");
  if (request.tool_choice == ToolChoice::kRequired)
    refuse("response_format", "cannot be combined with a tool_choice that requires a call");
  if (type == "json_object") {
    request.any_json = true;
    return;
  }
  const std::optional<Value> wrapper = inner.object("json_schema");
  if (!wrapper) inner.refuse("json_schema", "an object");
  const Value* schema = ApiFields(*wrapper, "response_format.json_schema").find("schema");
  if (!schema) refuse("response_format.json_schema.schema", "expected a JSON schema");
  request.constraint = *schema;
}

// ---- texts or tokens ----

/// Returns a field that is a text, a list of texts, a list of tokens, or a list of such lists.
std::vector<TextOrTokens> read_inputs(const ApiFields& fields, std::string_view name, size_t most, int64_t vocabulary) {
  const Value* v = fields.find(name);
  if (!v) fields.refuse(name, "a string, a list of strings, or a list of tokens");
  if (v->is_string()) return {v->as_string()};
  if (!v->is_list() || v->size() == 0) fields.refuse(name, "a string, a list of strings, or a list of tokens");
  if (v->items()[0].is_integer()) return {api_tokens(*v, vocabulary, std::string(name))};
  if (v->size() > most) refuse(std::string(name), str("at most ", most, " at once"));
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
  request.reply.max_tokens = fields.integer("max_completion_tokens", 0, kMaxTokens, request.reply.max_tokens);
  const int64_t top = fields.integer("top_logprobs", 0, kApiTopLogprobs, 0);
  if (fields.flag("logprobs", false)) request.reply.logprobs = top;
  else if (top > 0) refuse("top_logprobs", "needs logprobs");
  read_tools(fields, request);
  read_response_format(fields, request);
  if (const std::optional<Value> variables = fields.object("chat_template_kwargs"))
    request.template_variables = *variables;
  return request;
}

CompletionRequest read_completion_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary) {
  const ApiFields fields(body);
  CompletionRequest request;
  request.reply = read_reply(fields, defaults, vocabulary);
  request.prompts = read_inputs(fields, "prompt", kApiPrompts, vocabulary);
  request.echo = fields.flag("echo", false);
  request.reply.logprobs = fields.integer("logprobs", 0, kApiTopLogprobs, -1);
  if (!fields.text("suffix").empty()) refuse("suffix", "is not supported");
  const int64_t best = fields.integer("best_of", 1, kApiChoices, request.reply.choices);
  if (best != request.reply.choices) refuse("best_of", "is not supported beside another n");
  if (request.prompts.size() * static_cast<size_t>(request.reply.choices) > kApiReplies)
    refuse("n", str("at most ", kApiReplies, " replies of one request"));
  return request;
}

EmbeddingRequest read_embedding_request(const Value& body, int64_t vocabulary) {
  const ApiFields fields(body);
  EmbeddingRequest request;
  request.model = fields.text("model");
  request.inputs = read_inputs(fields, "input", kApiInputs, vocabulary);
  const std::string format = fields.text("encoding_format", "float");
  if (format != "float" && format != "base64") refuse("encoding_format", "expected float or base64");
  request.base64 = format == "base64";
  request.dimensions = fields.integer("dimensions", 1, kMaxTokens, 0);
  return request;
}

}  // namespace tg::llm
