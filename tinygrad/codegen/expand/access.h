/// \file The form of indices along the lanes.
#pragma once
#include "tinygrad/uop/affine.h"

namespace tg {

/// Returns an index with its lanes as renderers look for them: scalar base + lane * stride where it is affine in the
/// lane, itself elsewhere.
UOp canonical_lanes(UOp index);

}  // namespace tg
