/// \file One request for replies under way: its choices come from the engine token by token and go to the client, whole
/// or as a stream of events.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/io/http_server.h"
#include "tinygrad/llm/engine.h"
#include "tinygrad/llm/serve/answer_format.h"
#include "tinygrad/llm/serve/api_requests.h"
#include "tinygrad/llm/serve/choice_text.h"
#include "tinygrad/llm/tokenizer.h"

namespace tg::llm {

class JsonConstraint;

/// What is asked of the engine, and how the answer is written.
struct ReplyPlan {
  AnswerFormatFactory format;
  std::string model;  ///< as the answer names it
  ApiReplyOptions options;
  std::vector<std::vector<int32_t>> prompts;  ///< each gets options.choices replies
  std::vector<std::string> echo;              ///< text before the replies of each prompt; empty: none
  std::optional<ReplyForm> form;              ///< how calls and reasoning are marked
  bool is_call = false;                       ///< the reply as a whole is the JSON of one call
  bool one_call = false;                      ///< the reply ends with its first call
  std::vector<int32_t> stop_tokens;
  std::function<std::shared_ptr<JsonConstraint>()> constraint;  ///< makes one for each reply; empty: any text
  std::string constraint_field;                                 ///< of the request, that the constraint comes from
};

class ReplyJob : public std::enable_shared_from_this<ReplyJob> {
 public:
  /// Submits the plan. The answer is sent to `reply` in time; nothing is sent where this throws: QueueFullError and
  /// ValueError of the engine.
  static void start(Engine& engine, const Tokenizer& tokenizer, ReplyPlan plan, std::shared_ptr<io::HttpReply> reply);

  ReplyJob(const Tokenizer& tokenizer, ReplyPlan plan, std::shared_ptr<io::HttpReply> reply);

 private:
  EngineRequest request(size_t choice);
  bool on_token(size_t choice, const ReplyToken& token);
  void on_end(size_t choice, const ReplyEnd& end);
  void take(size_t choice, ReplyDelta delta);
  void deliver(size_t choice, ReplyDelta delta);
  void fail(const ReplyEnd& end);
  void complete();

  Tokenizer tokenizer_;
  ReplyPlan plan_;
  std::shared_ptr<io::HttpReply> reply_;
  std::mutex mutex_;  // guards what follows: replies may begin before the request is entirely submitted
  ReplyState state_;
  std::unique_ptr<AnswerFormat> format_;
  std::vector<ChoiceText> texts_;  // of each choice
  std::vector<std::shared_ptr<RequestTicket>> tickets_;
  size_t ended_ = 0;
  bool failed_ = false;
};

}  // namespace tg::llm
