/// \file Kernels that users write as UOps: with shapes, views and implicit loads. They become the kernel AST codegen
/// takes (docs/ir.md, section 3).
#pragma once
#include <vector>

#include "tinygrad/schedule/schedule.h"

namespace tg {

/// Returns the argument of a kernel function for its n-th buffer: a parameter that is indexed with one index per axis
/// (`p.index({i, j})`), or through movement ops.
UOp kernel_param(size_t slot, const Shape& shape, DType dtype);

/// Lowers a user's SINK to a kernel AST: flat indices, a LOAD wherever an element is used as a value, one END per loop.
/// Throws ValueError for other graphs: loops that are not ended, tensor values that were not indexed, nodes of
/// tensor graphs.
UOp lower_user_kernel(UOp sink);

/// Returns the slots of the parameters that a kernel stores to, ascending; of a kernel in C all of them.
std::vector<int32_t> written_params(UOp sink);

/// Returns a kernel given as C: SINK(PARAM..., SOURCE), the PARAMs being its arguments in the order of their slots,
/// KernelInfo::name the function's name. `program` is a PROGRAM with a SINK of the parameters and a SOURCE among its
/// sources; compiled code in it is ignored.
UOp source_kernel(UOp program);
/// Returns the text of a kernel in C; nullptr for kernels in UOps.
const std::string* source_of(UOp sink);

/// Returns true for a kernel whose order its author has fixed (AFTER, registers): codegen keeps its loops as they are.
bool is_ordered_by_hand(UOp sink);

}  // namespace tg
