/// \file The memory that this process may use: the machine's, within the limits of its control group.
#pragma once
#include <cstdint>
#include <string>

namespace tg {

struct SystemMemory {
  int64_t total = 0;      ///< bytes
  int64_t available = 0;  ///< bytes that programs can take without swapping; exceeding them ends a process
};

/// Reads what the kernel says now. `root` is where its files are, for tests; zeros for what cannot be read.
SystemMemory system_memory(const std::string& root = "");

}  // namespace tg
