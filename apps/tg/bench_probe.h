/// \file What the machine can do: peak rate of fused multiply-add and of memory, measured.
#pragma once
#include <cstddef>
#include <vector>

namespace tg::bench {

/// Seconds of each run, and what one run does on all threads together. `correct` says that the kernel computed what it
/// should.
struct ProbeRuns {
  std::vector<double> seconds;
  double flops = 0, bytes_read = 0, bytes_written = 0;
  bool correct = false;
};

/// Independent chains of c = c * m + a in registers, in the widest vectors the processor has.
ProbeRuns probe_fma(int threads, size_t runs);
/// Sum over an array several times as large as the last-level cache, a slice for each thread.
ProbeRuns probe_read(int threads, size_t runs);
/// a = b + s * c over arrays as large; `streaming`: stores that bypass the caches. Write-allocate traffic is not
/// counted.
ProbeRuns probe_triad(int threads, size_t runs, bool streaming);

/// "avx512f", "avx2", "sse2" or "portable": what the probes run on.
const char* probe_isa();

}  // namespace tg::bench
