/// \file Scratch memory of a thread, which kernels ask for at their entry.
#pragma once
#include <cstdint>

namespace tg {

/// Memory of the calling thread, aligned to a page, of at least `bytes`; what it held is lost. It stays until a larger
/// piece is asked for or the thread ends. Ends the process when there is no memory (a kernel has no way to fail);
/// panels are less than a second level cache.
void* thread_scratch(int64_t bytes);

}  // namespace tg
