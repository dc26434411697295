/// \file Fusing the maxima of parts of long rows with sums of exponentials below them.
#pragma once
#include "tinygrad/schedule/schedule_options.h"
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Lets the kernel that finds the maxima of parts of long rows sum exponentials below them as well, so that the sum
/// below the maximum of a row does not read the row again.
void fuse_partial_max_sum(StepGraph& g, const ScheduleOptions& options);

}  // namespace tg
