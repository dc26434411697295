/// \file Functions of one float that Tensor's own are built from.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// Converts integers and bool to the default float, before they are subtracted, negated or multiplied on the way to a
/// float: unsigned and narrow ones would wrap.
Tensor as_float(const Tensor& x);
/// Computes exp(x) - 1 for x <= 0, without cancellation near 0.
Tensor expm1_of_negative(const Tensor& x);
/// Computes log(1 + x) for 0 <= x <= 1, without cancellation near 0.
Tensor log1p_below_one(const Tensor& x);
/// Computes x times the integral of the normal density up to x.
Tensor exact_gelu(const Tensor& x);

}  // namespace tg::tensor_detail
