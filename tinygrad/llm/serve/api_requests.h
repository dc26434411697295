/// \file What clients ask for: bodies of requests as checked structs.
/// Sources: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/messages, and for rerank
/// https://jina.ai/reranker (the fields; unknown ones are refused).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tinygrad/llm/sampler.h"
#include "tinygrad/llm/value.h"

namespace tg::llm {

// Limits of requests.
inline constexpr int kApiJsonDepth = 64;
inline constexpr size_t kApiJsonValues = 200'000;
inline constexpr int64_t kApiChoices = 16;  ///< `n`
inline constexpr size_t kApiPrompts = 64;   ///< of one completion request; times n at most kApiReplies
inline constexpr size_t kApiReplies = 64;
inline constexpr size_t kApiMessages = 4096;
inline constexpr size_t kApiTools = 128;
inline constexpr size_t kApiStops = 16;
inline constexpr size_t kApiStopBytes = 256;
inline constexpr size_t kApiBiases = 1024;
inline constexpr size_t kApiInputs = 2048;  ///< texts of one embedding request
inline constexpr int64_t kApiTopLogprobs = 20;
inline constexpr int64_t kApiLogprobEntries = 1 << 18;  ///< logprobs of an answer that is no stream
inline constexpr size_t kApiTokens = 1 << 17;           ///< in an answer of /tokenize

/// Parses a body: ApiError (400) for what is no JSON object within the limits.
Value parse_api_body(std::string_view body);

/// What chats and completions have in common.
struct ApiReplyOptions {
  std::string model;        ///< as the client named it; may be empty
  int64_t max_tokens = -1;  ///< -1: until the context is full
  int64_t choices = 1;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  bool stream = false, include_usage = false;
  int64_t logprobs = -1;  ///< -1: none; n: of each token and of the n most likely ones
};

enum class ToolChoice : uint8_t { kNone, kAuto, kRequired };

/// What every API that chats is translated to.
struct ChatRequest {
  ApiReplyOptions reply;
  Value messages;                           ///< as templates read them: content is text, arguments of calls are objects
  std::string messages_field = "messages";  ///< of the request, that they come from
  Value tools;                              ///< in OpenAI's form; none: there are none
  ToolChoice tool_choice = ToolChoice::kAuto;
  bool one_call = false;         ///< the reply ends with its first call
  Value constraint;              ///< a JSON schema the reply must satisfy; none: any text
  std::string constraint_field;  ///< of the request, that the schema comes from
  Value template_variables;      ///< further variables of the template; none: no others
};

/// A request of /v1/responses.
struct ResponsesRequest {
  ChatRequest chat;
  Value echo;  ///< the fields that the answer repeats
};

using TextOrTokens = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  ApiReplyOptions reply;
  std::vector<TextOrTokens> prompts;
  bool echo = false;
};

struct EmbeddingRequest {
  std::string model;
  std::vector<TextOrTokens> inputs;
  bool base64 = false;
  int64_t dimensions = 0;  ///< 0: all
};

struct RerankRequest {
  std::string model, query;
  std::vector<std::string> documents;
  int64_t top = 0;  ///< how many of the best are wanted; 0: all
  bool with_documents = false;
};

/// Check a body; ApiError (400) names the field, also one that this server does not know. `defaults` hold for sampling
/// options the client leaves open.
ChatRequest read_chat_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary);
CompletionRequest read_completion_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary);
EmbeddingRequest read_embedding_request(const Value& body, int64_t vocabulary);
RerankRequest read_rerank_request(const Value& body);
ResponsesRequest read_responses_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary);
/// The same of /v1/messages, or of its count_tokens, which generates nothing.
ChatRequest read_messages_request(const Value& body, const SamplingOptions& defaults, int64_t vocabulary,
                                  bool generates = true);

}  // namespace tg::llm
