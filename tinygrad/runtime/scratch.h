/// \file Per-thread scratch memory, requested by kernels at entry.
#pragma once
#include <cstdint>

namespace tg {

/// Returns memory of the calling thread, page-aligned, of at least `bytes`; previous contents are lost. It stays until
/// a larger block is requested or the thread ends. Returns nullptr when there is no memory: a kernel then returns at
/// once, and whoever launched it finds out by HostFaultWatch (base/host_faults.h).
void* thread_scratch(int64_t bytes);

}  // namespace tg
