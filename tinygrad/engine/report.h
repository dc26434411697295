/// \file Lines printed under DEBUG: one per run (1), one per kernel or copy (2).
#pragma once
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/schedule/schedule.h"

namespace tg {

void report_kernel(const Program& p, const ScheduleCall& call, const std::string& device, double seconds);
void report_copy(const Buffer& dst, const Buffer& src, double seconds);
void report_run(const Schedule& s, double compile_seconds, double run_seconds);

}  // namespace tg
