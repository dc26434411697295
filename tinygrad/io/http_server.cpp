#include "tinygrad/io/http_server.h"

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "tinygrad/base/error.h"
#include "tinygrad/base/sha256.h"

namespace tg::io {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kPipelinedBytes = 64 << 10;  // read ahead of requests that wait for the one before
constexpr size_t kExtraConnections = 32;      // beyond the limit, to say 429
constexpr size_t kLingerBytes = 64 << 20;     // of a refused request, read so that its client sees the answer
constexpr double kLingerSeconds = 2;
constexpr double kAcceptPause = 0.1;  // after the process ran out of file descriptors

std::chrono::nanoseconds seconds(double s) { return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9)); }

/// Compares digests, so that the time tells neither the length nor a prefix of the key.
bool same_secret(std::string_view a, std::string_view b) {
  const auto digest = [](std::string_view s) {
    return Sha256().update({reinterpret_cast<const uint8_t*>(s.data()), s.size()}).finish();
  };
  const Sha256Digest x = digest(a), y = digest(b);
  unsigned different = 0;
  for (size_t i = 0; i < x.size(); i++) different |= static_cast<unsigned>(x[i] ^ y[i]);
  return different == 0;
}

/// Returns the name of a Host header without its port; nothing when it is none.
std::optional<std::string> host_name(std::string_view host) {
  std::string_view name = host, port;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return {};
    name = host.substr(0, end + 1);
    port = host.substr(end + 1);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    port = host.substr(colon);
  }
  if (!port.empty() && (port[0] != ':' || port.size() > 6)) return {};
  for (const char c : port.substr(std::min<size_t>(1, port.size())))
    if (c < '0' || c > '9') return {};
  if (name.empty()) return {};
  std::string lower(name);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

/// Returns whether a Host header names this machine. Only addresses count besides localhost: a name that begins like
/// one (127.evil.example) belongs to somebody else.
bool is_loopback_name(std::string_view name) {
  if (name == "localhost") return true;
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  error_code failed;
  const asio::ip::address address = asio::ip::make_address(std::string(name), failed);
  return !failed && address.is_loopback();
}

bool contains_name(const std::vector<std::string>& names, std::string_view name) {
  for (const std::string& n : names)
    if (same_header_name(n, name)) return true;
  return false;
}

class HttpConnection;

}  // namespace

/// What all connections share; all but the marked members belong to the thread of `io`.
struct HttpServer::Impl {
  HttpOptions options;
  HttpHandler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io}, drain{io};
  asio::signal_set signals{io};
  std::unique_ptr<asio::thread_pool> pool;
  std::unordered_set<HttpConnection*> connections;
  uint64_t body_bytes = 0, unsent_bytes = 0;
  bool stopping = false;
  std::atomic<uint64_t> accepted{0}, open{0}, requests{0}, refused{0}, disconnects{0};  // any thread
  uint16_t port = 0;
  std::mutex mutex;  // guards `ended` and joining
  std::condition_variable end;
  bool ended = false;
  std::thread thread;

  /// Has a thread of the pool call `work`. What that throws ends nothing: its reply is dropped, which is an answer.
  void post(std::function<void()> work) {
    asio::post(*pool, [work = std::move(work)] {
      try {
        work();
      } catch (...) {}
    });
  }
  void bind();
  void run();
  void accept();
  void begin_stop();
  void stop_now();
  void make_room();
  void forget(HttpConnection* connection);
  void wait_for_signal();
  std::optional<HttpError> check_access(const HttpRequest& request) const;
  std::string error_body(int status, std::string_view message, std::string_view path) const {
    try {
      if (options.error_body) return options.error_body(status, message, path);
    } catch (...) {  // then the client gets the plain one
    }
    return str("{\"error\":{\"code\":", status, "}}");
  }
};

namespace {

/// A connection: reads a request, has it handled, writes the answer, begins again. All methods run on the server's
/// thread; `closed` may be read from others.
class HttpConnection final : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpServer::Impl& server, tcp::socket socket)
      : server_(server),
        socket_(std::move(socket)),
        deadline_(server.io),
        write_deadline_(server.io),
        scanner_(server.options.limits) {
    server_.connections.insert(this);
  }
  ~HttpConnection() { close(); }

  void begin() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    next_request();
  }
  void refuse(const HttpError& e) { fail(e); }
  /// Closes an idle connection; one with an answer under way closes after it.
  void stop_when_idle() {
    keep_alive_ = false;
    if (phase_ == Phase::kHead) close();
  }
  /// Returns since when the connection waits for a request; nothing where one has begun to arrive or is under way.
  std::optional<Clock::time_point> idle_since() const;
  void close();

  // ---- what a reply asks for ----
  uint64_t request_number() const { return number_; }
  bool is_closed() const { return closed_.load(std::memory_order_acquire); }
  void send(HttpResponse response);
  void start_stream(HttpResponse head);
  void write_piece(std::string piece);
  void finish_stream();
  void abandon();
  void set_on_close(std::function<void()> then);

 private:
  enum class Phase : uint8_t { kHead, kBody, kAnswer, kLinger, kClosed };

  const HttpLimits& limits() const { return server_.options.limits; }
  void next_request();
  void read();
  void on_read(error_code failed, size_t size);
  void on_head();
  void on_head_complete(size_t size);
  void on_body();
  bool count_body();
  void dispatch();
  void on_linger();
  void on_end_of_input();
  void tell_closed();
  bool is_allowed_origin() const;
  HttpResponse preflight() const;
  void add_origin(HttpResponse& response) const;
  void fail(const HttpError& e);
  void queue(std::string bytes);
  void write_next();
  void on_sent();
  void answered();
  void arm(double s);
  void on_deadline();
  void release_body();
  void log(int status) const;

  HttpServer::Impl& server_;
  tcp::socket socket_;
  asio::steady_timer deadline_, write_deadline_;
  HttpHeadScanner scanner_;
  std::optional<HttpChunkDecoder> chunks_;
  std::array<char, kReadBytes> buffer_;
  std::string in_;  // received and not used
  HttpRequest request_;
  HttpBodyPlan plan_;
  Phase phase_ = Phase::kHead;
  bool reading_ = false, at_end_ = false, keep_alive_ = true;
  uint64_t number_ = 0, counted_ = 0, lingered_ = 0;
  Clock::time_point deadline_at_ = Clock::time_point::max(), started_, idle_since_;
  std::deque<std::string> out_;
  size_t unsent_ = 0;
  bool writing_ = false, streaming_ = false, complete_ = false, in_chunks_ = false;
  std::function<void()> on_close_;
  std::atomic<bool> closed_{false};
};

/// Forwards to the connection's thread; calls for a request that was answered already are ignored.
class ConnectionReply final : public HttpReply {
 public:
  explicit ConnectionReply(asio::io_context& io, std::shared_ptr<HttpConnection> connection)
      : io_(io), connection_(std::move(connection)), number_(connection_->request_number()) {}
  ~ConnectionReply() override {  // hands over its reference too: a connection ends on the server's thread
    asio::post(io_, [c = std::move(connection_), n = number_] {
      if (c->request_number() == n) c->abandon();
    });
  }
  void send(HttpResponse response) override {
    run([r = std::move(response)](HttpConnection& c) mutable { c.send(std::move(r)); });
  }
  void start(HttpResponse head) override {
    run([h = std::move(head)](HttpConnection& c) mutable { c.start_stream(std::move(h)); });
  }
  void write(std::string piece) override {
    run([p = std::move(piece)](HttpConnection& c) mutable { c.write_piece(std::move(p)); });
  }
  void finish() override {
    run([](HttpConnection& c) { c.finish_stream(); });
  }
  bool closed() const override { return connection_->is_closed(); }
  void on_close(std::function<void()> then) override {
    run([t = std::move(then)](HttpConnection& c) mutable { c.set_on_close(std::move(t)); });
  }

 private:
  template <class F> void run(F f) {
    asio::post(io_, [c = connection_, n = number_, f = std::move(f)]() mutable {
      if (c->request_number() == n) f(*c);
    });
  }
  asio::io_context& io_;
  std::shared_ptr<HttpConnection> connection_;
  uint64_t number_;
};

// ---- reading ----

void HttpConnection::next_request() {
  number_++;
  phase_ = Phase::kHead;
  idle_since_ = Clock::now();
  scanner_ = HttpHeadScanner(limits());
  request_ = {};
  chunks_.reset();
  streaming_ = complete_ = in_chunks_ = false;
  on_close_ = nullptr;
  arm(in_.empty() ? limits().idle_s : limits().head_s);
  if (in_.empty()) read();
  else on_head();
}

void HttpConnection::read() {
  if (reading_ || phase_ == Phase::kClosed) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(buffer_), [self = shared_from_this()](error_code failed, size_t size) {
    self->reading_ = false;
    self->on_read(failed, size);
  });
}

void HttpConnection::on_read(error_code failed, size_t size) {
  if (phase_ == Phase::kClosed) return;
  if (failed == asio::error::eof) return on_end_of_input();
  if (failed) return close();
  const bool first = in_.empty() && phase_ == Phase::kHead;
  if (phase_ != Phase::kLinger) in_.append(buffer_.data(), size);
  else lingered_ += size;
  switch (phase_) {
    case Phase::kHead:
      if (first) arm(limits().head_s);
      return on_head();
    case Phase::kBody: return on_body();
    case Phase::kAnswer:  // the next request may come early; reading on shows when the client goes
      if (in_.size() < kPipelinedBytes) read();
      return;
    case Phase::kLinger: return on_linger();
    case Phase::kClosed: return;
  }
}

/// The client sends no more; most likely it is gone. An answer under way is cancelled where its handler can, and sent
/// where it is there.
void HttpConnection::on_end_of_input() {
  at_end_ = true;
  if (phase_ == Phase::kHead || phase_ == Phase::kBody) return close();
  if (phase_ == Phase::kLinger) return on_sent();
  keep_alive_ = false;
  if (!complete_) tell_closed();
}

void HttpConnection::on_head() {
  const std::optional<size_t> size = scanner_.scan(in_);
  if (scanner_.error()) return fail(*scanner_.error());
  if (!size) return read();
  on_head_complete(*size);
}

void HttpConnection::on_head_complete(size_t size) {
  started_ = Clock::now();
  server_.requests++;
  HttpHead head = parse_http_head(std::string_view(in_).substr(0, size), limits());
  in_.erase(0, size);
  request_ = std::move(head.request);
  plan_ = head.body;
  keep_alive_ = plan_.keep_alive && !server_.stopping;
  if (!head.error) head.error = server_.check_access(request_);
  if (head.error) return fail(*head.error);
  const bool has_body = plan_.chunked || plan_.length.value_or(0) > 0;
  if (plan_.chunked) chunks_.emplace(limits().body_bytes);
  if (has_body && plan_.expects_continue && in_.empty()) queue("HTTP/1.1 100 Continue\r\n\r\n");
  phase_ = Phase::kBody;
  arm(limits().body_s);
  on_body();
}

void HttpConnection::on_body() {
  bool done = false;
  if (chunks_) {
    in_.erase(0, chunks_->decode(in_, request_.body));
    if (chunks_->error()) return fail(*chunks_->error());
    done = chunks_->done();
  } else {
    const uint64_t left = plan_.length.value_or(0) - request_.body.size();
    const size_t take = static_cast<size_t>(std::min<uint64_t>(left, in_.size()));
    request_.body.append(in_, 0, take);
    in_.erase(0, take);
    done = take == left;
  }
  if (!count_body()) return fail({429, "too many requests with bodies at once"});
  if (!done) return read();
  dispatch();
}

/// Counts what has arrived of the body; false when all bodies together are too much. What a client only announces takes
/// no room from others.
bool HttpConnection::count_body() {
  const uint64_t more = request_.body.size() - counted_;
  if (more > limits().all_bodies_bytes - std::min(server_.body_bytes, limits().all_bodies_bytes)) return false;
  counted_ += more;
  server_.body_bytes += more;
  return true;
}

void HttpConnection::dispatch() {
  phase_ = Phase::kAnswer;
  arm(0);
  if (request_.method == "OPTIONS" && is_allowed_origin()) return send(preflight());
  read();
  auto reply = std::make_shared<ConnectionReply>(server_.io, shared_from_this());
  std::string body = std::exchange(request_.body, {});
  HttpRequest request = request_;  // which names the request in the log
  request.body = std::move(body);
  server_.post([&server = server_, reply = std::move(reply), request = std::move(request)]() mutable {
    const std::shared_ptr<HttpReply> kept = reply;
    try {
      server.handler(std::move(request), std::move(reply));
    } catch (...) {  // the handler answers what it foresees; its text could hold data of others
      kept->send({500, server.error_body(500, "internal error", {})});
    }
  });
}

// ---- the answer ----

bool HttpConnection::is_allowed_origin() const {
  const std::optional<std::string_view> origin = request_.header("origin");
  return origin && contains_name(server_.options.allowed_origins, *origin);
}

/// Returns what a browser asks for before a page of an allowed site may call.
HttpResponse HttpConnection::preflight() const {
  std::string headers = "Authorization, Content-Type";
  for (const std::string& name : server_.options.key_headers) headers += ", " + name;
  return {204,
          {},
          {},
          {{"Access-Control-Allow-Methods", "GET, POST"},
           {"Access-Control-Allow-Headers", headers},
           {"Access-Control-Max-Age", "600"}}};
}

void HttpConnection::add_origin(HttpResponse& response) const {
  if (!is_allowed_origin()) return;
  response.headers.push_back({"Access-Control-Allow-Origin", std::string(*request_.header("origin"))});
  response.headers.push_back({"Vary", "Origin"});
}

void HttpConnection::send(HttpResponse response) {
  if (phase_ != Phase::kAnswer || streaming_ || complete_) return;
  log(response.status);
  add_origin(response);
  complete_ = true;
  std::string bytes = http_response_head(response, response.body.size(), keep_alive_);
  if (request_.method != "HEAD") bytes += response.body;
  queue(std::move(bytes));
}

void HttpConnection::start_stream(HttpResponse head) {
  if (phase_ != Phase::kAnswer || streaming_ || complete_) return;
  log(head.status);
  add_origin(head);
  streaming_ = true;
  in_chunks_ = request_.version == 11;
  if (!in_chunks_) keep_alive_ = false;  // the body of HTTP/1.0 ends with the connection
  queue(http_response_head(head, {}, keep_alive_, in_chunks_));
}

void HttpConnection::write_piece(std::string piece) {
  if (phase_ != Phase::kAnswer || !streaming_ || complete_ || piece.empty()) return;
  if (!in_chunks_) return queue(std::move(piece));
  std::array<char, 20> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", piece.size());
  queue(size.data() + piece + "\r\n");
}

void HttpConnection::finish_stream() {
  if (phase_ != Phase::kAnswer || !streaming_ || complete_) return;
  complete_ = true;
  if (in_chunks_) queue("0\r\n\r\n");
  else on_sent();
}

void HttpConnection::abandon() {
  if (phase_ != Phase::kAnswer || complete_) return;
  if (streaming_ || at_end_) return close();
  send({500, server_.error_body(500, "the request was not answered", request_.path)});
}

void HttpConnection::set_on_close(std::function<void()> then) {
  if (is_closed()) server_.post(std::move(then));
  else if (phase_ == Phase::kAnswer && !complete_) on_close_ = std::move(then);
}

void HttpConnection::fail(const HttpError& e) {
  if (phase_ == Phase::kClosed || phase_ == Phase::kLinger) return;
  server_.refused++;
  HttpResponse response{e.status, server_.error_body(e.status, e.message, request_.path)};
  add_origin(response);
  if (e.status == 429) response.headers.push_back({"Retry-After", "1"});
  if (e.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  keep_alive_ = false;
  complete_ = true;
  release_body();
  log(e.status);
  const bool head_only = request_.method == "HEAD";
  phase_ = Phase::kLinger;
  in_.clear();
  arm(kLingerSeconds + limits().write_s);
  queue(http_response_head(response, response.body.size(), false) + (head_only ? "" : response.body));
  read();
}

/// Reads what a refused client still sends: closing with bytes unread would reset the connection and lose the answer.
void HttpConnection::on_linger() {
  if (lingered_ > kLingerBytes) return close();
  read();
}

// ---- writing ----

void HttpConnection::queue(std::string bytes) {
  if (phase_ == Phase::kClosed) return;
  unsent_ += bytes.size();
  server_.unsent_bytes += bytes.size();
  out_.push_back(std::move(bytes));
  const bool behind = unsent_ > limits().unsent_bytes && out_.size() > 1;  // a client that asks and does not read
  if (behind || server_.unsent_bytes > limits().all_unsent_bytes) return close();
  if (!writing_) write_next();
}

void HttpConnection::write_next() {
  writing_ = true;
  write_deadline_.expires_after(seconds(limits().write_s));
  write_deadline_.async_wait([self = shared_from_this()](error_code cancelled) {
    if (!cancelled && self->writing_ && self->write_deadline_.expiry() <= Clock::now()) self->close();
  });
  socket_.async_write_some(asio::buffer(out_.front()), [self = shared_from_this()](error_code failed, size_t size) {
    self->writing_ = false;
    self->write_deadline_.cancel();
    if (self->phase_ == Phase::kClosed) return;
    if (failed) return self->close();
    self->unsent_ -= size;
    self->server_.unsent_bytes -= size;
    if (size < self->out_.front().size()) self->out_.front().erase(0, size);
    else self->out_.pop_front();
    if (!self->out_.empty()) return self->write_next();
    self->on_sent();
  });
}

/// Goes on once all that is to be sent was sent.
void HttpConnection::on_sent() {
  if (!complete_ || writing_ || !out_.empty()) return;
  if (phase_ == Phase::kLinger) {
    if (at_end_) return close();
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    return arm(kLingerSeconds);
  }
  if (phase_ == Phase::kAnswer) answered();
}

void HttpConnection::answered() {
  release_body();
  if (keep_alive_ && !server_.stopping) return next_request();
  phase_ = Phase::kLinger;
  on_close_ = nullptr;
  in_.clear();
  on_sent();
  read();
}

// ---- time and end ----

/// Sets the deadline of the current phase; 0: none.
void HttpConnection::arm(double s) {
  deadline_at_ = s > 0 ? Clock::now() + seconds(s) : Clock::time_point::max();
  deadline_.cancel();
  if (s <= 0) return;
  deadline_.expires_at(deadline_at_);
  deadline_.async_wait([self = shared_from_this()](error_code cancelled) {
    if (!cancelled && self->deadline_at_ <= Clock::now()) self->on_deadline();
  });
}

void HttpConnection::on_deadline() {
  if (phase_ == Phase::kBody) return fail({408, "the body did not arrive in time"});
  if (phase_ == Phase::kHead && !in_.empty()) return fail({408, "the headers did not arrive in time"});
  close();
}

void HttpConnection::close() {
  if (phase_ == Phase::kClosed) return;
  const bool unanswered = phase_ == Phase::kAnswer && !(complete_ && out_.empty());
  if (unanswered) tell_closed();
  phase_ = Phase::kClosed;
  closed_.store(true, std::memory_order_release);
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  write_deadline_.cancel();
  if (!writing_) out_.clear();
  server_.unsent_bytes -= unsent_;
  unsent_ = 0;
  release_body();
  on_close_ = nullptr;
  server_.forget(this);
}

std::optional<Clock::time_point> HttpConnection::idle_since() const {
  if (phase_ != Phase::kHead || !in_.empty() || writing_) return {};
  error_code failed;
  if (socket_.available(failed) > 0) return {};  // a request that was not read yet
  return idle_since_;
}

void HttpConnection::tell_closed() {
  if (closed_.exchange(true, std::memory_order_acq_rel)) return;
  server_.disconnects++;
  if (on_close_) server_.post(std::exchange(on_close_, nullptr));
}

void HttpConnection::release_body() {
  server_.body_bytes -= counted_;
  counted_ = 0;
}

void HttpConnection::log(int status) const {
  if (!server_.options.log) return;
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - started_).count();
  try {
    server_.options.log(request_.method.empty() ? str("- - ", status)
                                                : str(request_.method, " ", request_.path, " ", status, " ",
                                                      static_cast<int64_t>(ms), " ms"));
  } catch (...) {  // the answer goes on: what the program does with its log is no matter of the client
  }
}

}  // namespace

// ---- the server ----

namespace {

asio::ip::address checked_address(const HttpOptions& options) {
  error_code failed;
  const std::string text = options.address == "localhost" ? "127.0.0.1" : options.address;
  const asio::ip::address address = asio::ip::make_address(text, failed);
  TG_CHECK(ValueError, !failed, "[serve] got address '", options.address, "', expected an IP address");
  TG_CHECK(ValueError, address.is_loopback() || !options.api_key.empty(), "[serve] address ", options.address,
           " can be reached from other machines: that needs an API key (tg serve: --api-key-file FILE)");
  return address;
}

}  // namespace

/// Refuses requests that a page of another site makes a browser send, and those without the key.
std::optional<HttpError> HttpServer::Impl::check_access(const HttpRequest& request) const {
  const std::optional<std::string_view> host = request.header("host");
  const bool any_host = !options.api_key.empty() && options.allowed_hosts.empty();
  if (host) {
    const std::optional<std::string> name = host_name(*host);
    if (!name) return HttpError{400, "malformed Host header"};
    if (!any_host && !is_loopback_name(*name) && !contains_name(options.allowed_hosts, *name))
      return HttpError{403, "the Host header names another host than this server's"};
  }
  if (const std::optional<std::string_view> origin = request.header("origin")) {
    const bool same =
        host && (same_header_name(*origin, str("http://", *host)) || same_header_name(*origin, str("https://", *host)));
    if (!same && !contains_name(options.allowed_origins, *origin))
      return HttpError{403, "requests from pages of other sites are refused"};
  }
  const bool preflight = request.method == "OPTIONS" && request.header("origin");  // has no key, and does nothing
  if (options.api_key.empty() || preflight || contains_name(options.open_paths, request.path)) return {};
  for (const std::string& name : options.key_headers)
    if (same_secret(request.header(name).value_or(""), options.api_key)) return {};
  const std::string_view given = request.header("authorization").value_or("");
  constexpr std::string_view kScheme = "bearer ";
  if (given.size() <= kScheme.size() || !same_header_name(given.substr(0, kScheme.size()), kScheme) ||
      !same_secret(given.substr(kScheme.size()), options.api_key))
    return HttpError{401, "the API key is missing or wrong"};
  return {};
}

void HttpServer::Impl::bind() {
  const asio::ip::address address = checked_address(options);
  error_code failed;
  const tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), failed);
  if (!failed) acceptor.set_option(tcp::acceptor::reuse_address(true), failed);
  if (!failed) acceptor.bind(endpoint, failed);
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  TG_CHECK(FileError, !failed, "[serve] cannot listen on ", options.address, ":", options.port, ": ", failed.message());
  port = acceptor.local_endpoint().port();
}

/// Closes the connection that has been idle for longest, where the limit is reached: clients that keep connections
/// without asking for anything do not lock others out.
void HttpServer::Impl::make_room() {
  if (connections.size() < options.limits.connections) return;
  HttpConnection* oldest = nullptr;
  Clock::time_point since;
  for (HttpConnection* c : connections) {
    const std::optional<Clock::time_point> idle = c->idle_since();
    if (!idle || (oldest && *idle >= since)) continue;
    oldest = c;
    since = *idle;
  }
  if (oldest) oldest->close();
}

void HttpServer::Impl::accept() {
  acceptor.async_accept([this](error_code failed, tcp::socket socket) {
    if (stopping) return;
    if (failed) {  // most likely out of file descriptors: some connection will end
      pause.expires_after(seconds(kAcceptPause));
      pause.async_wait([this](error_code cancelled) {
        if (!cancelled && !stopping) accept();
      });
      return;
    }
    accepted++;
    make_room();
    if (connections.size() < options.limits.connections + kExtraConnections) {
      const auto connection = std::make_shared<HttpConnection>(*this, std::move(socket));
      open = connections.size();
      if (connections.size() <= options.limits.connections) connection->begin();
      else connection->refuse({429, "too many connections"});
    }
    accept();
  });
}

void HttpServer::Impl::run() {
  while (true) try {
      io.run();
      return;
    } catch (const std::exception&) {  // no memory for one connection, say: the others go on
    }
}

void HttpServer::Impl::begin_stop() {
  if (stopping) return;
  stopping = true;
  error_code ignored;
  acceptor.close(ignored);
  pause.cancel();
  const std::vector<HttpConnection*> all(connections.begin(), connections.end());
  for (HttpConnection* c : all) c->stop_when_idle();
  drain.expires_after(seconds(options.limits.drain_s));
  drain.async_wait([this](error_code cancelled) {
    if (!cancelled) stop_now();
  });
  if (connections.empty()) stop_now();
}

void HttpServer::Impl::stop_now() {
  error_code ignored;
  signals.cancel(ignored);
  drain.cancel();
  const std::vector<HttpConnection*> all(connections.begin(), connections.end());
  for (HttpConnection* c : all) c->close();
}

void HttpServer::Impl::forget(HttpConnection* connection) {
  connections.erase(connection);
  open = connections.size();
  if (stopping && connections.empty()) stop_now();
}

void HttpServer::Impl::wait_for_signal() {
  signals.async_wait([this](error_code cancelled, int) {
    if (cancelled) return;
    if (stopping) return stop_now();
    begin_stop();
    if (!connections.empty()) wait_for_signal();
  });
}

HttpServer::HttpServer(HttpOptions options, HttpHandler handler) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->handler = std::move(handler);
  impl_->bind();
  impl_->pool = std::make_unique<asio::thread_pool>(static_cast<size_t>(std::max(1, impl_->options.handler_threads)));
  if (impl_->options.stop_on_signals) {
    impl_->signals.add(SIGINT);
    impl_->signals.add(SIGTERM);
    impl_->wait_for_signal();
  }
  impl_->accept();
  impl_->thread = std::thread([impl = impl_.get()] {
    impl->run();
    impl->pool->join();
    const std::lock_guard lock(impl->mutex);
    impl->ended = true;
    impl->end.notify_all();
  });
}

HttpServer::~HttpServer() {
  stop();
  impl_->thread.join();
  impl_->io.restart();
  impl_->io.poll();  // what replies asked for after the last connection closed
}

uint16_t HttpServer::port() const { return impl_->port; }

void HttpServer::stop() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->begin_stop(); });
}

void HttpServer::wait() {
  std::unique_lock lock(impl_->mutex);
  impl_->end.wait(lock, [&] { return impl_->ended; });
}

bool HttpServer::wait_for(double s) {
  std::unique_lock lock(impl_->mutex);
  return impl_->end.wait_for(lock, seconds(s), [&] { return impl_->ended; });
}

HttpCounters HttpServer::counters() const {
  return {impl_->accepted, impl_->open, impl_->requests, impl_->refused, impl_->disconnects};
}

}  // namespace tg::io
