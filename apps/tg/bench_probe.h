/// \file Measures the machine: peak rate of fused multiply-add and of memory.
#pragma once
#include <cstddef>
#include <vector>

namespace tg::bench {

/// Seconds of each run, and the work of one run on all threads together. `correct`: the kernel computed the expected
/// value.
struct ProbeRuns {
  std::vector<double> seconds;
  double flops = 0, bytes_read = 0, bytes_written = 0;
  bool correct = false;
};

/// Runs independent chains of c = c * m + a in registers, in the widest vectors the processor has.
ProbeRuns probe_fma(int threads, size_t runs);
/// Sums an array several times as large as the last-level cache, a slice per thread.
ProbeRuns probe_read(int threads, size_t runs);
/// Computes a = b + s * c over arrays as large; `streaming`: stores that bypass the caches. Write-allocate traffic is
/// not counted.
ProbeRuns probe_triad(int threads, size_t runs, bool streaming);

/// Returns the clock of the core this thread runs on, in Hz: each addition of a chain needs the one before it and takes
/// a cycle.
double probe_clock();

/// Returns "avx512f", "avx2", "sse2" or "portable": the instructions of the probes.
const char* probe_isa();

}  // namespace tg::bench
