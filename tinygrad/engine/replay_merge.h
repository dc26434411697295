/// \file Recorded runs as one schedule over numbered buffers; for the files that make replays.
#pragma once
#include <vector>

#include "tinygrad/engine/replay.h"

namespace tg {

struct MergedRuns {
  Schedule schedule;
  std::vector<BufferRef> buffers;             ///< by number; empty for internal ones
  std::vector<CompiledKernelRef> kernels;     ///< by call
  std::vector<std::vector<int>> variables;    ///< by call: index among the values a replay is given, -1: constant
  std::vector<std::vector<int64_t>> values;   ///< by call: at capture
  std::vector<int32_t> inputs, outputs;       ///< numbers
  std::vector<bool> given;                    ///< by buffer: an input or output
  std::vector<bool> constant_call, constant;  ///< by call: runs once; by buffer: written by such calls
};

/// Merges the runs of a plan. A buffer that they made and nobody else holds becomes an internal one. The plan still
/// holds its buffers afterwards.
MergedRuns merge_runs(const ReplayPlan& plan);
/// Finds the calls that depend on no input, no variable and nothing that is written; what they write stays.
void find_constant_calls(MergedRuns& m);

}  // namespace tg
