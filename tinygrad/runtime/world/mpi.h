/// \file MPI, opened at run time: messages between the processes that a launcher started. One table for each
/// implementation; nothing is linked.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tg {

/// Messages of bytes that nobody waits for. Calls must not overlap. Every method throws PeerError with MPI's message.
class Mpi {
 public:
  struct Request {
    uint64_t handle = 0;
  };
  struct Arrived {
    int source = 0;
    size_t bytes = 0;
  };
  static constexpr int kAnySource = -1;

  /// Opens a library: "openmpi" or "mpich" by their usual names, a path as it is, "" for the first that is there.
  /// DeviceError that says what was tried.
  static std::unique_ptr<Mpi> open(const std::string& library);

  virtual ~Mpi() = default;
  virtual const char* name() const = 0;
  /// Returns the first line of the library's version.
  virtual std::string version() = 0;
  /// Joins the world, waiting for the others; a program that has joined already goes on as it is.
  virtual void init() = 0;
  virtual void finalize() = 0;
  virtual int rank() = 0;
  virtual int size() = 0;
  /// Returns the greatest tag.
  virtual int tag_limit() = 0;
  /// Sends or receives n < 2^31 bytes, which stay where they are until the request is done.
  virtual void send(const void* data, size_t n, int to, int tag, Request* request) = 0;
  virtual void receive(void* data, size_t n, int from, int tag, Request* request) = 0;
  /// Returns what arrived once the message was sent or received; the request is gone then.
  virtual std::optional<Arrived> test(Request* request) = 0;
};

}  // namespace tg
