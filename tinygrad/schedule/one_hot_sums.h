/// \file Rewriting sums over one-hot masks as scatters.
#pragma once
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Rewrites one-hot reductions (gradients of gathers, scatter_add) as steps that add each value to the segment its
/// index names.
void scatter_one_hot_sums(StepGraph& g);

}  // namespace tg
