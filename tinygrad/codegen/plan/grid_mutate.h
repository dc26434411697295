/// \file Neighbours of a plan of a kernel of a grid, for BEAM.
#pragma once
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Returns OptOps that differ from `opts` in one size (threads of a group, results or terms of a thread, teams), in two
/// that are traded for each other, or in one OptOp more or less. `kernel` has no OptOps. They may not fit.
std::vector<Opts> grid_mutations(const Opts& opts, const KernelAxes& kernel);

}  // namespace tg
