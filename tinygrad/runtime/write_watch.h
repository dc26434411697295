/// \file Write notifications: for cached results that are valid while their inputs are unchanged.
#pragma once
#include <atomic>
#include <memory>

#include "tinygrad/runtime/buffer.h"

namespace tg {

/// Becomes true when watched memory is written by a kernel or a copy. Writes through a host pointer go unnoticed.
class WriteWatch {
 public:
  WriteWatch() = default;
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  void add(const BufferRef& b);  ///< all of the memory that `b` is part of
  /// Returns whether anything was written since the last call.
  bool take() { return written_->exchange(false); }

 private:
  std::shared_ptr<std::atomic<bool>> written_ = std::make_shared<std::atomic<bool>>(false);
};

namespace write_watch {
inline std::atomic<int> watched{0};  ///< memories watched
void note_slow(const Buffer& b);
/// Called by all code that writes to memory visible to others.
inline void note(const Buffer& b) {
  if (watched.load(std::memory_order_relaxed)) [[unlikely]]
    note_slow(b);
}
}  // namespace write_watch

}  // namespace tg
