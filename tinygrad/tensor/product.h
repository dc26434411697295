/// \file Sums of products: what matrices, convolutions and einsum are made of.
#pragma once
#include <optional>

#include "tinygrad/tensor/options.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// The type in which numbers of type `d` are multiplied when their products are summed in `sum` (or in what Tensor::sum
/// takes): that of the sum where it holds all of them, so that no product is rounded or wraps. With ROUND_PRODUCTS=1
/// always `d`.
DType wide_dtype(DType d, std::optional<DType> sum = {});

/// (x * y).sum({axes, dtype}) with factors in their wide_dtype; shape and type of the result are the same.
Tensor sum_of_products(const Tensor& x, const Tensor& y, const Axes& axes, std::optional<DType> dtype = {});

}  // namespace tg::tensor_detail
