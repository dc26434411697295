/// \file Factors taken out of the unrolled part of a sum.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Hoists factors: sum over (loops, u) of d * q * x, where d does not depend on the unrolled ranges u, becomes the sum
/// over the loops of d * (sum over u of q * x): one product less per term. The scale of a quantized block is such a
/// factor. The order of the additions changes as any split of a sum changes it.
UOp factor_reduces(UOp sink);

}  // namespace tg
