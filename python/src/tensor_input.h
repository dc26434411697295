/// \file Tensors from Python values: numbers, nested lists, bytes, arrays with the buffer protocol, files, graph nodes.
#pragma once
#include <nanobind/nanobind.h>

#include "tinygrad/tensor/tensor.h"

namespace tg::python {

/// Error for anything a tensor cannot be made of.
Tensor tensor_from(nanobind::handle data, const TensorOptions& o);

}  // namespace tg::python
