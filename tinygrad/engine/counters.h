/// \file What has run so far: kernels, work, time. Process-wide, cheap, resettable.
#pragma once
#include <atomic>
#include <cstdint>

namespace tg {

struct GlobalCounters {
  static std::atomic<int64_t> kernels;      ///< kernels launched
  static std::atomic<int64_t> copies;       ///< copies between devices
  static std::atomic<int64_t> compiled;     ///< kernels that went through codegen
  static std::atomic<int64_t> ops, mem;     ///< estimated operations and bytes
  static std::atomic<int64_t> nanoseconds;  ///< time in kernels, measured under DEBUG >= 2 only
  static void reset();
};

}  // namespace tg
