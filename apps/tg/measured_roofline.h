/// \file The roofline of this machine, for the commands that compare kernels with it.
#pragma once
#include "tinygrad/engine/inspect.h"

namespace tg::app {

/// Measures what this processor can: its peak of fused multiply-adds and of reading memory. Takes about a second.
Roofline measured_roofline();

}  // namespace tg::app
