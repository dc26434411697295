#include "tinygrad/llm/server.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <thread>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/llm/serve/api_error.h"
#include "tinygrad/llm/serve/server_state.h"

namespace tg::llm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUpTokens = 48;  // of a prompt
constexpr std::chrono::milliseconds kHealthWait{500}, kHealthPoll{20};
constexpr std::chrono::milliseconds kLoadPoll{100};  // between looks at whether loading is still wanted

struct Route {
  std::string_view method, path;
  void (*serve)(ServerState&, const io::HttpRequest&, const ReplyPtr&);
  bool prefix = false;  ///< serves what follows after a slash too
  ErrorShape errors = ErrorShape::kOpenAi;
  bool open = false;  ///< asks for no key
};

constexpr Route kRoutes[] = {
    {"GET", "/", serve_page, false, ErrorShape::kOpenAi, true},
    {"GET", "/health", serve_health, false, ErrorShape::kOpenAi, true},
    {"GET", "/v1/health", serve_health, false, ErrorShape::kOpenAi, true},
    {"GET", "/metrics", serve_metrics},
    {"GET", "/v1/models", serve_models, true},
    {"POST", "/v1/chat/completions", serve_chat},
    {"POST", "/v1/completions", serve_completions},
    {"POST", "/v1/responses", serve_responses},
    {"POST", "/v1/messages", serve_messages, false, ErrorShape::kAnthropic},
    {"POST", "/v1/messages/count_tokens", serve_count_tokens, false, ErrorShape::kAnthropic},
    {"POST", "/v1/embeddings", serve_embeddings},
    {"POST", "/v1/rerank", serve_rerank},
    {"POST", "/rerank", serve_rerank},
    {"POST", "/v1/reranking", serve_rerank},
    {"POST", "/reranking", serve_rerank},
    {"POST", "/tokenize", serve_tokenize},
    {"POST", "/detokenize", serve_detokenize},
};

/// Returns a path without the slashes at its end: clients join addresses with one too many.
std::string_view plain_path(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path;
}

/// Returns the shape of the errors of a path, known or not.
ErrorShape errors_of(std::string_view path) {
  for (const Route& route : kRoutes)
    if (plain_path(path) == route.path) return route.errors;
  return ErrorShape::kOpenAi;
}

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

bool is_json(const io::HttpRequest& request) {
  const std::string_view type = request.header("content-type").value_or("");
  return io::same_header_name(type.substr(0, std::min(type.find(';'), type.size())), "application/json");
}

/// Waits a moment for the model, so that a client that asks for its health again at once is no load; one at most, and
/// only where another handler is left for the others. Returns whether the model is there.
bool wait_for_model(ServerState& s, const ReplyPtr& reply) {
  if (s.options.http.handler_threads < 2 || s.health_waits.exchange(true)) return s.ready.load();
  for (const auto start = Clock::now(); Clock::now() - start < kHealthWait && !reply->closed() && !s.ready.load();)
    std::this_thread::sleep_for(kHealthPoll);
  s.health_waits = false;
  return s.ready.load();
}

/// Answers while the model is being loaded.
void say_loading(ServerState& s, const io::HttpRequest& request, const ReplyPtr& reply, ErrorShape shape) {
  const bool health = request.path.ends_with("/health");
  if (health && wait_for_model(s, reply)) return reply->send({200, std::string(kHealthy)});
  const std::string body =
      health ? R"({"status":"loading"})" : api_error_json({503, "the model is being loaded", {}, "loading"}, shape);
  reply->send({503, body, "application/json", {{"Retry-After", "1"}}});
}

void dispatch(ServerState& s, io::HttpRequest request, ReplyPtr reply) {
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  request.path = plain_path(request.path);
  std::string allowed;
  for (const Route& route : kRoutes) {
    const bool below = route.prefix && request.path.starts_with(route.path) && request.path[route.path.size()] == '/';
    if (request.path != route.path && !below) continue;
    if (method != route.method) {
      allowed = route.method;
      continue;
    }
    const auto counted = std::make_shared<CountedReply>(s.counts, route.path, reply);
    if (!s.ready.load(std::memory_order_acquire)) return say_loading(s, request, counted, route.errors);
    try {
      if (method == "POST" && !is_json(request))
        throw ApiError(415, "expected the header Content-Type: application/json");
      return route.serve(s, request, counted);
    } catch (...) { return refuse_request(counted, route.errors); }
  }
  const ReplyPtr counted = std::make_shared<CountedReply>(s.counts, "other", std::move(reply));
  const ErrorShape shape = errors_of(request.path);
  if (allowed.empty()) return counted->send({404, api_error_json(404, "there is no such path", shape)});
  counted->send({405, api_error_json(405, str("expected ", allowed), shape), "application/json", {{"Allow", allowed}}});
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

void refuse_request(const ReplyPtr& reply, ErrorShape shape) {
  try {
    throw;
  } catch (const ApiError& e) { reply->send({e.status, api_error_json(e, shape)}); } catch (const QueueFullError& e) {
    const ApiError error(429, e.what(), {}, "queue_full");
    reply->send({429, api_error_json(error, shape), "application/json", {{"Retry-After", "1"}}});
  } catch (const Cancelled&) {
    reply->send({503, api_error_json(503, "the server is stopping", shape)});
  } catch (const ValueError& e) {
    reply->send({400, api_error_json(400, e.what(), shape)});
  } catch (const std::exception&) {  // its text could hold what others sent
    reply->send({500, api_error_json(500, "internal error", shape)});
  }
}

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
  std::atomic<bool> abandoned{false};  // what is being loaded is not wanted any more
  std::mutex mutex;                    // guards what follows, and the engine until it is warm
  std::condition_variable loaded;
  bool done = false;
  std::exception_ptr failure;
  std::thread loader;

  void listen();
  void load(const std::function<ServedModel()>& make);
  void prepare(ServedModel model);
  void abandon();
};

void LlmServer::Impl::listen() {
  io::HttpOptions options = state.options.http;
  for (const Route& route : kRoutes)
    if (route.open)
      options.open_paths.insert(options.open_paths.end(), {std::string(route.path), str(route.path, "/")});
  options.key_headers = {"x-api-key"};  // of Anthropic's clients
  options.error_body = [](int status, std::string_view message, std::string_view path) {
    return api_error_json(status, message, errors_of(path));
  };
  http = std::make_unique<io::HttpServer>(std::move(options), [&s = state](io::HttpRequest request, ReplyPtr reply) {
    dispatch(s, std::move(request), std::move(reply));
  });
  state.http = http.get();
}

/// Runs in a thread of its own.
void LlmServer::Impl::load(const std::function<ServedModel()>& make) {
  const StopScope stoppable(abandoned);
  std::exception_ptr failed;
  try {
    prepare(make());
  } catch (...) { failed = std::current_exception(); }
  const std::lock_guard lock(mutex);
  done = true;
  failure = failed;
  loaded.notify_all();
}

void LlmServer::Impl::prepare(ServedModel model) {
  TG_CHECK(ValueError, model.tokenizer && (model.model || model.embed),
           "[serve] expected a tokenizer, and a model or embeddings");
  state.model = std::move(model);
  if (state.model.chat_template.chat) state.chat_encoder.emplace(*state.model.tokenizer);
  if (state.model.embed) state.embeddings = std::make_unique<EmbeddingQueue>(state.options.engine.max_queue);
  if (state.model.model) {
    {
      const std::lock_guard lock(mutex);
      if (abandoned) return;
      state.engine = std::make_unique<Engine>(state.model.model, state.options.engine);
    }
    if (state.options.warm_up) warm_up(*state.engine, state.options.engine.max_queue);
  }
  state.ready.store(true, std::memory_order_release);
}

/// Ends loading and warming up soon, and waits for that.
void LlmServer::Impl::abandon() {
  {
    const std::lock_guard lock(mutex);
    abandoned = true;
    if (state.engine && !done) state.engine->stop();
  }
  if (loader.joinable()) loader.join();
}

LlmServer::LlmServer(std::function<ServedModel()> load, ServeOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->state.options = std::move(options);
  impl_->listen();
  impl_->loader = std::thread([impl = impl_.get(), load = std::move(load)] { impl->load(load); });
}

LlmServer::LlmServer(ServedModel model, ServeOptions options)
    : LlmServer([model = std::move(model)] { return model; }, std::move(options)) {
  wait_ready();
}

LlmServer::~LlmServer() {
  impl_->http->stop();
  impl_->abandon();
  impl_->http->wait();
  // Replies go before the HTTP server does.
  if (impl_->state.engine) impl_->state.engine->stop();
  impl_->state.embeddings.reset();
  impl_->http.reset();
}

bool LlmServer::wait_ready() {
  std::unique_lock lock(impl_->mutex);
  while (!impl_->loaded.wait_for(lock, kLoadPoll, [&] { return impl_->done; })) {
    if (!impl_->http->wait_for(0) && !Cancellation::current().requested()) continue;
    lock.unlock();
    impl_->http->stop();
    impl_->abandon();
    Cancellation::check("serve");
    return false;
  }
  if (impl_->failure) std::rethrow_exception(impl_->failure);
  return true;
}

const std::string& LlmServer::model_id() const { return impl_->state.model.id; }
uint16_t LlmServer::port() const { return impl_->http->port(); }
void LlmServer::stop() { impl_->http->stop(); }
void LlmServer::wait() { impl_->http->wait(); }
bool LlmServer::wait_for(double seconds) { return impl_->http->wait_for(seconds); }
EngineCounters LlmServer::engine_counters() const {
  return impl_->state.engine ? impl_->state.engine->counters() : EngineCounters{};
}

}  // namespace tg::llm
