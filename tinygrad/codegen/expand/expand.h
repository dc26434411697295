/// \file From an optimised kernel AST to a graph of instructions: unrolled ranges become instances, reduces become
/// accumulators, loops get one END each.
#pragma once
#include "tinygrad/target/renderer.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {

/// Expands a kernel. UPCAST and UNROLL ranges disappear: one instance of each value per coordinate it depends on,
/// simplified as it is built. A REDUCE over loops becomes one accumulator per instance (vector-typed where the value
/// has lanes or the lanes are reduced), over unrolled ranges a chain or tree, over lanes REDUCE(v, VECTOR range) at the
/// end.
UOp expand(UOp sink, const Renderer& renderer);

/// Returns the rules for an expanded graph: those of symbolic(), and one for reduces over lanes of values that these
/// have made the same in every lane.
const PatternMatcher<>& pm_expanded();

}  // namespace tg
