/// \file Scratch memory on its own pages, huge ones where the system has them.
#include "tinygrad/runtime/scratch.h"

#include <sys/mman.h>

#include "tinygrad/base/host_faults.h"

namespace tg {
namespace {
constexpr int64_t kHugePage = 2 << 20;

struct Scratch {
  void* mapping = nullptr;
  void* memory = nullptr;
  int64_t mapped = 0, bytes = 0;

  void release() {
    if (mapping) munmap(mapping, static_cast<size_t>(mapped));
    mapping = memory = nullptr;
    mapped = bytes = 0;
  }
  void grow(int64_t wanted) {
    release();
    const int64_t size = (wanted + kHugePage - 1) / kHugePage * kHugePage;
    mapped = size + kHugePage;
    mapping = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
      mapping = nullptr;
      mapped = 0;
      host_faults::note_scratch(wanted);
      return;
    }
    const auto first = reinterpret_cast<uintptr_t>(mapping);
    memory = reinterpret_cast<void*>((first + static_cast<uintptr_t>(kHugePage) - 1) &
                                     ~(static_cast<uintptr_t>(kHugePage) - 1));
#ifdef MADV_HUGEPAGE
    madvise(memory, static_cast<size_t>(size), MADV_HUGEPAGE);
#endif
    bytes = size;
  }
  ~Scratch() { release(); }
};
thread_local Scratch scratch;
}  // namespace

void* thread_scratch(int64_t bytes) {
  if (bytes > scratch.bytes) scratch.grow(bytes);
  return scratch.memory;
}

}  // namespace tg
