/// \file The plan of kernels whose operands are packed 4-bit values.
#pragma once
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Applies kPacked4 and the axes that belong to it where the kernel has that form and rows enough to put the factor in
/// order. Returns false when nothing is done.
bool choose_packed4(KernelAxes& kernel, const Renderer& renderer);

}  // namespace tg
