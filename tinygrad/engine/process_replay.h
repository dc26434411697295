/// \file Kernels of two runs compared: what a change of the library did to the code it generates.
///
/// Under CAPTURE_PROCESS_REPLAY=1 every kernel a process compiles is stored in its disk cache: the kernel's identity
/// with its source. Two runs with caches of their own (CACHEDB=before.db, then CACHEDB=after.db) are compared by `tg
/// replay-compare before.db after.db`.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "tinygrad/target/program.h"

namespace tg {

/// Stores a kernel's source; the first of equal ones stays.
void capture_kernel(const Kernel& kernel, const Target& target, const Program& program);

struct ReplayDifference {
  std::string name;    ///< of the kernel
  std::string before;  ///< source; empty: the second run alone has it
  std::string after;   ///< source; empty: the first run alone has it
};
struct ReplayComparison {
  int64_t same = 0;  ///< kernels with equal source
  std::vector<ReplayDifference> different;
};
/// Compares what two cache files hold. Throws FileError for a file that is missing or no cache of ours.
ReplayComparison compare_replays(const std::string& before, const std::string& after);
/// Names, and of kernels whose code changed the lines that differ.
void print_comparison(std::ostream& os, const ReplayComparison& c);

}  // namespace tg
