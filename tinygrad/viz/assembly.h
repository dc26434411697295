/// \file Machine code of recorded kernels, made when it is asked for.
#pragma once
#include <string>

#include "tinygrad/viz/recording_data.h"

namespace tg::viz {

/// Returns the assembly of a kernel, compiled from the source that was recorded. ValueError for a span without a
/// source, and for a kernel of another processor than this machine has; what the compiler throws.
std::string assembly_of(const Recording& r, const Span& kernel);

}  // namespace tg::viz
