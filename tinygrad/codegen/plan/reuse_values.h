/// \file Values of a reduction that are needed again behind it: exp(x - max) of a softmax's sum. What costs more than
/// memory near the core is computed once and spilled to scratch memory.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/target/renderer.h"

namespace tg {
class FinalRanges;

/// Spills what a reduce sums over its ranges and what is computed again over other ranges of the same sizes, in the
/// stored value or a later reduce. The first computation also stores it, AFTER(value, STORE(INDEX(scratch, i), value))
/// inside of the reduce, and the others become loads of INDEX(AFTER(scratch, reduce), i). The index counts all ranges
/// of the value, those of the reduce fastest; the scratch memory has the size of the latter, as iterations of the loops
/// around the reduce use the same memory one after another: place_reused_values() omits these loops from the index.
UOp reuse_reduce_values(UOp sink, const Renderer& renderer, KernelContext& names);

/// True when something is spilled: then the passes behind "apply opts" have work even if no OptOp is applied.
bool has_reused_values(UOp sink);

/// Gives spilled values their final index: the ranges of the reduce, and those coordinates around it that are not
/// loops, for each of which there is memory of its own.
UOp place_reused_values(UOp sink, const FinalRanges& ranges);

}  // namespace tg
