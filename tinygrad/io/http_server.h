/// \file An HTTP/1.1 server for one handler function. It listens on this machine unless a key is set, bounds what a
/// client can send, hold and delay, checks Host and Origin against pages of other sites, and streams answers.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/io/http_message.h"

namespace tg::io {

struct HttpOptions {
  std::string address = "127.0.0.1";  ///< an IP address, or "localhost"
  uint16_t port = 0;                  ///< 0: any free one
  /// Clients send `Authorization: Bearer KEY`; empty: none is asked for, and then only loopback addresses are served.
  std::string api_key = {};
  std::vector<std::string> key_headers = {};  ///< further headers whose value may be the key, such as "x-api-key"
  std::vector<std::string> open_paths = {};   ///< served without the key
  /// Names a Host header may have besides the loopback ones (all where a key is set and none is given here).
  std::vector<std::string> allowed_hosts = {};
  std::vector<std::string> allowed_origins = {};  ///< other sites whose pages may call, such as "https://example.org"
  HttpLimits limits = {};
  int handler_threads = 2;
  bool stop_on_signals = false;  ///< SIGINT and SIGTERM stop the server as stop() does; a second one at once
  /// Returns the body of an answer the server itself gives to a bad request; the path is empty where none was read.
  std::function<std::string(int status, std::string_view message, std::string_view path)> error_body = {};
  /// Receives a line for each answered request: method, path, status, milliseconds. No headers, queries or bodies.
  std::function<void(std::string_view line)> log = {};
};

/// The answer to one request; its methods may be called from any thread, while the server lives. One that is dropped
/// without an answer becomes a status 500, one dropped amid a stream closes the connection.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  /// Answers as a whole.
  virtual void send(HttpResponse response) = 0;
  /// Begins an answer in pieces; its body is what write() gets until finish().
  virtual void start(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;
  /// Returns whether the client is gone: what is written from then on is dropped.
  virtual bool closed() const = 0;
  /// Calls `then` once, from a thread of the server, as soon as the client is gone before the answer is complete; at
  /// once when it already is.
  virtual void on_close(std::function<void()> then) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpReply>)>;

struct HttpCounters {
  uint64_t connections = 0, open_connections = 0, requests = 0, refused = 0, disconnects = 0;
};

class HttpServer {
 public:
  /// Binds the address and starts serving. ValueError for an address that is not an IP address, and for one that is not
  /// loopback without a key; FileError when it cannot be bound.
  HttpServer(HttpOptions options, HttpHandler handler);
  /// Stops and waits.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  /// Takes no new connections, lets answers under way finish for `drain_s`, then closes them. Returns at once.
  void stop();
  /// Waits until the server has stopped; with a time limit, returns whether it has.
  void wait();
  bool wait_for(double seconds);
  HttpCounters counters() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tg::io
