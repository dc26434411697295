/// \file From an optimised kernel AST to a graph of instructions: unrolled ranges become instances, reduces become
/// accumulators, loops get one END each.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/target/renderer.h"
#include "tinygrad/uop/upat.h"

namespace tg {

/// True for the types of ranges that are loops of a linear program (or of the grid): all but UPCAST, UNROLL and VECTOR.
bool is_loop(UOp range);
/// Nesting order of loops: true when `a` encloses `b` if both enclose a statement. By type (THREAD outermost, REDUCE
/// innermost), then id.
bool nests_before(UOp a, UOp b);

/// Moves validity out of indices: LOAD(INDEX(p, WHERE(g, i, Invalid))) becomes LOAD(INDEX(p, i), 0, g), a STORE gets
/// the gate as its third source.
UOp move_gates(UOp sink);

/// Gives every reduce whose loops cannot be shared (another depth, another surrounding, a chain of reduces) ranges of
/// its own.
UOp separate_reduces(UOp sink, KernelContext& names);

/// The expansion. UPCAST and UNROLL ranges disappear: one instance of each value per coordinate it depends on,
/// simplified as it is built. A REDUCE over loops becomes one accumulator per instance (vector-typed where the value
/// has lanes or the lanes are reduced), over unrolled ranges a chain or tree, over lanes REDUCE(v, VECTOR range) at the
/// end.
UOp expand(UOp sink, const Renderer& renderer);

/// Rules for an expanded graph: those of symbolic(), and for reduces over lanes of what they have made the same in
/// every lane.
const PatternMatcher<>& pm_expanded();

}  // namespace tg
