/// \file From steps to kernels.
#pragma once
#include <vector>

#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// A step as it is run: its buffers are those of the StepGraph.
struct ScheduleItem {
  ScheduleCall call;           ///< a kernel call without a kernel: nothing is run
  std::vector<StateId> reads;  ///< by PARAM slot: the state read, -1: written only
};

/// Builds the item of one step, with a kernel in an arena of its own.
ScheduleItem kernelize_step(const StepGraph& g, StepId i);
/// Builds the items of all steps, by step; equal kernels become one. Adds steps where a kernel would overwrite what it
/// still has to read.
std::vector<ScheduleItem> kernelize(StepGraph& g);

}  // namespace tg
