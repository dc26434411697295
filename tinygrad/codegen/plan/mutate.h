/// \file Mutations: candidates that a search tries in addition to those of the cost model.
#pragma once
#include "tinygrad/codegen/cost/candidate.h"
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Returns candidates that differ from `c` in one thing: a tile factor (or two traded against each other), the axis of
/// the lanes, an operand staged or not or at another loop, the order of two loops, a second loop of an axis, the
/// number of blocks, the axis of the threads. Most promising first, as far as the model can tell; applying one may
/// throw KernelOptError. Deterministic.
std::vector<Candidate> mutations(const Candidate& c, const KernelAxes& kernel, UOp sink, const Renderer& renderer);

}  // namespace tg
