/// \file The order of execution.
#pragma once
#include <vector>

#include "tinygrad/schedule/kernelize.h"

namespace tg {

/// Returns the steps in execution order. May add steps, and their items, that copy what a cycle needs from before an
/// overwrite.
std::vector<StepId> order_steps(StepGraph& g, std::vector<ScheduleItem>& items);

}  // namespace tg
