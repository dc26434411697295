/// \file What the routes of the language model server share.
#pragma once
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tinygrad/llm/chat_prompt.h"
#include "tinygrad/llm/engine.h"
#include "tinygrad/llm/json_constraint.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/api_requests.h"
#include "tinygrad/llm/serve/embedding_queue.h"
#include "tinygrad/llm/serve/schema_store.h"
#include "tinygrad/llm/server.h"

namespace tg::llm {

/// Answers by route and status, and how long they took.
class RequestCounts {
 public:
  void add(std::string_view route, int status, double seconds);
  struct Row {
    uint64_t count = 0;
    double seconds = 0;
  };
  std::map<std::pair<std::string, int>, Row> rows() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, Row> rows_;
};

struct ServerState {
  ServedModel model;
  ServeOptions options;
  std::unique_ptr<Engine> engine;           ///< none: the model makes embeddings only
  std::optional<ChatEncoder> chat_encoder;  ///< where there is a template
  RequestCounts counts;
  std::once_flag token_bytes_made;
  std::unique_ptr<TokenBytes> token_bytes;
  std::unique_ptr<EmbeddingQueue> embeddings;  ///< of a model that makes them itself
  std::atomic<bool> ready{false};              ///< the members above are there; false while they are made
  std::atomic<bool> health_waits{false};       ///< a handler waits for `ready`
  SchemaStore schemas;
  std::atomic<const io::HttpServer*> http{nullptr};  ///< once it runs
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();

  int64_t vocabulary() const;
  const Tokenizer& tokenizer() const { return *model.tokenizer; }
  /// Returns the vocabulary as bytes, for constrained sampling; made when it is first asked for.
  const TokenBytes& vocabulary_bytes();
  /// ApiError (404) unless the name is empty or one of the model's.
  void check_model(const std::string& name) const;
  /// Returns the tokens of a text that is no chat; ApiError (400) where they are none.
  std::vector<int32_t> tokens_of(const TextOrTokens& input) const;
};

using ReplyPtr = std::shared_ptr<io::HttpReply>;

inline constexpr std::string_view kHealthy = R"({"status":"ok"})";

/// Turns the exception that is being handled into an answer.
void refuse_request(const ReplyPtr& reply, ErrorShape shape = ErrorShape::kOpenAi);

// The routes. Each answers, or throws what `refuse_request` turns into an answer.
void serve_chat(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_completions(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_responses(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_messages(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_count_tokens(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_rerank(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_embeddings(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_models(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_tokenize(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_detokenize(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_health(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_metrics(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);
void serve_page(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply);

/// Returns the chat page (chat_page.html).
std::string_view chat_page();

}  // namespace tg::llm
