#include "tinygrad/io/http_message.h"

#include <algorithm>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <charconv>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

namespace http = boost::beast::http;

constexpr size_t kMethodBytes = 16;
constexpr size_t kLengthDigits = 18;   // of Content-Length: below 2^63
constexpr size_t kChunkDigits = 15;    // of a chunk's size, with leading zeros
constexpr size_t kChunkExtras = 4096;  // bytes of extensions and trailers of one body

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Returns whether RFC 9110's `token` has the character.
bool is_token(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
}
bool is_value(char c) { return c == '\t' || (c >= ' ' && c != '\x7f') || static_cast<unsigned char>(c) >= 0x80; }
bool is_target(char c) { return c > ' ' && c < '\x7f'; }

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

}  // namespace

bool same_header_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& h : headers)
    if (same_header_name(h.name, name)) return h.value;
  return {};
}

// ---- the head ----

void HttpHeadScanner::refuse(int status, std::string message) { error_ = HttpError{status, std::move(message)}; }

std::optional<size_t> HttpHeadScanner::scan(std::string_view received) {
  while (at_ < received.size() && !error_) {
    const char c = received[at_++];
    if (state_ == State::kLastLineFeed && c == '\n') return at_;
    step(c);
    if (!error_ && at_ >= limits_.head_bytes) refuse(431, str("headers of more than ", limits_.head_bytes, " bytes"));
  }
  return {};
}

void HttpHeadScanner::step_version(char c) {
  version_ += c;
  if (!std::string_view("HTTP/1.1").starts_with(version_) && version_ != "HTTP/1.0")
    refuse(400, "unsupported protocol, expected HTTP/1.1");
}

void HttpHeadScanner::step(char c) {
  const auto next = [&](State s) {
    state_ = s;
    token_ = 0;
  };
  token_++;
  switch (state_) {
    case State::kMethod:
      if (c == ' ' && token_ > 1) return next(State::kTarget);
      if (c < 'A' || c > 'Z' || token_ > kMethodBytes) refuse(400, "malformed request line: no method");
      return;
    case State::kTarget:
      if (c == ' ' && token_ > 1) return next(State::kVersion);
      if (!is_target(c)) return refuse(400, "malformed request line: a target holds visible ASCII characters only");
      if (at_ > limits_.request_line_bytes)
        refuse(414, str("request line of more than ", limits_.request_line_bytes, " bytes"));
      return;
    case State::kVersion:
      if (c != '\r') return step_version(c);
      if (version_.size() != 8) return refuse(400, "malformed request line: no version");
      return next(State::kLineFeed);
    case State::kLineFeed:
      if (c != '\n') return refuse(400, "malformed head: a carriage return without a line feed");
      return next(State::kLine);
    case State::kLine:
      if (c == '\r') return next(State::kLastLineFeed);
      if (c == ' ' || c == '\t') return refuse(400, "malformed header: folded lines are not accepted");
      if (!is_token(c)) return refuse(400, "malformed header: no name");
      if (++headers_ > limits_.headers) return refuse(431, str("more than ", limits_.headers, " headers"));
      return next(State::kName);
    case State::kName:
      if (c == ':') return next(State::kValue);
      if (!is_token(c)) refuse(400, "malformed header: a name holds other characters than a token's");
      return;
    case State::kValue:
      if (c == '\r') return next(State::kLineFeed);
      if (!is_value(c)) refuse(400, "malformed header: a value holds control characters");
      return;
    case State::kLastLineFeed: return refuse(400, "malformed head: a carriage return without a line feed");
  }
}

namespace {

/// Fills what the headers say about the body; an error when they contradict each other or leave its end open.
std::optional<HttpError> plan_body(const HttpRequest& request, const HttpLimits& limits, HttpBodyPlan& plan) {
  size_t lengths = 0, codings = 0, expectations = 0;
  for (const HttpHeader& h : request.headers) {
    if (same_header_name(h.name, "content-length")) {
      if (h.value.empty() || !std::all_of(h.value.begin(), h.value.end(), [](char c) { return c >= '0' && c <= '9'; }))
        return HttpError{400, "Content-Length is not a number"};
      if (h.value.size() > kLengthDigits) return HttpError{413, "Content-Length is above every limit"};
      uint64_t length = 0;
      std::from_chars(h.value.data(), h.value.data() + h.value.size(), length);
      plan.length = length;
      lengths++;
    } else if (same_header_name(h.name, "transfer-encoding")) {
      if (!same_header_name(h.value, "chunked"))
        return HttpError{400, "the only Transfer-Encoding accepted is chunked"};
      plan.chunked = true;
      codings++;
    } else if (same_header_name(h.name, "content-encoding") && !same_header_name(h.value, "identity")) {
      return HttpError{415, "Content-Encoding is not accepted"};
    } else if (same_header_name(h.name, "expect")) {
      if (!same_header_name(h.value, "100-continue")) return HttpError{417, "the only Expect accepted is 100-continue"};
      plan.expects_continue = true;
      expectations++;
    }
  }
  if (lengths > 1 || codings > 1 || expectations > 1)
    return HttpError{400, "Content-Length, Transfer-Encoding or Expect given twice"};
  if (lengths && codings) return HttpError{400, "Content-Length beside Transfer-Encoding"};
  if (codings && request.version == 10) return HttpError{400, "Transfer-Encoding in HTTP/1.0"};
  if (plan.length.value_or(0) > limits.body_bytes)
    return HttpError{413, str("a body of more than ", limits.body_bytes, " bytes")};
  if (!lengths && !codings && request.method != "GET" && request.method != "HEAD" && request.method != "OPTIONS" &&
      request.method != "DELETE")
    return HttpError{411, "neither Content-Length nor Transfer-Encoding"};
  return {};
}

/// Returns whether the client leaves the connection open after the answer.
bool keeps_alive(const HttpRequest& request) {
  bool keep = request.version == 11;
  for (const HttpHeader& h : request.headers) {
    if (!same_header_name(h.name, "connection")) continue;
    std::string_view rest = h.value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view option = trimmed(rest.substr(0, comma));
      if (same_header_name(option, "close")) return false;
      if (same_header_name(option, "keep-alive")) keep = true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return keep;
}

}  // namespace

HttpHead parse_http_head(std::string_view head, const HttpLimits& limits) {
  HttpHead result;
  HttpRequest& request = result.request;
  const auto refused = [&](HttpError e) {
    result.error = std::move(e);
    return std::move(result);
  };
  http::request_parser<http::empty_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(std::min<size_t>(limits.head_bytes, UINT32_MAX)));
  parser.body_limit(limits.body_bytes);
  parser.eager(false);
  boost::beast::error_code failed;
  parser.put(boost::asio::buffer(head.data(), head.size()), failed);
  if (failed == http::error::need_more) failed = {};
  if (failed == http::error::body_limit)
    return refused({413, str("a body of more than ", limits.body_bytes, " bytes")});
  if (failed || !parser.is_header_done()) return refused({400, str("malformed head: ", failed.message())});
  const auto& message = parser.get();
  request.version = static_cast<int>(message.version());
  request.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  if (!target.starts_with('/') && target != "*") return refused({400, "a target is a path, it begins with /"});
  if (target.find('#') != std::string_view::npos) return refused({400, "a target has no fragment"});
  const size_t query = std::min(target.find('?'), target.size());
  request.path = target.substr(0, query);
  request.query = target.substr(std::min(query + 1, target.size()));
  size_t hosts = 0;
  for (const auto& field : message) {
    const std::string_view value(field.value().data(), field.value().size());
    request.headers.push_back({std::string(field.name_string()), std::string(trimmed(value))});
    hosts += field.name() == http::field::host;
  }
  if (hosts > 1 || (hosts == 0 && request.version == 11)) return refused({400, "expected one Host header"});
  if (std::optional<HttpError> e = plan_body(request, limits, result.body)) return refused(std::move(*e));
  result.body.keep_alive = keeps_alive(request);
  return result;
}

// ---- chunks ----

void HttpChunkDecoder::refuse(int status, std::string message) { error_ = HttpError{status, std::move(message)}; }

size_t HttpChunkDecoder::decode(std::string_view bytes, std::string& body) {
  size_t at = 0;
  while (at < bytes.size() && state_ != State::kDone && !error_) {
    if (state_ != State::kData) {
      step(bytes[at++]);
      continue;
    }
    const size_t take = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size() - at));
    body.append(bytes.substr(at, take));
    at += take;
    left_ -= take;
    if (left_ == 0) state_ = State::kDataReturn;
  }
  return at;
}

void HttpChunkDecoder::step(char c) {
  const auto expect = [&](char wanted, State next) {
    if (c != wanted) return refuse(400, "malformed chunk: no end of line");
    state_ = next;
  };
  const auto extra = [&] {
    if (++extra_ > kChunkExtras) return refuse(400, "too many bytes in chunk extensions and trailers");
    if (!is_value(c)) refuse(400, "malformed chunk: control characters");
  };
  switch (state_) {
    case State::kSize: {
      if (const int digit = hex_digit(c); digit >= 0) {
        if (++digits_ > kChunkDigits) return refuse(413, "a chunk's size is above every limit");
        left_ = left_ * 16 + static_cast<uint64_t>(digit);
        return;
      }
      if (digits_ == 0 || (c != '\r' && c != ';')) return refuse(400, "malformed chunk: its size is not hexadecimal");
      if (left_ > limit_ - total_) return refuse(413, str("a body of more than ", limit_, " bytes"));
      total_ += left_;
      state_ = c == ';' ? State::kExtension : State::kSizeLineFeed;
      return;
    }
    case State::kExtension: return c == '\r' ? void(state_ = State::kSizeLineFeed) : extra();
    case State::kSizeLineFeed: digits_ = 0; return expect('\n', left_ ? State::kData : State::kTrailer);
    case State::kDataReturn: return expect('\r', State::kDataLineFeed);
    case State::kDataLineFeed: return expect('\n', State::kSize);
    case State::kTrailer:  // at the beginning of a line
      if (c == '\r') return void(state_ = State::kLastLineFeed);
      state_ = State::kTrailerLine;
      return extra();
    case State::kTrailerLine: return c == '\r' ? void(state_ = State::kTrailerLineFeed) : extra();
    case State::kTrailerLineFeed: return expect('\n', State::kTrailer);
    case State::kLastLineFeed: return expect('\n', State::kDone);
    case State::kData:
    case State::kDone: return;
  }
}

// ---- answers ----

std::string_view http_reason(int status) {
  const boost::beast::string_view reason = http::obsolete_reason(static_cast<http::status>(status));
  return {reason.data(), reason.size()};
}

std::string http_response_head(const HttpResponse& response, std::optional<uint64_t> length, bool keep_alive,
                               bool chunked) {
  std::string head = str("HTTP/1.1 ", response.status, " ", http_reason(response.status), "\r\n");
  const auto add = [&](std::string_view name, std::string_view value) {
    for (const std::string_view part : {name, std::string_view(": "), value, std::string_view("\r\n")}) head += part;
  };
  if (!response.content_type.empty()) add("Content-Type", response.content_type);
  if (length && response.status != 204) add("Content-Length", std::to_string(*length));
  if (!length && chunked) add("Transfer-Encoding", "chunked");
  add("Connection", keep_alive ? "keep-alive" : "close");
  add("X-Content-Type-Options", "nosniff");
  for (const HttpHeader& h : response.headers) add(h.name, h.value);
  return head + "\r\n";
}

}  // namespace tg::io
