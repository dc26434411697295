/// \file Functions of one float that Tensor's are built of.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// Integers and bool in the default float, before they are subtracted, negated or multiplied on the way to a float:
/// unsigned and narrow ones would wrap.
Tensor as_float(const Tensor& x);
/// exp(x) - 1 of x <= 0, without loss near 0.
Tensor expm1_of_negative(const Tensor& x);
/// log(1 + x) of 0 <= x <= 1, without loss near 0.
Tensor log1p_below_one(const Tensor& x);

}  // namespace tg::tensor_detail
