/// \file The order between the queues of a device: commands that share memory run in the order they were enqueued in.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "tinygrad/runtime/queue.h"

namespace tg {

/// Bytes of an allocation that a command reads or writes.
struct MemoryAccess {
  const void* block = nullptr;  ///< the allocation's handle: never taken for an address
  int64_t begin = 0, end = 0;
  bool writes = false;
};

/// Two queues of one device. A command waits, on the device, for the commands of the other queue that touch bytes it
/// touches, unless both only read.
class QueueOrder {
 public:
  /// Makes the next command of `queue`, one of the two, wait for what it depends on, and notes what it touches. The
  /// lock is to be held until the command is enqueued. Throws DeviceError of the queues.
  [[nodiscard]] std::unique_lock<std::mutex> before(Queue& queue, std::span<const MemoryAccess> accesses);
  /// Returns how many memory ranges of commands that may not be done are noted.
  size_t noted();

 private:
  struct Side {
    Queue* queue = nullptr;
    uint64_t commands = 0;  ///< enqueued so far
    uint64_t marked = 0;    ///< how many are before `mark`
    EventRef mark;
    uint64_t awaited = 0;  ///< how many of them the other side's commands wait for
  };
  struct Use {
    int64_t begin, end;
    bool writes;
    int side;
    uint64_t number;  ///< of the command
  };
  int side_of(Queue& queue);
  uint64_t last_conflict(int side, const MemoryAccess& access) const;
  void note(int side, const MemoryAccess& access);
  void forget_done();

  std::mutex mutex_;
  Side sides_[2];
  std::unordered_map<const void*, std::vector<Use>> uses_;  // by allocation
  size_t count_ = 0, limit_ = 256;
};

}  // namespace tg
