/// \file Being told when memory is written: for results that are kept while what they were computed from stays as it
/// is.
#pragma once
#include <atomic>
#include <memory>

#include "tinygrad/runtime/buffer.h"

namespace tg {

/// Becomes true when watched memory is written by a kernel or a copy. Not by who writes through a host pointer.
class WriteWatch {
 public:
  WriteWatch() = default;
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  void add(const BufferRef& b);  ///< all of the memory that `b` is part of
  /// Whether anything was written since the last call.
  bool take() { return written_->exchange(false); }

 private:
  std::shared_ptr<std::atomic<bool>> written_ = std::make_shared<std::atomic<bool>>(false);
};

namespace write_watch {
inline std::atomic<int> watched{0};  ///< memories watched
void note_slow(const Buffer& b);
/// Called by what writes to memory others may see.
inline void note(const Buffer& b) {
  if (watched.load(std::memory_order_relaxed)) [[unlikely]]
    note_slow(b);
}
}  // namespace write_watch

}  // namespace tg
