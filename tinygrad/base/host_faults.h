/// \file Failures in host code that cannot throw: kernels without scratch memory, and reads of mapped files that have
/// become shorter. They are noted, and whoever called that code finds out.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tinygrad/base/error.h"

namespace tg {

namespace host_faults {
inline std::atomic<uint64_t> count{0};
inline std::atomic<int64_t> scratch_bytes{0};  ///< wanted last; 0: the last fault was of a file

/// Notes that a kernel has had no scratch memory. It returned at once.
inline void note_scratch(int64_t bytes) {
  scratch_bytes.store(bytes, std::memory_order_relaxed);
  count.fetch_add(1, std::memory_order_release);
}
}  // namespace host_faults

/// Made before host code is run; check() throws if something has failed since, so that results are not there:
/// OutOfMemoryError for scratch memory, FileError for a file that has become shorter. What fails in other threads
/// counts, too.
class HostFaultWatch {
 public:
  void check() const {
    if (host_faults::count.load(std::memory_order_acquire) != before_) [[unlikely]]
      fail();
  }

 private:
  [[noreturn]] static void fail() {
    const int64_t scratch = host_faults::scratch_bytes.load();
    if (scratch)
      throw OutOfMemoryError(str("[scratch] no memory for ", scratch, " bytes of scratch memory of a thread"));
    throw FileError("[map_file] a file became shorter while tensors of it were read; what was cut off is not there");
  }
  uint64_t before_ = host_faults::count.load(std::memory_order_relaxed);
};

/// Registers pages of a file while it is mapped: those behind the end of a file that has become shorter then read as
/// zeros and are noted as a fault, where the process would end with SIGBUS. Faults at other addresses go to the handler
/// that was there before.
class GuardedMapping {
 public:
  GuardedMapping(void* begin, size_t bytes);
  ~GuardedMapping();
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;

 private:
  struct Slot;
  friend struct GuardedSlots;
  Slot* slot_;
};

}  // namespace tg
