/// \file Process replay: comparison of the kernels that two versions of the library generate.
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

/// Stores a kernel's source under its key and target, unless it is there already.
void capture_kernel(const Kernel& kernel, const Target& target, const Program& program);

struct ReplayDifference {
  std::string name;    ///< of the kernel
  std::string before;  ///< source; empty: only in the second run
  std::string after;   ///< source; empty: only in the first run
};
struct ReplayComparison {
  int64_t same = 0;  ///< kernels with equal source
  std::vector<ReplayDifference> different;
};
/// Compares the captures in two cache files. Throws FileError for a missing file or one that is no cache.
ReplayComparison compare_replays(const std::string& before, const std::string& after);
/// Prints the names of the kernels that differ, and the lines in which their sources do.
void print_comparison(std::ostream& os, const ReplayComparison& c);

}  // namespace tg
