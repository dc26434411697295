/// \file HTTP/1.1 messages (RFC 9110, RFC 9112) as a server reads them from strangers: the head is checked byte by byte
/// against limits before a parser sees it, bodies are decoded with a bound.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tg::io {

/// Bounds on what a client may send and hold.
struct HttpLimits {
  size_t request_line_bytes = 8 << 10;
  size_t head_bytes = 32 << 10;  ///< request line and headers
  size_t headers = 64;
  uint64_t body_bytes = 4 << 20;          ///< of one request
  uint64_t all_bodies_bytes = 64 << 20;   ///< of all requests that are being read or answered
  size_t unsent_bytes = 8 << 20;          ///< of an answer its client does not read
  uint64_t all_unsent_bytes = 256 << 20;  ///< of all answers; what would not fit is dropped with its connection
  size_t connections = 256;
  double idle_s = 75;   ///< between two requests of a connection
  double head_s = 10;   ///< for a whole request line with headers
  double body_s = 60;   ///< for a whole body
  double write_s = 30;  ///< for the client to take something of what is sent
  double drain_s = 10;  ///< for answers under way when the server stops
};

struct HttpHeader {
  std::string name, value;
};

struct HttpRequest {
  std::string method, path, query;  ///< the path as sent, without its query
  int version = 11;                 ///< 10 or 11
  std::vector<HttpHeader> headers;
  std::string body;
  /// Returns the value of the first header of that name, in any case; nothing when there is none.
  std::optional<std::string_view> header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers = {};
};

/// Why a request is refused, and the status that says it.
struct HttpError {
  int status = 400;
  std::string message;
};

/// Checks the head of a request while it arrives: only what RFC 9112 allows, without its obsolete forms (folded lines,
/// bare line feeds), and within limits.
class HttpHeadScanner {
 public:
  explicit HttpHeadScanner(const HttpLimits& limits) : limits_(limits) {}
  /// Looks at the bytes received so far, of which earlier calls saw the beginning. Returns the size of the head once it
  /// is complete. Throws nothing: error() says what is wrong.
  std::optional<size_t> scan(std::string_view received);
  const std::optional<HttpError>& error() const { return error_; }

 private:
  enum class State : uint8_t { kMethod, kTarget, kVersion, kLineFeed, kLine, kName, kValue, kLastLineFeed };
  void step(char c);
  void step_version(char c);
  void refuse(int status, std::string message);
  HttpLimits limits_;
  State state_ = State::kMethod;
  size_t at_ = 0, token_ = 0, headers_ = 0;  // bytes seen; of them in the current token
  std::string version_;
  std::optional<HttpError> error_;
};

/// How the length of a body is known.
struct HttpBodyPlan {
  bool chunked = false;
  std::optional<uint64_t> length = {};
  bool keep_alive = true;
  bool expects_continue = false;
};

/// A checked head, or why it is refused.
struct HttpHead {
  HttpRequest request;
  HttpBodyPlan body;
  std::optional<HttpError> error = {};
};
/// Parses a head that HttpHeadScanner found complete. Content-Length beside Transfer-Encoding, lengths that are not
/// digits alone, codings other than chunked, several Host headers and the like are errors.
HttpHead parse_http_head(std::string_view head, const HttpLimits& limits);

/// Decodes a body in chunks. Sizes are hexadecimal digits alone; extensions are skipped; trailers are dropped.
class HttpChunkDecoder {
 public:
  explicit HttpChunkDecoder(uint64_t limit) : limit_(limit) {}
  /// Appends what `bytes` hold of the body and returns how many of them were used: less than all only when the body
  /// is complete. Stops at an error.
  size_t decode(std::string_view bytes, std::string& body);
  bool done() const { return state_ == State::kDone; }
  const std::optional<HttpError>& error() const { return error_; }

 private:
  enum class State : uint8_t {
    kSize,
    kExtension,
    kSizeLineFeed,
    kData,
    kDataReturn,
    kDataLineFeed,
    kTrailer,
    kTrailerLine,
    kTrailerLineFeed,
    kLastLineFeed,
    kDone
  };
  void step(char c);
  void refuse(int status, std::string message);
  uint64_t limit_, left_ = 0, total_ = 0;
  size_t digits_ = 0, extra_ = 0;  // digits of the size; bytes of extensions and trailers
  State state_ = State::kSize;
  std::optional<HttpError> error_;
};

/// Returns the head of an answer. Without a length its body comes in chunks, or ends with the connection.
std::string http_response_head(const HttpResponse& response, std::optional<uint64_t> length, bool keep_alive,
                               bool chunked = false);
/// Returns the usual words for a status.
std::string_view http_reason(int status);
/// Returns whether two names of headers are equal; they have no case.
bool same_header_name(std::string_view a, std::string_view b);

}  // namespace tg::io
