/// \file Factors taken out of the unrolled part of a sum.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Hoists factors: sum over (loops, u) of d * q * x, where d does not depend on the unrolled ranges u, becomes the sum
/// over the loops of d * (sum over u of q * x): one product less per term. The scale of a quantized block is such a
/// factor. The order of the additions changes as any split of a sum changes it.
///
/// Where a factor is q * d + m with a small integer q, as in quantized blocks with an offset, the sum of
/// (q * d + m) * x becomes d * (sum of q * x) + m * (sum of x). What this can cancel is no more than a few steps d.
UOp factor_reduces(UOp sink);

}  // namespace tg
