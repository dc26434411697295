/// \file Sums of products: the core of matrix products, convolutions and einsum.
#pragma once
#include <optional>

#include "tinygrad/tensor/options.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::tensor_detail {

/// Returns the type in which values of type `d` are multiplied when their products are summed in `sum` (or in the
/// accumulation type of Tensor::sum): the sum's type if it holds all products, so that none is rounded or wraps. With
/// ROUND_PRODUCTS=1 always `d`.
DType wide_dtype(DType d, std::optional<DType> sum = {});

/// Computes (x * y).sum({axes, dtype}) with factors in their wide_dtype; shape and type of the result are the same.
Tensor sum_of_products(const Tensor& x, const Tensor& y, const Axes& axes, std::optional<DType> dtype = {});

/// Computes x.dot(w) from storage as it is, without images.
Tensor plain_dot(const Tensor& x, const Tensor& w, std::optional<DType> dtype);

}  // namespace tg::tensor_detail
