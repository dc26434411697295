/// \file Panels: operands packed for the loops that read them.
///
/// The loops that read a panel find it contiguous, aligned, without masks, casts or arithmetic, on few pages.
#pragma once
#include "tinygrad/codegen/kernel_context.h"

namespace tg {

/// Lowers a read of a STAGE of kind kPanel: its memory, filled right before the loops it ends begin. `lanes`: of a
/// vector of the kernel; 0: it has none.
UOp lower_panel(UOp read, KernelContext& names, int64_t lanes);

/// Returns by how many elements the loads of a value move along a range, the maximum; -1 when it is not a constant.
int64_t stride_along(UOp value, UOp range);
/// Returns the sum of coordinate * step.
UOp scratch_index(const std::vector<int64_t>& steps, const UOps& coordinates);

}  // namespace tg
