/// \file Copies between the host and a device, asynchronous through staging memory, in order with its kernels.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "tinygrad/runtime/allocator.h"
#include "tinygrad/runtime/queue_order.h"

namespace tg {

class Device;

/// A ring of host memory that copies to a device read from.
class StagingRing {
 public:
  explicit StagingRing(Device& device) : device_(device) {}
  ~StagingRing();
  static constexpr size_t kBytes = size_t{16} << 20, kPiece = kBytes / 4;  ///< of the ring, of one copy at most

  /// Returns memory for n <= kPiece bytes, waiting for the oldest copies where there is none. Every call is followed by
  /// one of in_use().
  std::byte* take(size_t n);
  /// Keeps what was taken last until the event is reached.
  void in_use(EventRef until);

 private:
  struct Piece {
    size_t begin, end;
    EventRef until;
  };
  bool is_free(size_t begin, size_t end) const;

  Device& device_;
  std::unique_ptr<Allocator> allocator_;
  std::byte* memory_ = nullptr;
  std::deque<Piece> pieces_;  // oldest first
  size_t next_ = 0;
};

/// All copies from, to and within one device. Thread-safe.
class Transfers {
 public:
  explicit Transfers(Device& device) : device_(device), staging_(device) {}
  /// Copies n > 0 bytes to the device; returns when `src` may change, which may be before they arrive.
  void copy_in(MemoryPlace dst, const void* src, size_t n);
  /// Copies n > 0 bytes to the host and waits for them.
  void copy_out(void* dst, MemoryPlace src, size_t n);
  /// Copies n > 0 bytes within the device, whose two places do not overlap; does not wait.
  void copy(MemoryPlace dst, MemoryPlace src, size_t n);
  /// Copies n > 0 bytes of a device that this one reaches; does not wait.
  void copy_from(MemoryPlace dst, Device& source, MemoryPlace src, size_t n);
  /// Whether launches have to be ordered with copies: the device has two queues.
  bool ordered() const;
  /// Orders the next command of Device::queue(), see QueueOrder::before().
  [[nodiscard]] std::unique_lock<std::mutex> before_launch(std::span<const MemoryAccess> accesses);

 private:
  [[nodiscard]] std::unique_lock<std::mutex> before(Queue& queue, std::span<const MemoryAccess> accesses);

  Device& device_;
  QueueOrder order_;
  std::mutex staging_mutex_;
  StagingRing staging_;
};

}  // namespace tg
