/// \file From reads to steps: every value that is stored becomes an expression over its loops.
#pragma once
#include <span>
#include <vector>

#include "tinygrad/schedule/rangeify.h"
#include "tinygrad/schedule/schedule_options.h"
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// `kernels` are those of the CALLs, by number.
StepGraph lower(Ranged& r, std::vector<ScheduleBuffer> buffers, const ScheduleOptions& options,
                std::span<const KernelRef> kernels);

}  // namespace tg
