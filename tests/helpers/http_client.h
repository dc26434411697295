/// \file A client that sends any bytes over a socket and reads what comes back, for tests of servers.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tinygrad/base/error.h"

namespace tg::test {

struct ClientReply {
  int status = 0;  ///< 0: the connection ended, or nothing came in time
  std::string head, body;
  bool complete = false;
  /// Returns the value of a header, as the server writes its name.
  std::string header(std::string_view name) const {
    const size_t at = head.find(str("\r\n", name, ": "));
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

class Client {
 public:
  explicit Client(uint16_t port, double timeout_s = 60) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval time{static_cast<time_t>(timeout_s), static_cast<suseconds_t>((timeout_s - int(timeout_s)) * 1e6)};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void close_sending() { shutdown(fd_, SHUT_WR); }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  /// Reads one more piece; false at the end, on an error or after the timeout.
  bool receive() {
    char buffer[16384];
    const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    in_.append(buffer, static_cast<size_t>(n));
    return true;
  }
  const std::string& received() const { return in_; }

  /// Reads one whole answer.
  ClientReply read() {
    ClientReply reply;
    size_t end = std::string::npos;
    while ((end = in_.find("\r\n\r\n")) == std::string::npos)
      if (!receive()) return reply;
    reply.head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    reply.status = std::stoi(reply.head.substr(9, 3));
    if (reply.status == 100) return read();
    if (reply.header("Transfer-Encoding") == "chunked") return read_chunks(std::move(reply));
    const std::string length = reply.header("Content-Length");
    const size_t size = length.empty() ? 0 : std::stoul(length);
    while (in_.size() < size)
      if (!receive()) return reply;
    reply.body = in_.substr(0, size);
    in_.erase(0, size);
    reply.complete = true;
    return reply;
  }
  ClientReply request(std::string_view bytes) {
    send(bytes);
    return read();
  }

 private:
  ClientReply read_chunks(ClientReply reply) {
    while (true) {
      size_t line = 0;
      while ((line = in_.find("\r\n")) == std::string::npos)
        if (!receive()) return reply;
      const size_t size = std::stoul(in_.substr(0, line), nullptr, 16);
      while (in_.size() < line + 2 + size + 2)
        if (!receive()) return reply;
      reply.body += in_.substr(line + 2, size);
      in_.erase(0, line + 2 + size + 2);
      if (size > 0) continue;
      reply.complete = true;
      return reply;
    }
  }
  int fd_;
  std::string in_;
};

inline std::string get(std::string_view path, std::string_view more = {}) {
  return str("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n", more, "\r\n");
}
inline std::string post(std::string_view path, std::string_view body, std::string_view more = {}) {
  return str("POST ", path,
             " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ", body.size(), "\r\n",
             more, "\r\n", body);
}

}  // namespace tg::test
