/// \file STAGE becomes scratch memory, the loops that fill it and the loads that read it: one rule for each kind.
#pragma once
#include "tinygrad/codegen/kernel_context.h"

namespace tg {

/// Lowers every STAGE of a kernel. Scratch memory is a BUFFER of AddrSpace::kLocal: on a CPU it belongs to the thread,
/// on a GPU to the workgroup.
UOp lower_stages(UOp sink, KernelContext& names);
/// Gives panels that are filled in the same loop one barrier behind all of them.
UOp join_barriers(UOp sink);

}  // namespace tg
