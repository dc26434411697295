/// \file Reductions that share ranges but cannot share loops.
#pragma once
#include "tinygrad/codegen/kernel_context.h"

namespace tg {

/// Gives every reduce whose loops cannot be shared (another depth, other enclosing loops, a chain of reduces) ranges of
/// its own.
UOp separate_reduces(UOp sink, KernelContext& context);

}  // namespace tg
