/// \file Per-thread scratch memory, requested by kernels at entry.
#pragma once
#include <cstdint>

namespace tg {

/// Returns memory of the calling thread, page-aligned, of at least `bytes`; previous contents are lost. It stays until
/// a larger block is requested or the thread ends. Ends the process when there is no memory (a kernel has no way to
/// fail); panels are smaller than a second-level cache.
void* thread_scratch(int64_t bytes);

}  // namespace tg
