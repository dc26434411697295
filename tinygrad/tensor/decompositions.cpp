/// \file QR, SVD and Newton-Schulz of batches of matrices.
#include <algorithm>

#include "tinygrad/tensor/impl.h"

namespace tg {
using namespace tensor_detail;

namespace {
void check_matrix(const Tensor& t, const char* op) {
  TG_CHECK(ShapeError, t.ndim() >= 2, "[", op, "] got shape ", t.shape(), ", expected at least two axes");
  TG_CHECK(DTypeError, t.dtype().is_float(), "[", op, "] got ", t.dtype(), ", expected floats");
}
Shape batched(const Tensor& t, std::initializer_list<int64_t> tail) {
  Shape s = t.shape();
  s.resize(s.size() - 2);
  for (int64_t n : tail) s.push_back(n);
  return s;
}
Tensor columns(const Tensor& t, int64_t from, int64_t to) { return t(Ellipsis, Slice(from, to)); }
}  // namespace

std::pair<Tensor, Tensor> Tensor::qr() const {
  OpScope s;
  check_matrix(*this, "qr");
  int64_t m = shape(-2), n = shape(-1);
  Tensor r = *this, q = eye(m, m, {.dtype = dtype()}).expand(batched(*this, {m, m})), row = arange(m);
  for (int64_t i = 0; i < std::min(m, n); i++) {
    // The reflector of column i below the diagonal: v with 1 at i, H = I - w v^T.
    Tensor here = row == i, x = (row >= i).where(r(Ellipsis, i), 0.0);
    Tensor norm = x.square().sum(-1, true).sqrt(), x0 = here.where(x, 0.0).sum(-1, true);
    Tensor sign = (x0 != 0).where(x0.sign(), 1.0), some = norm != 0, u0 = x0 + sign * norm;
    Tensor v = (here.where(u0, x) / some.where(u0, 1.0)).unsqueeze(-1);
    Tensor w = some.where(sign * u0 / some.where(norm, 1.0), 0.0).unsqueeze(-1) * v;
    r = (r - w.dot(v.transpose(-2, -1).dot(r))).contiguous();
    q = (q - q.dot(v).dot(w.transpose(-2, -1))).contiguous();
  }
  return {q, r};
}

Tensor::Svd Tensor::svd(bool full_matrices) const {
  OpScope s;
  check_matrix(*this, "svd");
  int64_t m = shape(-2), n = shape(-1), k = std::min(m, n);
  if (m < n) {
    Svd t = transpose(-2, -1).svd(full_matrices);
    return {t.vt.transpose(-2, -1), t.s, t.u.transpose(-2, -1)};
  }
  auto [q, r] = qr();
  // One-sided Jacobi: the columns of U = R V become orthogonal. They are kept in two halves, column i of one paired with column i of the other;
  // between rounds all but the first move on by one place, so that every pair meets. An odd number gets a zero column.
  int64_t h = (k + 1) / 2;
  Tensor u = r(Ellipsis, Slice(0, k), Slice()), v = eye(k, k, {.dtype = dtype()}).expand(batched(*this, {k, k}));
  if (k % 2) u = u.pad(Ints{0, 1}), v = v.pad(Ints{0, 1});
  Tensor left = columns(u, 0, h), right = columns(u, h, 2 * h), vleft = columns(v, 0, h), vright = columns(v, h, 2 * h);
  auto rotate = [](Tensor& a, Tensor& b, const Tensor& c, const Tensor& sn) {
    Tensor x = (c * a - sn * b).contiguous(), y = (sn * a + c * b).contiguous();
    a = x, b = y;
  };
  auto move_on = [&](Tensor& a, Tensor& b) {
    if (h < 2) return;
    Tensor x = cat({columns(a, 0, 1), columns(b, 0, 1), columns(a, 1, h - 1)}, -1), y = cat({columns(b, 1, h), columns(a, h - 1, h)}, -1);
    a = x, b = y;
  };
  for (int64_t round = 0; round < 6 * std::max<int64_t>(2 * h - 1, 1); round++) {
    Tensor gamma = (left * right).sum(-2, true), alpha = left.square().sum(-2, true), beta = right.square().sum(-2, true);
    Tensor turn = gamma != 0, tau = (beta - alpha) / (2.0 * turn.where(gamma, 1.0));
    Tensor t = turn.where((tau != 0).where(tau.sign(), 1.0) / (tau.abs() + (1.0 + tau.square()).sqrt()), 0.0);
    Tensor c = (1.0 + t.square()).rsqrt(), sn = c * t;
    rotate(left, right, c, sn), rotate(vleft, vright, c, sn);
    move_on(left, right), move_on(vleft, vright);
  }
  u = cat({left, right}, -1), v = cat({vleft, vright}, -1);
  auto [sv, order] = u.square().sum(-2).sqrt().sort(-1, true);
  order = columns(order.unsqueeze(-2), 0, k).expand(batched(*this, {k, k})), sv = columns(sv, 0, k);
  u = u.gather(-1, order) / (sv != 0).where(sv, 1.0).unsqueeze(-2), v = v.gather(-1, order);
  if (full_matrices) {
    // Beside U an identity for the columns of Q that R does not reach.
    Tensor corner = u.pad(Ints{0, m - k, 0, m - k});
    Tensor rest = (arange(m) >= k) & (arange(m).unsqueeze(-1) == arange(m));
    u = q.dot(corner + rest.cast(dtype()));
  } else u = columns(q, 0, k).dot(u);
  return {u, sv, v.transpose(-2, -1)};
}

Tensor Tensor::newton_schulz(int steps, const std::vector<double>& coefficients, double eps) const {
  OpScope s;
  check_matrix(*this, "newton_schulz");
  TG_CHECK(ValueError, steps >= 0 && !coefficients.empty(), "[newton_schulz] got ", steps, " steps and ", coefficients.size(),
           " coefficients, expected 0 or more, and 1 or more");
  if (shape(-2) > shape(-1)) return s(transpose(-2, -1).newton_schulz(steps, coefficients, eps).transpose(-2, -1));
  Tensor g = *this / (square().sum({-2, -1}, true).sqrt() + eps);
  for (int i = 0; i < steps; i++) {
    Tensor a = g.dot(g.transpose(-2, -1)), power = g, sum = coefficients[0] * g;
    for (size_t c = 1; c < coefficients.size(); c++) power = a.dot(power), sum = sum + coefficients[c] * power;
    g = sum;
  }
  return s(g);
}

}  // namespace tg
