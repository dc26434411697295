/// \file Letting steps store into the memory of their inputs.
#pragma once
#include "tinygrad/schedule/step_graph.h"

namespace tg {

/// Lets elementwise steps store into the memory of an input that nobody reads later, when every element is read only
/// where it is stored.
void update_in_place(StepGraph& g);

}  // namespace tg
