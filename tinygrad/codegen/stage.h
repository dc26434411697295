/// \file STAGE: an operand computed once into scratch memory, and read from there by everything inside of a loop.
///
/// On a CPU this is the packing of a panel: the loops that read it find it contiguous, aligned, without masks, casts or
/// arithmetic, on few pages. Scratch memory belongs to the thread, on a GPU to the workgroup; it is a BUFFER of
/// AddrSpace::kLocal.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// The values of a kernel AST that OptOp::kStage knows by number: the factors of every product that is summed, in the
/// order of the program, each once, of those that read memory and hold no reduce themselves.
UOps stageable(UOp sink);

/// Replaces `value` by a LOAD from scratch memory that is filled right before the loops in `over` begin: its ranges
/// that are inside of the staging loop, all of constant size. `slot` numbers the scratch memory of a kernel and its
/// loops, from 0. `lanes`: of a vector of the kernel; 0: it has none.
UOp stage(UOp value, UOps over, int32_t slot, int64_t lanes);

/// The same on a target with workgroups: the panel is memory that the threads of a group share. They fill it together,
/// neighbours along memory, and wait for each other. `threads`: the ranges of the group, outermost first; `loop`: the
/// one in whose iterations it is filled, which must not begin before all have read what the one before left; empty:
/// there is none.
UOp stage_shared(UOp value, UOps over, const UOps& threads, UOp loop, int32_t slot);
/// Panels that are filled in the same loop get one barrier behind all of them.
UOp join_barriers(UOp sink);

}  // namespace tg
