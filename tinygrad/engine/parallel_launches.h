/// \file Groups of launches that are worth running on several threads, and the dependencies in them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tinygrad/runtime/task_graph.h"

namespace tg {

/// Bytes of one piece of memory that a launch reads or writes.
struct MemoryUse {
  uint64_t memory = 0;  ///< memory of different numbers has no bytes in common
  int64_t begin = 0, end = 0;
  bool writes = false;
};
struct LaunchUse {
  std::vector<MemoryUse> accesses;
  double ns = 0;       ///< about how long one thread takes
  bool alone = false;  ///< uses all threads itself, or must not run concurrently with others
};

/// Launches [begin, end) as tasks: lists of launches that run one after another. Every launch runs after those before
/// it in the list that it shares memory with, unless both only read.
struct LaunchGroup {
  uint32_t begin = 0, end = 0;
  std::vector<std::vector<uint32_t>> tasks;
  double ns = 0, longest_ns = 0;  ///< of all tasks; of the longest chain of them
  TaskGraph graph;
  /// Whether so many threads save more than it costs to wake them.
  bool pays(int threads) const;
};

/// Returns the groups of a list for which that may pay; a chain never does.
std::vector<LaunchGroup> parallel_launches(std::span<const LaunchUse> list);

}  // namespace tg
