/// \file The text of one reply while its tokens arrive: whole characters, cut at stop strings, split into content,
/// reasoning and calls of tools.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/llm/chat_reply.h"
#include "tinygrad/llm/engine.h"
#include "tinygrad/llm/tokenizer.h"
#include "tinygrad/llm/value.h"

namespace tg::llm {

/// A token with what logprobs say of it.
struct TokenRecord {
  int32_t token = 0;
  double logprob = 0;
  std::vector<TokenProbability> top;
};

class ChoiceText {
 public:
  /// `form`: how calls and reasoning are marked; nothing: all text is content.
  ChoiceText(const Tokenizer& tokenizer, std::vector<std::string> stop, std::optional<ReplyForm> form);
  /// Takes a token and returns what it makes certain.
  ReplyDelta add(const ReplyToken& token, bool record);
  /// Returns whether a stop string ended the text.
  bool stopped() const { return stops_.stopped(); }
  /// Returns the stop string that ended the text; empty: none did.
  const std::string& stop_string() const { return stops_.matched(); }
  /// Takes the end and returns what was held back.
  ReplyDelta finish();
  /// Returns the tokens recorded since the last call.
  std::vector<TokenRecord> take_records() { return std::exchange(records_, {}); }

 private:
  ReplyDelta parsed(std::string text);
  StreamDecoder decoder_;
  StopStrings stops_;
  std::optional<ReplyParser> parser_;
  std::vector<TokenRecord> records_;
};

/// Returns the `logprobs` of a chat's choice as JSON: {"content": [{"token", "bytes", "logprob", "top_logprobs"}]}. It
/// is text at once, since as a Value it takes twenty times the memory.
std::string chat_logprobs(const Tokenizer& tokenizer, const std::vector<TokenRecord>& records);
/// Returns how many characters of UTF-8 begin in these bytes.
int64_t count_characters(std::string_view bytes);
/// Returns the `logprobs` of a completion's choice as JSON: parallel lists; `offset` is the character at which the
/// first token begins and moves on.
std::string completion_logprobs(const Tokenizer& tokenizer, const std::vector<TokenRecord>& records, int64_t& offset);
/// Returns the entry of `tool_calls` in a message; with `index` in a delta.
Value tool_call_value(const ToolCall& call, std::optional<int64_t> index = {});

}  // namespace tg::llm
