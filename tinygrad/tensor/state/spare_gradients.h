/// \file Tensors whose gradients a captured function leaves out unless somebody asks for them.
#pragma once
#include "tinygrad/tensor/impl.h"

namespace tg::tensor_detail {

/// Sets whether a write drops a tensor's gradient rather than wait for it.
void set_gradient_is_spare(Tensor::Impl& i, bool spare);
/// Returns the live tensors of which that holds, in order of creation.
Impls tensors_with_spare_gradients();

}  // namespace tg::tensor_detail
