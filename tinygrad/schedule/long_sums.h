/// \file Storing long sums of products before they are used.
#pragma once
#include "tinygrad/schedule/schedule_options.h"
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Stores long sums of products before anything else is computed of them, so that codegen may accumulate in memory.
void store_long_sums(StepGraph& g, const ScheduleOptions& options);

}  // namespace tg
