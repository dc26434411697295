/// \file What a search tries beside the heuristic's candidates: the same candidate with one thing changed.
#pragma once
#include "tinygrad/codegen/heuristic.h"

namespace tg {

/// Candidates that differ from `c` in one thing: a tile factor (or two traded against each other), the lanes or their
/// axis, an operand staged or not or at another loop, the order of two loops, a second loop of an axis, the number of
/// blocks, the axis of the threads. Most promising first, as far as the model can tell; applying one may throw
/// KernelOptError. Deterministic.
std::vector<Candidate> mutations(const Candidate& c, const KernelAxes& kernel, UOp sink, const Renderer& renderer);

}  // namespace tg
