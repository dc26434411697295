/// \file Plans of kernels on targets with workgroups: which axes the threads of a group share, what a thread computes.
#pragma once
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Applies OptOps to a kernel without any, by the limits and figures of its target:
///
/// - products of two operands for which the target has a matrix instruction: tiles of warps, operands staged in the
///   group's memory as the instruction wants them;
/// - other products of two operands (matrix products, convolutions): two-dimensional tiles of a group and of each
///   thread, operands staged in the group's memory;
/// - reduces with few results: the threads of a group share one, each adjacent elements;
/// - everything else: neighbouring threads along what is adjacent in memory.
void plan_workgroups(KernelAxes& kernel, const CodegenOptions& options);

}  // namespace tg
