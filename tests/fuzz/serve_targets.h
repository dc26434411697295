/// \file Fuzz targets of what an HTTP client sends: a request byte by byte, and the JSON bodies of the API.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tinygrad/base/error.h"
#include "tinygrad/io/http_message.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/api_requests.h"

namespace tg::fuzz {

inline std::string_view as_text(std::span<const uint8_t> in) {
  return {reinterpret_cast<const char*>(in.data()), in.size()};
}

/// One request; bytes arrive one by one, as the network may bring them.
inline void http(std::span<const uint8_t> in) {
  const std::string_view text = as_text(in);
  io::HttpLimits limits;
  limits.body_bytes = 1000;
  const auto refuse = [](const io::HttpError& e) {
    TG_ASSERT(e.status >= 400 && e.status < 500, "refused with another status");
    throw FormatError("[http] fuzz: " + e.message);
  };
  io::HttpHeadScanner scanner(limits);
  std::optional<size_t> head;
  for (size_t n = 1; n <= text.size() && !head && !scanner.error(); n++) head = scanner.scan(text.substr(0, n));
  if (scanner.error()) refuse(*scanner.error());
  if (!head) throw FormatError("[http] fuzz: incomplete");
  TG_ASSERT(*head <= limits.head_bytes, "limit passed");
  const io::HttpHead parsed = io::parse_http_head(text.substr(0, *head), limits);
  if (parsed.error) refuse(*parsed.error);
  TG_ASSERT(parsed.request.headers.size() <= limits.headers, "limit passed");
  TG_ASSERT(!(parsed.body.chunked && parsed.body.length), "two lengths");
  if (!parsed.body.chunked) {
    if (parsed.body.length.value_or(0) > text.size() - *head) throw FormatError("[http] fuzz: incomplete body");
    return;
  }
  io::HttpChunkDecoder chunks(limits.body_bytes);
  std::string body;
  for (size_t n = *head; n < text.size() && !chunks.done() && !chunks.error(); n++)
    chunks.decode(text.substr(n, 1), body);
  TG_ASSERT(body.size() <= limits.body_bytes, "limit passed");
  if (chunks.error()) refuse(*chunks.error());
  if (!chunks.done()) throw FormatError("[http] fuzz: incomplete chunks");
}

/// A body; its first letter says of which route.
inline void api_request(std::span<const uint8_t> in) {
  constexpr int64_t kVocabulary = 300;
  const std::string_view text = as_text(in);
  if (text.empty()) throw FormatError("[api] fuzz: empty");
  try {
    const llm::Value body = llm::parse_api_body(text.substr(1));
    const auto check = [](const llm::ApiReplyOptions& o) {
      TG_ASSERT(o.choices >= 1 && o.choices <= llm::kApiChoices && o.max_tokens >= -1, "out of range");
      TG_ASSERT(o.sampling.temperature >= 0 && o.sampling.temperature <= 2, "out of range");
      for (const auto& [token, bias] : o.sampling.logit_bias) TG_ASSERT(token >= 0 && token < kVocabulary, "no token");
    };
    switch (text[0]) {
      case 'c': return check(llm::read_chat_request(body, {}, kVocabulary).reply);
      case 't': return check(llm::read_completion_request(body, {}, kVocabulary).reply);
      case 'r': return check(llm::read_responses_request(body, {}, kVocabulary).chat.reply);
      case 'm': return check(llm::read_messages_request(body, {}, kVocabulary).reply);
      case 'k': llm::read_rerank_request(body); return;
      default: llm::read_embedding_request(body, kVocabulary);
    }
  } catch (const llm::ApiError& e) {
    TG_ASSERT(e.status >= 400 && e.status < 500, "refused with another status");
    TG_ASSERT(!llm::api_error_json(e).empty(), "no text");
    throw FormatError(str("[api] fuzz: ", e.what()));
  }
}

}  // namespace tg::fuzz
