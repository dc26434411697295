/// \file How the answer to a request for replies is written, whole or as a stream of events: one class for each API.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/llm/engine.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/api_requests.h"
#include "tinygrad/llm/serve/choice_text.h"
#include "tinygrad/llm/tokenizer.h"

namespace tg::llm {

/// One reply, as far as it has come.
struct ReplyChoice {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  std::vector<TokenRecord> records;  ///< tokens that are not written yet
  std::string stop_string;           ///< that ended it; empty: none did
  ReplyEnd end;
  int64_t text_offset = 0;  ///< characters before the next token, of completions
};

/// What is known of the replies to one request.
struct ReplyState {
  const Tokenizer& tokenizer;
  std::string model;  ///< as the answer names it
  ApiReplyOptions options;
  std::vector<size_t> prompt_tokens;  ///< of each prompt
  std::vector<std::string> echo;      ///< text before the replies of each prompt; empty: none
  std::vector<ReplyChoice> choices;   ///< options.choices for each prompt
  int64_t created = 0;                ///< seconds since 1970

  size_t prompt_of(size_t choice) const { return choice / static_cast<size_t>(options.choices); }
};

/// Tokens of a request, which counts each prompt once.
struct ReplyUsage {
  int64_t prompt = 0, cached = 0, reply = 0;
};
ReplyUsage usage_of(const ReplyState& s);

/// Writes one answer. Strings are bodies or events of a stream, ready to be sent.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  /// Returns the events that begin a stream.
  virtual std::string begin() = 0;
  /// Returns the events of what a reply gained; it is not part of the choice yet.
  virtual std::string delta(size_t choice, const ReplyDelta& delta) = 0;
  /// Returns the events that end a reply.
  virtual std::string end(size_t choice) = 0;
  /// Returns the events that end a stream, when all replies have ended.
  virtual std::string finish() = 0;
  /// Returns the events that end a stream which failed.
  virtual std::string failure(const ApiError& e) = 0;
  /// Returns the body of the whole answer, when all replies have ended.
  virtual std::string whole() = 0;
  virtual ErrorShape errors() const { return ErrorShape::kOpenAi; }
};

/// Makes the format of an answer; the state outlives it.
using AnswerFormatFactory = std::function<std::unique_ptr<AnswerFormat>(ReplyState&)>;
std::unique_ptr<AnswerFormat> make_chat_answer(ReplyState& s);
std::unique_ptr<AnswerFormat> make_completion_answer(ReplyState& s);
std::unique_ptr<AnswerFormat> make_messages_answer(ReplyState& s);
/// `echo`: fields of the request that the answer repeats.
AnswerFormatFactory responses_answer(Value echo);

/// Returns an event of a stream; `name` may be empty.
std::string stream_event(std::string_view name, std::string_view json);
/// Returns an object as JSON with one more member, whose value is JSON.
std::string with_member(const Value& object, std::string_view name, std::string_view json);
/// Returns `prefix` and 24 random letters and digits.
std::string random_id(std::string_view prefix);

}  // namespace tg::llm
