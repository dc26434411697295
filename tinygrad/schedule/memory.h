/// \file The memory plan.
#pragma once
#include <span>

#include "tinygrad/schedule/schedule.h"

namespace tg {

/// Gives internal buffers whose lives do not overlap offsets in one arena per device. `kept_to`, where given: by call,
/// the call up to which what dies there keeps its memory.
void plan_memory(Schedule& s, std::span<const int32_t> kept_to = {});

}  // namespace tg
