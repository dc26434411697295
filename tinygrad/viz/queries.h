/// \file What is asked of a recording: sums over spans, launches, memory. Text, JSON and the page are made of these.
#pragma once
#include "tinygrad/viz/recording_data.h"

namespace tg::viz {

/// Adds; a sum that does not fit is the greatest (or least) number: a damaged recording may hold any.
int64_t saturated_sum(int64_t a, int64_t b);
/// Returns what people call a span: the name of a kernel, of a pass.
std::string_view title_of(const Recording& r, const Span& s);
/// Returns the rewrites of a span and of all its parts, in the order of time.
std::vector<const Rewrite*> rewrites_of(const Recording& r, const Span& s);
/// Returns the nodes of a snapshot, sources first.
std::vector<const Node*> nodes_of(const Recording& r, const Snapshot& g);

/// Launches of one kernel.
struct LaunchSum {
  uint32_t track = 0, name = 0;
  int64_t launches = 0, nanoseconds = 0;
};
/// Returns the sums per device and name, most time first.
std::vector<LaunchSum> launch_sums(const Recording& r);
/// Returns whether events of a track are those of a device.
bool is_device(const Recording& r, uint32_t track);

/// Memory of one device over time.
struct MemoryCurve {
  uint32_t device = 0;
  int64_t peak = 0, peak_time = 0, last = 0;
  std::vector<std::pair<int64_t, int64_t>> points;    ///< time, bytes held from then on
  std::vector<std::pair<uint64_t, int64_t>> at_peak;  ///< span and bytes it holds at the peak, most first
};
std::vector<MemoryCurve> memory_curves(const Recording& r);

/// A line of the program, and the kernels that were made for it.
struct LineSum {
  std::string place;                      ///< "train.py:12"; the method alone where lines are not known
  std::vector<std::string> methods;       ///< of Tensor, sorted
  std::vector<uint64_t> kernels;          ///< their spans
  int64_t launches = 0, nanoseconds = 0;  ///< of these kernels, which may be other lines' too
};
/// Returns the sums, most time first.
std::vector<LineSum> line_sums(const Recording& r);

/// How many of each there are.
struct Counts {
  int64_t schedules = 0, kernels = 0, rewrites = 0, launches = 0;
};
Counts counts_of(const Recording& r);

}  // namespace tg::viz
