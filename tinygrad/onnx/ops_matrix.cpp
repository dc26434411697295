/// \file Products of matrices.
#include <algorithm>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

Values matmul(NodeContext& c) {
  const Tensor a = c.tensor(0), b = c.tensor(1);
  return {a.dot(b).cast(a.dtype())};
}

/// alpha * A' B' + beta * C, where ' transposes if asked to.
Values gemm(NodeContext& c) {
  Tensor a = c.tensor(0), b = c.tensor(1);
  if (c.flag("transA")) a = a.transpose(0, 1);
  if (c.flag("transB")) b = b.transpose(0, 1);
  const double alpha = c.attr("alpha", 1.0), beta = c.attr("beta", 1.0);
  const DType d = a.dtype();
  Tensor out = a.dot(b);
  if (alpha != 1) out = out * alpha;
  if (c.has(2) && beta != 0) out = out + (beta == 1 ? c.tensor(2) : c.tensor(2) * beta);
  return {out.cast(d)};
}

Values einsum(NodeContext& c) {
  std::string formula = c.attr("equation", "");
  std::erase(formula, ' ');
  return {Tensor::einsum(formula, c.tensors())};
}

/// The determinant by elimination with the largest pivot of each column.
Values det(NodeContext& c) {
  Tensor m = c.tensor(0);
  const int64_t n = m.shape(-1);
  c.check(m.ndim() >= 2 && m.shape(-2) == n && n <= 512, "got shape ", m.shape(), ", expected square matrices");
  Tensor out = Tensor(1.0).cast(m.dtype());
  for (int64_t k = 0; k < n; k++) {
    const int64_t left = n - k;
    const Tensor row = m.slice(-1, 0, 1).squeeze(-1).abs().argmax(-1, true);  // of the pivot
    const Tensor is_pivot = count_along(left, m.ndim() - 2, m.ndim(), row.dtype(), c.device()).eq(row.unsqueeze(-1));
    const Tensor pivot = is_pivot.where(m, m.zeros_like()).sum(-2, true);
    const Tensor first = m.slice(-2, 0, 1);
    // The first row takes the place of the pivot's, which changes the sign unless they are the same.
    m = is_pivot.where(first, m);
    const Tensor value = pivot.slice(-1, 0, 1).squeeze(-1).squeeze(-1);
    const Tensor sign = row.squeeze(-1).eq(Tensor(0)).where(Tensor(1.0), Tensor(-1.0)).cast(m.dtype());
    out = out * value * sign;
    if (left == 1) break;
    const Tensor rest = m.slice(-2, 1, left);
    const Tensor divisor = pivot.slice(-1, 0, 1);
    const Tensor factor = rest.slice(-1, 0, 1) / divisor.eq(Tensor(0)).where(divisor.ones_like(), divisor);
    m = (rest - factor * pivot).slice(-1, 1, left);
  }
  return {out};
}

/// FusedMatMul: operands may be transposed, the product scaled.
Values fused_matmul(NodeContext& c) {
  Tensor a = c.tensor(0), b = c.tensor(1);
  if (c.flag("transA") && a.ndim() > 1) a = a.transpose(-1, -2);
  if (c.flag("transB") && b.ndim() > 1) b = b.transpose(-1, -2);
  c.check(!c.flag("transBatchA") && !c.flag("transBatchB"), "attributes transBatchA and transBatchB are not supported");
  return {(a.dot(b) * c.attr("alpha", 1.0)).cast(a.dtype())};
}

const OperatorRow kRows[] = {
    {"", "MatMul", 1, matmul},
    {"", "Gemm", 1, gemm},
    {"", "Einsum", 12, einsum},
    {"", "Det", 11, det},
    {"com.microsoft", "FusedMatMul", 1, fused_matmul},
};

}  // namespace

OperatorRows matrix_operators() { return kRows; }

}  // namespace tg::onnx
