/// \file Values of GGML's packed blocks as tensor operations over their bytes.
#pragma once
#include "tinygrad/io/ggml_types.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::io {

/// uint8 (..., bytes of a block) -> float32 (..., elements of a block), lazily: kernels that use the values compute
/// them from the bytes. Native types come in their own dtype. Each value has the bits that gguf-py's `dequantize`
/// gives. ShapeError and DTypeError for other tensors.
Tensor ggml_dequantize(const Tensor& blocks, GgmlType type);

/// Returns the first `n` elements of a sequence of blocks: uint8 (bytes,) -> (n,). ShapeError when it is shorter or
/// `n` is no multiple of a block's elements.
Tensor ggml_data_to_tensor(const Tensor& bytes, int64_t n, GgmlType type);

}  // namespace tg::io
