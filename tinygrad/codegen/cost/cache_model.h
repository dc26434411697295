/// \file How often the operands of a reduction come from beyond a cache.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace tg {

/// How a load or store moves through memory with the axes of a kernel; sets of axes are bit masks.
struct MemoryWalk {
  uint64_t mask = 0;              ///< axes its address depends on
  uint64_t scope = 0;             ///< axes whose loops are around it
  uint64_t nonlinear = 0;         ///< of `mask`: in a way without a stride
  std::vector<int64_t> stride;    ///< per axis, elements
  std::vector<size_t> by_stride;  ///< one axis of each stride but 0, ascending
  int64_t offset = 0;             ///< elements
  int itemsize = 1;
  bool store = false;
  /// Elements from one place of an axis to the next; far where nothing is known.
  int64_t step(size_t i) const { return nonlinear >> i & 1 ? int64_t{1} << 20 : std::abs(stride[i]); }
  /// Fills by_stride.
  void sort_strides();
};

/// Per axis: places, places that one iteration computes, iterations.
struct LoopNest {
  std::vector<double> size, step, trips;
  std::vector<size_t> nest;  ///< axes, outermost first
};

/// A cache as an inner loop meets it. Costs are cycles for what comes from beyond it.
struct Cache {
  double sets, ways;
  double line;     ///< each line
  double run;      ///< in addition each run of neighbouring lines
  double far_run;  ///< the same where every run lies in a page of its own
  double latency;  ///< of a run in a page of its own, at least
};

/// Cycles in which the loads among `walks` wait for what the cache has lost since it was used last: what the inner
/// loops touch stays as long as it fits, in lines and in ways, since addresses that are a multiple of the page apart
/// share their sets.
double refill_cycles(const std::vector<const MemoryWalk*>& walks, const LoopNest& steps, const Cache& cache);

}  // namespace tg
