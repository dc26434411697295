/// \file Plans of products of packed matrices and few vectors on targets with workgroups.
#pragma once
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// Plans a sum whose largest operand is bytes, of blocks that each hold several numbers and what they are multiplied by
/// (GGML's formats). A warp shares a row: neighbouring threads have blocks that follow each other, and each reads up to
/// 16 bytes of its block at once, unpacks them in registers and multiplies them with all vectors. Returns false, and
/// leaves the kernel as it is, where it is none of these.
bool plan_packed_rows(KernelAxes& kernel);

}  // namespace tg
