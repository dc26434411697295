/// \file Values that a captured function finds pending: they were built outside, are computed once and before it reads
/// them, and are no part of the capture.
#pragma once
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// Computes, without recording it, what these tensors depend on and was built outside of the function that is being
/// captured. Nothing while none is.
void compute_from_outside(const Tensors& tensors);

}  // namespace tg::tensor_detail
