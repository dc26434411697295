/// \file Plans of kernels on targets with images: whole pixels in each thread.
#pragma once
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Gives each thread the four numbers of a pixel of every operand, and of the result, that can be an image: the axis
/// that walks them becomes UPCAST or, in a sum, UNROLL, and where an operand of a sum does not depend on an axis, some
/// steps of that share its pixels. Returns whether there is any such operand.
bool plan_pixels(KernelAxes& kernel);

}  // namespace tg
