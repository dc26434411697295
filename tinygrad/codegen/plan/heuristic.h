/// \file Candidates: choices for the axes of a CPU kernel, found by the cost model.
#pragma once
#include "tinygrad/codegen/cost/candidate.h"
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Returns the best candidates of a CPU kernel, best first, at most `n`.
std::vector<Candidate> candidates(const KernelAxes& kernel, UOp sink, const Renderer& renderer, size_t n);

/// Applies a candidate: padding, lanes, tile, order of loops, and THREAD on the outermost loop when the kernel is worth
/// it.
void apply_candidate(KernelAxes& kernel, const Candidate& c, const Renderer& renderer);

/// Plans candidates whose lanes, tile or staged operands were changed: where panels are filled, and the prediction.
/// Drops what is out of the question.
void plan_candidates(std::vector<Candidate>& list, const KernelAxes& kernel, UOp sink, const Renderer& renderer);

}  // namespace tg
