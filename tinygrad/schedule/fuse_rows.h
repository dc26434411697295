/// \file Fusing a reduction over rows with the kernel that reads its result and the rows again.
#pragma once
#include "tinygrad/schedule/schedule_options.h"
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Moves a reduction over rows into the one kernel that reads its result and the same rows again; erases the steps it
/// moves.
void fuse_rows(StepGraph& g, const ScheduleOptions& options);

}  // namespace tg
