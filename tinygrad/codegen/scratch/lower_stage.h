/// \file STAGE becomes scratch memory, the loops that fill it and the loads that read it: one rule for each kind.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Lowers every STAGE of a kernel. Scratch memory is a BUFFER of AddrSpace::kLocal: on a CPU it belongs to the thread,
/// on a GPU to the workgroup.
UOp lower_stages(UOp sink, KernelContext& names, const Target& target);
/// Returns the elements from one row of an operand of matrix instructions to the next: 16 bytes more than it has, so
/// that rows stay aligned and eight of them begin in eight different banks.
int64_t panel_row_elements(int64_t words, int itemsize);
/// Returns how many steps of a sum panels have that matrix instructions read from memory, where there is room: some are
/// copied while others are read.
int64_t panel_steps_ahead();
/// True where a panel for matrix instructions holds the elements of `load` as memory has them, across the sum, and is
/// filled by copies of 16 bytes. `over`: the ranges of the panel, those of the sum UNROLL.
bool is_copied_across(UOp load, const UOps& over, const Target& target);
/// The same for a panel of whole matrices (target/shared_matrix.h): `over` in the order it has them, those of the sum
/// first.
bool is_copied_in_rows(UOp load, const UOps& over, const Target& target);
/// Returns the effect that the threads of a group have multiplied the step of the sum before this one of `loop`, known
/// behind `behind`: where boxes come to `memory`, its place can be filled again. Elsewhere it is `behind`.
UOp release_room(UOp memory, UOp loop, UOp behind);
/// Gives panels that are filled in the same loop one barrier behind all of them.
UOp join_barriers(UOp sink);

}  // namespace tg
