/// \file Plans of kernels that reduce rows and read the rows again, as softmax and norms do: on targets with workgroups
/// a team of threads has a row.
#pragma once
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Applies OptOps to a kernel without any; false: it has no such rows. Threads of a team have the same elements of a
/// row in all reduces and in what is stored, so that they read them once and keep them in registers, as far as those of
/// a thread hold them.
bool plan_rows(KernelAxes& kernel);

}  // namespace tg
