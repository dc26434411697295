/// \file What an emulated device and its process of kernels say to each other, on a stream socket that the process has
/// as descriptor 3. Device memory is one file that both map, in the process descriptor 4.
#pragma once
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <vector>

namespace emulated {

constexpr int kSocket = 3, kMemory = 4;
constexpr uint64_t kMemoryBytes = uint64_t{2} << 30;

/// Requests and what follows their header; every one is answered.
enum class Request : uint32_t {
  kDescribe,  ///< nothing; answered with the features of the processor that were detected, a text
  kLoad,      ///< symbol, object; answered with a number
  kLaunch,    ///< number, begin, end, counts, offsets in device memory, variables; answered with nothing
  kUnload     ///< number; answered with nothing
};
enum class Answer : uint32_t { kDone, kFormatError };  ///< the text of the error follows

struct Header {
  uint32_t what;  ///< a Request or an Answer
  uint32_t bytes;
};

/// Returns whether all bytes went out; false when the other side is gone.
inline bool send_all(int socket, const void* data, size_t n) {
  for (const char* p = static_cast<const char*>(data); n > 0;) {
    const ssize_t sent = send(socket, p, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    p += sent;
    n -= static_cast<size_t>(sent);
  }
  return true;
}
inline bool receive_all(int socket, void* data, size_t n) {
  for (char* p = static_cast<char*>(data); n > 0;) {
    const ssize_t got = recv(socket, p, n, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

inline bool send_message(int socket, uint32_t what, std::span<const uint8_t> payload) {
  const Header header{what, static_cast<uint32_t>(payload.size())};
  return send_all(socket, &header, sizeof header) && send_all(socket, payload.data(), payload.size());
}
inline bool receive_message(int socket, uint32_t& what, std::vector<uint8_t>& payload) {
  Header header;
  if (!receive_all(socket, &header, sizeof header)) return false;
  what = header.what;
  payload.resize(header.bytes);
  return receive_all(socket, payload.data(), payload.size());
}

}  // namespace emulated
