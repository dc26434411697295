/// \file What has run so far: kernels, work, time. Process-wide, cheap, resettable.
#pragma once
#include <atomic>
#include <cstdint>

namespace tg {

struct GlobalCounters {
  static std::atomic<int64_t> kernels;      ///< kernels launched
  static std::atomic<int64_t> copies;       ///< copies between devices
  static std::atomic<int64_t> collectives;  ///< operations together with other processes
  static std::atomic<int64_t> sent;         ///< bytes this process sent in them
  static std::atomic<int64_t> compiled;     ///< kernels that went through codegen
  static std::atomic<int64_t> ops, mem;     ///< estimated operations and bytes
  static std::atomic<int64_t> nanoseconds;  ///< time in kernels, measured under DEBUG >= 2 and PROFILE=1 only
  static std::atomic<int64_t> runs;         ///< schedules and replays that ran
  static std::atomic<int64_t> run_ns;       ///< their time, host included
  /// Time until their kernels were ready: code generation, compiler, loader, caches.
  static std::atomic<int64_t> compile_ns;
  static std::atomic<int64_t> disk_hits;  ///< kernels found in the disk cache
  /// Live tensors and nodes that were looked at to find the tensors a write, a realize or a gradient concerns.
  static std::atomic<int64_t> searched;
  static void reset();
};

}  // namespace tg
