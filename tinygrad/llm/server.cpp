#include "tinygrad/llm/server.h"

#include <algorithm>
#include <future>

#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/server_state.h"

namespace tg::llm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUpTokens = 48;  // of a prompt

struct Route {
  std::string_view method, path;
  void (*serve)(ServerState&, const io::HttpRequest&, const ReplyPtr&);
  bool prefix = false;  ///< serves what follows after a slash too
};

constexpr Route kRoutes[] = {
    {"GET", "/", serve_page},
    {"GET", "/health", serve_health},
    {"GET", "/v1/health", serve_health},
    {"GET", "/metrics", serve_metrics},
    {"GET", "/v1/models", serve_models, true},
    {"POST", "/v1/chat/completions", serve_chat},
    {"POST", "/v1/completions", serve_completions},
    {"POST", "/v1/embeddings", serve_embeddings},
    {"POST", "/tokenize", serve_tokenize},
    {"POST", "/detokenize", serve_detokenize},
};

/// Counts an answer when its status is known.
class CountedReply final : public io::HttpReply {
 public:
  CountedReply(RequestCounts& counts, std::string_view route, ReplyPtr reply)
      : counts_(counts), route_(route), reply_(std::move(reply)) {}
  void send(io::HttpResponse response) override {
    counts_.add(route_, response.status, seconds());
    reply_->send(std::move(response));
  }
  void start(io::HttpResponse head) override {
    status_ = head.status;
    reply_->start(std::move(head));
  }
  void write(std::string piece) override { reply_->write(std::move(piece)); }
  void finish() override {
    counts_.add(route_, status_, seconds());
    reply_->finish();
  }
  bool closed() const override { return reply_->closed(); }
  void on_close(std::function<void()> then) override { reply_->on_close(std::move(then)); }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  RequestCounts& counts_;
  std::string_view route_;
  ReplyPtr reply_;
  int status_ = 200;
  Clock::time_point begin_ = Clock::now();
};

/// Turns what a route threw into an answer.
void refuse_request(const ReplyPtr& reply) {
  try {
    throw;
  } catch (const ApiError& e) { reply->send({e.status, api_error_json(e)}); } catch (const QueueFullError& e) {
    reply->send({429, api_error_json(429, e.what(), {}, "queue_full"), "application/json", {{"Retry-After", "1"}}});
  } catch (const Cancelled&) {
    reply->send({503, api_error_json(503, "the server is stopping")});
  } catch (const ValueError& e) {
    reply->send({400, api_error_json(400, e.what())});
  } catch (const std::exception&) {  // its text could hold what others sent
    reply->send({500, api_error_json(500, "internal error")});
  }
}

bool is_json(const io::HttpRequest& request) {
  const std::string_view type = request.header("content-type").value_or("");
  return io::same_header_name(type.substr(0, std::min(type.find(';'), type.size())), "application/json");
}

void dispatch(ServerState& s, io::HttpRequest request, ReplyPtr reply) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string allowed;
  for (const Route& route : kRoutes) {
    const bool below = route.prefix && request.path.starts_with(route.path) && request.path[route.path.size()] == '/';
    if (request.path != route.path && !below) continue;
    if (method != route.method) {
      allowed = route.method;
      continue;
    }
    const auto counted = std::make_shared<CountedReply>(s.counts, route.path, reply);
    try {
      if (method == "POST" && !is_json(request))
        throw ApiError(415, "expected the header Content-Type: application/json");
      return route.serve(s, request, counted);
    } catch (...) { return refuse_request(counted); }
  }
  const ReplyPtr counted = std::make_shared<CountedReply>(s.counts, "other", std::move(reply));
  if (allowed.empty()) return counted->send({404, api_error_json(404, "there is no such path")});
  counted->send({405, api_error_json(405, str("expected ", allowed)), "application/json", {{"Allow", allowed}}});
}

/// Generates a few tokens for `count` prompts at once; each begins with another token.
void generate_some(Engine& engine, int64_t count) {
  const int64_t context = engine.model().max_context();
  std::vector<std::promise<std::string>> done(static_cast<size_t>(count));
  std::vector<EngineRequest> requests(static_cast<size_t>(count));
  for (size_t i = 0; i < requests.size(); i++) {
    EngineRequest& r = requests[i];
    r.prompt.assign(static_cast<size_t>(std::min<int64_t>(kWarmUpTokens, context - 1)), 0);
    r.prompt[0] = static_cast<int32_t>(i % static_cast<size_t>(engine.model().vocab_size()));
    r.max_tokens = count + 2;
    r.sampling.temperature = 0;
    r.on_end = [&done, i](const ReplyEnd& e) { done[i].set_value(e.error); };
  }
  engine.submit(std::move(requests));
  for (std::promise<std::string>& one : done) {
    const std::string error = one.get_future().get();
    TG_CHECK(Error, error.empty(), "[serve] the model failed: ", error);
  }
}

/// Has the kernels of prompts and of batches of every size compiled, so that no client waits for them and their memory
/// is taken from the start.
void warm_up(Engine& engine, int64_t max_queue) {
  generate_some(engine, 1);
  const int64_t all = std::min(engine.model().max_sequences(), max_queue);
  if (all > 1) generate_some(engine, all);
}

}  // namespace

int64_t ServerState::vocabulary() const {
  return model.model ? model.model->vocab_size() : model.tokenizer->vocab_size();
}

const TokenBytes& ServerState::vocabulary_bytes() {
  std::call_once(token_bytes_made, [&] {
    std::vector<std::string> bytes(static_cast<size_t>(vocabulary()));
    const auto known = std::min<int64_t>(vocabulary(), tokenizer().vocab_size());
    for (int32_t t = 0; t < known; t++)
      if (!tokenizer().is_special(t)) bytes[static_cast<size_t>(t)] = tokenizer().token_bytes(t);
    token_bytes = std::make_unique<TokenBytes>(std::move(bytes));
  });
  return *token_bytes;
}

void ServerState::check_model(const std::string& name) const {
  if (name.empty() || name == model.id) return;
  if (std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end()) return;
  throw ApiError(404, str("there is no model '", name, "', this server has '", model.id, "'"), "model",
                 "model_not_found");
}

std::vector<int32_t> ServerState::tokens_of(const TextOrTokens& input) const {
  if (const auto* tokens = std::get_if<std::vector<int32_t>>(&input)) return *tokens;
  return tokenizer().encode(std::get<std::string>(input));
}

struct LlmServer::Impl {
  ServerState state;
  std::unique_ptr<io::HttpServer> http;
};

LlmServer::LlmServer(ServedModel model, ServeOptions options) : impl_(std::make_unique<Impl>()) {
  TG_CHECK(ValueError, model.tokenizer && (model.model || model.embed),
           "[serve] expected a tokenizer, and a model or embeddings");
  ServerState& s = impl_->state;
  s.model = std::move(model);
  s.options = std::move(options);
  if (s.model.chat_template) s.chat_encoder.emplace(*s.model.tokenizer);
  if (s.model.model) {
    s.engine = std::make_unique<Engine>(s.model.model, s.options.engine);
    if (s.options.warm_up) warm_up(*s.engine, s.options.engine.max_queue);
  }
  io::HttpOptions http = s.options.http;
  http.open_paths = {"/", "/health", "/v1/health"};
  http.error_body = [](int status, std::string_view message) { return api_error_json(status, message); };
  impl_->http = std::make_unique<io::HttpServer>(std::move(http), [&s](io::HttpRequest request, ReplyPtr reply) {
    dispatch(s, std::move(request), std::move(reply));
  });
  s.http = impl_->http.get();
}

LlmServer::~LlmServer() {
  impl_->http->stop();
  impl_->http->wait();
  if (impl_->state.engine) impl_->state.engine->stop();  // its replies go before the HTTP server does
  impl_->http.reset();
}

uint16_t LlmServer::port() const { return impl_->http->port(); }
void LlmServer::stop() { impl_->http->stop(); }
void LlmServer::wait() { impl_->http->wait(); }
bool LlmServer::wait_for(double seconds) { return impl_->http->wait_for(seconds); }
EngineCounters LlmServer::engine_counters() const {
  return impl_->state.engine ? impl_->state.engine->counters() : EngineCounters{};
}

}  // namespace tg::llm
