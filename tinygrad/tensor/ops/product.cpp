/// \file Sums of products: the core of matrix products, convolutions and einsum.
#include "tinygrad/tensor/ops/product.h"

#include "tinygrad/base/env.h"

namespace tg::tensor_detail {

DType wide_dtype(DType d, std::optional<DType> sum) {
  if (d.is_weak() || env::ROUND_PRODUCTS) return d;
  const DType acc = sum.value_or(sum_acc_dtype(d));
  return can_lossless_cast(d, acc) ? acc : d;
}

Tensor sum_of_products(const Tensor& x, const Tensor& y, const Axes& axes, std::optional<DType> dtype) {
  const DType factors = least_upper_dtype(x.dtype(), y.dtype()), wide = wide_dtype(factors, dtype);
  if (wide == factors) return (x * y).sum({.axis = axes, .dtype = dtype});
  // Casts to the common type first: a literal is rounded to the other factor's type.
  const Tensor sum = (x.cast(factors).cast(wide) * y.cast(factors).cast(wide)).sum({.axis = axes, .dtype = wide});
  return !dtype && factors.is_float() ? sum.cast(factors) : sum;
}

}  // namespace tg::tensor_detail
