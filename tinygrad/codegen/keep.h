/// \file Values of a reduction that are needed again behind it: exp(x - max) of a softmax's sum. What costs more than
/// memory near the core is computed once and kept in scratch memory.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

/// Finds what a reduce sums over its ranges and what is computed again over other ranges of the same sizes, in the
/// stored value or a later reduce. The first computation also stores it, AFTER(value, STORE(INDEX(scratch, i), value))
/// inside of the reduce, and the others become loads of INDEX(AFTER(scratch, reduce), i). The index counts all ranges
/// of the value, those of the reduce fastest; the scratch memory has the size of the latter, and KernelAxes::finish
/// leaves away the loops around the reduce, whose iterations use the same memory one after another.
UOp keep_values(UOp sink, const Renderer& renderer);

/// The scratch memory of a kept value that an INDEX is into; empty for any other INDEX.
UOp kept_in(UOp index);
/// True when something is kept: then KernelAxes::finish has to be called.
bool has_kept(UOp sink);

}  // namespace tg
