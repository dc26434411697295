/// \file Fusing attention into kernels that do not store its scores.
#pragma once
#include "tinygrad/schedule/schedule_options.h"
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Moves the scores and the softmax of an attention with long keys into the kernels that multiply with the values and
/// the gradients, which then compute them in blocks (schedule/attention_form.h).
void fuse_attention(StepGraph& g, const ScheduleOptions& options);

}  // namespace tg
