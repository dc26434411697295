/// \file A language model behind the HTTP API of OpenAI: chats, completions, embeddings, with continuous batching, and
/// a small chat page. docs/serve.md lists routes, fields and limits.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/io/http_server.h"
#include "tinygrad/llm/engine.h"
#include "tinygrad/llm/language_model.h"
#include "tinygrad/llm/model_template.h"
#include "tinygrad/llm/sampler.h"
#include "tinygrad/llm/tokenizer.h"

namespace tg::llm {

/// What is served. Without `model` there are embeddings only; without `embed` the model makes them.
struct ServedModel {
  std::string id;                    ///< its name in the API
  std::vector<std::string> aliases;  ///< further names that requests may use
  std::shared_ptr<LanguageModel> model;
  std::optional<Tokenizer> tokenizer;
  ModelTemplate chat_template;  ///< without one chats are refused
  /// Returns one vector for each text, all of one length.
  std::function<std::vector<std::vector<float>>(std::span<const std::string> texts)> embed;
  int64_t embedding_context = 512;  ///< tokens of a text at most, for `embed`
  bool embed_last_token = false;    ///< without `embed`: a text's vector is its last token's; else the mean of all
};

struct ServeOptions {
  io::HttpOptions http = {.port = 8000};
  EngineOptions engine = {};
  SamplingOptions sampling = {};  ///< for what requests leave open; each request draws a seed
  bool warm_up = true;            ///< compile what requests will need before the first one is accepted
};

class LlmServer {
 public:
  /// Binds the address and answers at once: with 503 until `load`, which a thread of the server calls, has given the
  /// model and it is warm. Throws as HttpServer.
  LlmServer(std::function<ServedModel()> load, ServeOptions options = {});
  /// The same with a model that is there; returns when it is warm. ValueError for a model that can do nothing.
  LlmServer(ServedModel model, ServeOptions options = {});
  /// Stops: replies under way end, at the latest after `drain_s`.
  ~LlmServer();
  LlmServer(const LlmServer&) = delete;
  LlmServer& operator=(const LlmServer&) = delete;

  /// Waits until the model is loaded and warm; false when the server was stopped before that. Throws what `load` threw,
  /// ValueError for a model that can do nothing, Cancelled when a StopScope of the caller asks for it.
  bool wait_ready();
  /// Returns the model's name in the API; once it is loaded.
  const std::string& model_id() const;
  uint16_t port() const;
  /// Lets replies under way finish, takes no new requests. Returns at once.
  void stop();
  void wait();
  /// Returns whether the server stopped within that time.
  bool wait_for(double seconds);
  EngineCounters engine_counters() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::llm
