/// \file Leaving out steps that only move a result to another buffer.
#pragma once
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Lets a step store where a copy of its result would go, with the axes in the copy's order; the other steps that read
/// the result read it there. Erases the copy.
void elide_copies(StepGraph& g);

}  // namespace tg
