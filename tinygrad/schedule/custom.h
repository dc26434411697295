/// \file Kernels that users write as UOps: with shapes, views and implicit loads. They become the kernel AST codegen
/// takes (docs/ir.md, section 3).
#pragma once
#include <vector>

#include "tinygrad/schedule/schedule.h"

namespace tg {

/// What a kernel function gets for its n-th buffer: a parameter that is indexed with one index per axis (`p.index({i,
/// j})`), or through movement ops.
UOp kernel_param(size_t slot, const Shape& shape, DType dtype);

/// The kernel AST of a user's SINK: flat indices, a LOAD wherever an element is used as a value, one END per loop.
/// ValueError for what is no kernel: loops that are not ended, values of tensors that were not indexed, nodes of tensor
/// graphs.
UOp lower_user_kernel(UOp sink);

/// Slots of the parameters it stores to, ascending; of a kernel in C all it takes.
std::vector<int32_t> written_params(UOp sink);

/// A kernel given as C: SINK(PARAM..., SOURCE), the PARAMs being its arguments in the order of their slots,
/// KernelInfo::name the function's name. `program` is a PROGRAM with a SINK of the parameters and a SOURCE among its
/// sources; what was compiled of it already is not looked at.
UOp source_kernel(UOp program);
/// Its text; nullptr for kernels in UOps.
const std::string* source_of(UOp sink);

/// True for a kernel whose order its author has fixed (AFTER, registers): codegen keeps its loops as they are.
bool is_ordered_by_hand(UOp sink);

}  // namespace tg
