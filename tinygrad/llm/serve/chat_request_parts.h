/// \file What requests of several APIs that chat have in common, on their way to one ChatRequest.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/serve/api_fields.h"
#include "tinygrad/llm/serve/api_requests.h"

namespace tg::llm {

inline constexpr int64_t kApiMaxTokens = int64_t{1} << 31;

/// Fields that change no answer, or none that this server could give.
inline constexpr std::string_view kIgnoredFields[] = {"cache_control",
                                                      "cache_prompt",
                                                      "inference_geo",
                                                      "metadata",
                                                      "prediction",
                                                      "priority",
                                                      "prompt_cache_key",
                                                      "prompt_cache_options",
                                                      "prompt_cache_retention",
                                                      "request_id",
                                                      "safety_identifier",
                                                      "service_tier",
                                                      "store",
                                                      "user"};

SamplingOptions read_sampling(const ApiFields& fields, const SamplingOptions& defaults, int64_t vocabulary);

/// A type of parts of a content, and the field that holds its text.
struct TextPart {
  std::string_view type, field;
};
/// Returns the text of a field that is a string or a list of parts; empty when it is absent. Parts of other types are
/// refused: the model reads text only.
std::string read_text(const ApiFields& fields, std::string_view name, std::span<const TextPart> parts);

/// Returns the arguments of a call, an object as JSON text.
Value read_arguments(const std::string& text, const std::string& path);
/// Returns a call of a tool as templates read it.
Value call_of_tool(const std::string& id, const std::string& name, const Value& arguments);

/// Returns a tool in OpenAI's form from an object with its name, its description and the schema of its arguments, which
/// stands in the field `schema`.
Value read_function(const Value& object, const std::string& path, std::string_view schema);
/// Returns the choice that a string names: none, auto or required.
ToolChoice named_tool_choice(const Value& choice);
/// Says whether and which tools the reply calls; `only` names the one it must call. Comes after `request.tools`.
void choose_tools(ChatRequest& request, ToolChoice choice, const std::string& only = {});

/// Reads a format of the reply: text, json_object or json_schema, whose schema stands in it or in `json_schema`.
void read_format(const ApiFields& format, const std::string& path, ChatRequest& request);

/// Reads `chat_template_kwargs`.
void read_template_variables(const ApiFields& fields, ChatRequest& request);
/// Adds a variable of the template, in place of an earlier one of this name.
void add_template_variable(ChatRequest& request, const std::string& name, Value value);

}  // namespace tg::llm
