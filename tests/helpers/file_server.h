/// \file A server of one file over HTTP that can break off, redirect, refuse ranges and lie: what downloads must
/// survive.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tg::test {

class FileServer {
 public:
  struct Request {
    std::string path;
    int64_t from = 0;    ///< first byte of a Range header
    bool range = false;  ///< there is one
    std::string head;    ///< all lines of the request
  };
  struct Answer {
    int status = 200;
    std::string body = {};
    std::string headers = {};     ///< further lines, each with its end
    size_t break_off = SIZE_MAX;  ///< bytes of the body after which the connection ends
    bool says_length = true;
  };
  using Handler = std::function<Answer(const Request&)>;

  explicit FileServer(Handler handler) : handler_(std::move(handler)), fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&a), size) != 0 || ::listen(fd_, 16) != 0 ||
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &size) != 0)
      std::abort();
    port_ = ntohs(a.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FileServer() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;

  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  /// Returns the part of a file that a request asks for, as servers that know ranges do.
  static Answer part_of(const std::string& file, const Request& r) {
    const auto size = static_cast<int64_t>(file.size());
    if (!r.range) return {.body = file};
    if (r.from >= size) return {.status = 416, .headers = "Content-Range: bytes */" + std::to_string(size) + "\r\n"};
    return {.status = 206,
            .body = file.substr(static_cast<size_t>(r.from)),
            .headers = "Content-Range: bytes " + std::to_string(r.from) + "-" + std::to_string(size - 1) + "/" +
                       std::to_string(size) + "\r\n"};
  }

 private:
  void serve() {
    while (true) {
      const int client = ::accept(fd_, nullptr, nullptr);
      if (client < 0) return;
      std::string head;
      char piece[4096];
      while (head.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = ::recv(client, piece, sizeof piece, 0);
        if (n <= 0) break;
        head.append(piece, static_cast<size_t>(n));
      }
      if (head.find("\r\n\r\n") != std::string::npos) answer(client, head);
      ::close(client);
    }
  }
  void answer(int client, const std::string& head) {
    Request r;
    const size_t begin = head.find(' ') + 1;
    r.head = head;
    r.path = head.substr(begin, head.find(' ', begin) - begin);
    if (const size_t at = head.find("Range: bytes="); at != std::string::npos) {
      r.range = true;
      r.from = std::strtoll(head.c_str() + at + 13, nullptr, 10);
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(r);
    }
    const Answer a = handler_(r);
    std::string out = "HTTP/1.1 " + std::to_string(a.status) + " X\r\nConnection: close\r\n" + a.headers;
    if (a.says_length) out += "Content-Length: " + std::to_string(a.body.size()) + "\r\n";
    out += "\r\n" + a.body.substr(0, a.break_off);
    for (size_t sent = 0; sent < out.size();) {
      const ssize_t n = ::send(client, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
    ::shutdown(client, SHUT_WR);
  }

  Handler handler_;
  int fd_;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::vector<Request> requests_;
  std::thread thread_;
};

}  // namespace tg::test
