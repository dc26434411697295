#include "tinygrad/llm/serve/chat_request_parts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "tinygrad/llm/serve/api_error.h"

namespace tg::llm {
namespace {

constexpr size_t kToolNameBytes = 64;
constexpr double kBannedBias = -100;  // what OpenAI's documentation calls a ban

std::vector<std::pair<int32_t, double>> read_biases(const ApiFields& fields, int64_t vocabulary) {
  const std::optional<Value> biases = fields.object("logit_bias");
  std::vector<std::pair<int32_t, double>> all;
  if (!biases) return all;
  if (biases->size() > kApiBiases) refuse_field("logit_bias", str("at most ", kApiBiases, " tokens"));
  for (const auto& [key, bias] : biases->entries()) {
    const std::string& name = key.as_string();
    int64_t token = -1;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), token);
    const bool whole = failed == std::errc{} && end == name.data() + name.size();
    if (!whole || token < 0 || token >= vocabulary) refuse_field("logit_bias", "its keys are tokens of the vocabulary");
    if (!bias.is_number() || !(std::abs(bias.as_double()) <= 100))
      refuse_field("logit_bias", "its values are numbers from -100 to 100");
    const double value = bias.as_double();
    all.emplace_back(static_cast<int32_t>(token),
                     value == kBannedBias ? -std::numeric_limits<double>::infinity() : value);
  }
  return all;
}

/// Returns the schema of a reply that is a call of one of the tools; of `only`, where that is not empty.
Value call_schema(const Value& tools, std::string_view only) {
  std::vector<Value> alternatives;
  for (const Value& tool : tools.items()) {
    const Value& function = *tool.find("function");
    const std::string& name = function.find("name")->as_string();
    if (!only.empty() && name != only) continue;
    const Value* parameters = function.find("parameters");
    const Value nothing =
        Value::dict({{"type", "object"}, {"properties", Value::dict({})}, {"additionalProperties", false}});
    alternatives.push_back(Value::dict(
        {{"type", "object"},
         {"properties",
          Value::dict({{"name", Value::dict({{"const", name}})}, {"arguments", parameters ? *parameters : nothing}})},
         {"required", Value::list({"name", "arguments"})},
         {"additionalProperties", false}}));
  }
  if (alternatives.empty()) refuse_field("tool_choice", "names no tool of `tools`");
  return alternatives.size() == 1 ? alternatives[0] : Value::dict({{"anyOf", Value::list(std::move(alternatives))}});
}

}  // namespace

SamplingOptions read_sampling(const ApiFields& fields, const SamplingOptions& defaults, int64_t vocabulary) {
  SamplingOptions s = defaults;
  s.temperature = fields.number("temperature", 0, 2, s.temperature);
  s.top_p = fields.number("top_p", 0, 1, s.top_p);
  s.top_k = fields.integer("top_k", -1, kApiMaxTokens, s.top_k);
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

std::string read_text(const ApiFields& fields, std::string_view name, std::span<const TextPart> parts) {
  const Value* content = fields.find(name);
  if (!content) return {};
  if (content->is_string()) return content->as_string();
  if (!content->is_list()) fields.refuse(name, "a string or a list of parts");
  std::string text;
  for (size_t i = 0; i < content->size(); i++) {
    const ApiFields part(content->items()[i], str(fields.path_of(name), "[", i, "]"));
    const std::string type = part.required_text("type");
    const auto known = std::find_if(parts.begin(), parts.end(), [&](const TextPart& p) { return p.type == type; });
    if (known == parts.end()) refuse_field(part.path_of("type"), str("this model reads text only, got '", type, "'"));
    text += part.required_text(known->field);
  }
  return text;
}

Value read_arguments(const std::string& text, const std::string& path) {
  Value arguments;
  try {
    arguments =
        Value::parse_json(text.empty() ? "{}" : text, "arguments", {.values = kApiJsonValues, .depth = kApiJsonDepth});
  } catch (const FormatError& e) { refuse_field(path, e.what()); }
  if (!arguments.is_dict()) refuse_field(path, "expected the text of a JSON object");
  return arguments;
}

Value call_of_tool(const std::string& id, const std::string& name, const Value& arguments) {
  return Value::dict(
      {{"id", id}, {"type", "function"}, {"function", Value::dict({{"name", name}, {"arguments", arguments}})}});
}

Value read_function(const Value& object, const std::string& path, std::string_view schema) {
  const ApiFields fields(object, path);
  const std::string name = fields.required_text("name");
  if (name.empty() || name.size() > kToolNameBytes) refuse_field(fields.path_of("name"), "expected 1 to 64 bytes");
  fields.text("description");
  const std::optional<Value> parameters = fields.object(schema);
  std::vector<Value::Entry> entries;
  for (const auto& [key, value] : object.entries()) {
    const std::string& k = key.as_string();
    if (value.is_none() || k == "type" || k == "strict" || k == "cache_control") continue;
    if (k != schema) entries.emplace_back(key, value);
    else if (parameters->size() > 0) entries.emplace_back("parameters", value);
  }
  return Value::dict({{"type", "function"}, {"function", Value::dict(std::move(entries))}});
}

ToolChoice named_tool_choice(const Value& choice) {
  constexpr std::pair<std::string_view, ToolChoice> kNames[] = {
      {"none", ToolChoice::kNone}, {"auto", ToolChoice::kAuto}, {"required", ToolChoice::kRequired}};
  for (const auto& [name, value] : kNames)
    if (choice.is_string() && choice.as_string() == name) return value;
  refuse_field("tool_choice", "expected none, auto, required or a function");
}

void choose_tools(ChatRequest& request, ToolChoice choice, const std::string& only) {
  const bool any = !request.tools.is_none();
  request.tool_choice = any ? choice : ToolChoice::kNone;
  if (choice != ToolChoice::kRequired) return;
  if (!any) refuse_field("tool_choice", "there are no tools");
  request.constraint = call_schema(request.tools, only);
  request.constraint_field = "tools";
}

void read_format(const ApiFields& format, const std::string& path, ChatRequest& request) {
  const std::string type = format.required_text("type");
  if (type != "text" && type != "json_object" && type != "json_schema")
    refuse_field(path + ".type", "expected text, json_object or json_schema");
  if (type == "text") return format.refuse_others();
  if (request.tool_choice == ToolChoice::kRequired)
    refuse_field(path, "cannot be combined with a tool_choice that requires a call");
  const Value* schema = format.find("schema");
  const std::optional<Value> wrapper = format.object("json_schema");
  if (wrapper && (schema || type == "json_object"))
    refuse_field(path + ".json_schema", schema ? "stands beside another schema" : "needs the type json_schema");
  for (const char* note : {"name", "description"}) format.text(note);
  format.flag("strict", false);
  format.refuse_others();
  if (wrapper) {
    const ApiFields inner(*wrapper, path + ".json_schema");
    for (const char* note : {"name", "description"}) inner.text(note);
    inner.flag("strict", false);
    schema = wrapper->find("schema");
    inner.find("schema");
    inner.refuse_others();
  }
  const bool found = schema && !schema->is_none();
  if (!found && type == "json_schema")
    refuse_field(path + (wrapper ? ".json_schema.schema" : ".schema"), "expected a JSON schema");
  request.constraint = found ? *schema : Value::dict({{"type", "object"}});
  request.constraint_field = path;
}

void read_template_variables(const ApiFields& fields, ChatRequest& request) {
  if (const std::optional<Value> variables = fields.object("chat_template_kwargs"))
    request.template_variables = *variables;
}

void add_template_variable(ChatRequest& request, const std::string& name, Value value) {
  std::vector<Value::Entry> all;
  if (request.template_variables.is_dict())
    all.assign(request.template_variables.entries().begin(), request.template_variables.entries().end());
  all.emplace_back(name, std::move(value));
  request.template_variables = Value::dict(std::move(all));
}

}  // namespace tg::llm
