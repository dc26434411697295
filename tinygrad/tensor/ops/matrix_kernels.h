/// \file Matrix decompositions as one kernel each, over batches of row-major float32 or float64 matrices. Their
/// gradients are in decompositions.cpp.
#pragma once
#include <utility>

#include "tinygrad/tensor/grad/function.h"

namespace tg::tensor_detail {

/// Householder's QR of x (batch, m, n): Q (batch, m, columns) with min(m, n) to m columns, and R (batch, m, n).
struct Householder {
  enum Argument : size_t { kR, kQ, kReflectors, kFactors, kSums, kWorkR, kWorkQ, kX, kArguments };
  Tensor q, r;
};
Householder householder(const Tensor& x, int64_t columns, const NodeGradient& gradient = {});

/// Rotates the columns of x (batch, m, n), m >= n, until they are orthogonal (one-sided Jacobi): x V and V, both
/// transposed, so that the columns are rows: (batch, n, m) and (batch, n, n).
std::pair<Tensor, Tensor> jacobi(const Tensor& x);

/// X (batch, n, k) with R X = B for R (batch, n, n), of which only the upper triangle is read.
struct BackSubstitution {
  enum Argument : size_t { kX, kR, kB, kArguments };
};
Tensor back_substitution(const Tensor& r, const Tensor& b, const NodeGradient& gradient = {});

/// Returns the values in storage of their own, as a function of `x`: the kernel's arguments are that storage, the
/// values, x.
Tensors values_of(const Tensors& values, const Tensor& x, const NodeGradient& gradient);

}  // namespace tg::tensor_detail
