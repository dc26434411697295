/// \file Lines printed under DEBUG: two per run (1), one per kernel or copy (2); the same as events under PROFILE; what
/// errors say of kernels.
#pragma once
#include "tinygrad/engine/device_timer.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/world/collective.h"
#include "tinygrad/schedule/schedule.h"

namespace tg {

/// Counts, prints and records the time of a launch.
void report_kernel(const Program& p, const ScheduleCall& call, const std::string& device, TimeSpan time);
/// Prints and records a copy that began at `begin` (nanoseconds) and ends now.
void report_copy(const Buffer& dst, const Buffer& src, int64_t begin);
/// Prints and records what processes did together, from `begin` to now. `how`: of the way, "" for messages.
void report_collective(const Collective& c, int64_t begin, const char* how);
/// Prints what a run is about to allocate, and the peak it leads to.
void report_memory(const Schedule& s);
/// Rethrows, inside a catch block, the error with its type; its message ends with what is known of the kernel or step
/// it is about.
[[noreturn]] void rethrow_with_context(const std::string& what, const std::string& metadata);
void report_run(const Schedule& s, double compile_seconds, double run_seconds);

}  // namespace tg
