/// \file QR, SVD and Newton-Schulz of batches of matrices. QR and SVD are kernels (matrix_kernels.h); their gradients
/// are formulas of whole matrices.
#include <algorithm>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/matrix_kernels.h"
#include "tinygrad/tensor/ops/product.h"
#include "tinygrad/tensor/state/effects.h"
#include "tinygrad/uop/buffer_flags.h"
#include "tinygrad/uop/multi.h"

namespace tg {
using namespace tensor_detail;

namespace {
void check_matrix(const Tensor& t, const char* op) {
  TG_CHECK(ShapeError, t.ndim() >= 2, "[", op, "] got shape ", t.shape(), ", expected at least two axes");
  TG_CHECK(DTypeError, t.dtype().is_float(), "[", op, "] got ", t.dtype(), ", expected floats");
}

/// A batch of matrices along one axis, in a type that decompositions are computed in.
struct Matrices {
  Tensor x;          ///< (batch, m, n)
  Shape lead, room;  ///< the batch as it was; symbolic sizes at their greatest
  DType dtype;
  explicit Matrices(const Tensor& t) : lead(t.shape()), room(t.max_shape()), dtype(t.dtype()) {
    Tensor all = t;
    if (lead.symbolic())
      all = Tensor::from_uop(UOp::make(Ops::PAD, dtype, {t.uop(), Shape(lead.size(), SInt(0)).stack(), room.stack()}));
    // A kernel sees its device's shard, which must hold whole matrices.
    if (const UOp u = all.uop(); is_multi(u) && std::ranges::any_of(shard_axes(u).of, [](int8_t a) { return a > 0; }))
      all = Tensor::from_uop(distribute(u, device_of(u), {}));
    const SInt m = room[room.size() - 2], n = room.back();
    lead.resize(lead.size() - 2);
    room.resize(room.size() - 2);
    x = all.cast(least_upper_dtype(dtype, dtypes::float32)).reshape({ops::product(room), m, n});
    // Stored once for all kernels that read it.
    if (const UOp u = x.uop(); !is_multi(u) && !has_buffer_identity(current_view(u)))
      x = Tensor::from_uop(materialize(u, device_or_default(u)));
  }
  /// Reshapes and casts a result (batch, ...) to the argument's form.
  Tensor back(const Tensor& t) const {
    Shape all = room, wanted = lead;
    for (size_t i = 1; i < t.shape().size(); i++) {
      all.push_back(t.shape()[i]);
      wanted.push_back(t.shape()[i]);
    }
    return t.reshape(all).shrink_to(wanted).cast(dtype);
  }
};

Tensor transposed(const Tensor& t) { return t.transpose(-2, -1); }
Tensor columns(const Tensor& t, int64_t from, int64_t to) { return t(Ellipsis, Slice(from, to)); }
Tensor rows(const Tensor& t, int64_t from, int64_t to) { return t(Ellipsis, Slice(from, to), Slice()); }

/// Whether a result of the kernel was dropped, asked in its gradient (whose inputs are what the kernel wrote, the
/// gradients of that, and the arguments). A result nobody held has given up its memory and is computed again,
/// elsewhere.
bool is_gone(UOp call, size_t i) {
  const UOp place = call.src(i + 1);
  return !Graph::global().forwarded(place.after({call})) && is_stale(base_of(place));
}
Tensor argument(UOp call, size_t i) { return Tensor::from_uop(call.src(i + 1)); }
Tensor written(UOp call, size_t i) { return Tensor::from_uop(call.src(i + 1).after({call})); }
Tensor arriving(const UOps& gradients, UOp call, size_t i) {
  return gradients[i] ? Tensor::from_uop(gradients[i]) : argument(call, i).zeros_like();
}

/// Solves R X = B, R upper triangular.
Tensor solve_upper(const Tensor& r, const Tensor& b) {
  using enum BackSubstitution::Argument;
  auto gradient = [](const UOps& g, UOp call) {
    // R^T is lower triangular: upper with its axes reversed.
    const Tensor turned = transposed(argument(call, kR)).flip({-2, -1}),
                 db = solve_upper(turned, arriving(g, call, kX).flip(-2)).flip(-2);
    const Tensor x = is_gone(call, kX) ? solve_upper(argument(call, kR), argument(call, kB)) : written(call, kX);
    UOps out(kArguments);
    out[kR] = (-db.dot(transposed(x)).triu()).uop();
    out[kB] = db.uop();
    return out;
  };
  return back_substitution(r, b, gradient);
}

/// Returns the gradient of A = Q R, m >= n, from those of Q (m, n) and R (n, n): Walter and Lehmann 2010.
Tensor grad_thin_qr(const Tensor& q, const Tensor& r, const Tensor& dq, const Tensor& dr) {
  const Tensor m = r.dot(transposed(dr.triu())) - transposed(dq).dot(q);
  const Tensor b = dq + q.dot(m.tril() + transposed(m.tril(-1)));
  return transposed(solve_upper(r, transposed(b)));
}

std::pair<Tensor, Tensor> qr_of(const Tensor& x, int64_t width);

/// Returns what the gradient of the columns of Q after the n-th contributes to the first n, which determine them: with
/// E the first n columns of the identity a product of n reflectors is Q = I - (E - Q1) (I - Q11)^-T (E - Q1)^T (Ballard
/// et al. 2015).
Tensor grad_of_rest(const Tensor& q, int64_t n, const Tensor& drest) {
  const int64_t m = q.shape(-2);
  const Tensor first = columns(q, 0, n), unit = Tensor::eye(m, n, {.dtype = q.dtype()});
  auto [o, t] = qr_of(Tensor::eye(n, n, {.dtype = q.dtype()}) - rows(first, 0, n), n);
  auto solved = [&](const Tensor& b) { return solve_upper(t, transposed(o).dot(b)); };  // (I - Q11)^-1 B
  const Tensor z = solved(columns(rows(q, 0, n), n, m)), l = solved(transposed(unit - first).dot(drest));
  return Tensor::cat({z.dot(transposed(l)), transposed(l)}, -2) - drest.dot(transposed(z));
}

/// Returns Q (batch, m, width) and R (batch, m, n).
std::pair<Tensor, Tensor> qr_of(const Tensor& x, int64_t width) {
  using enum Householder::Argument;
  auto gradient = [](const UOps& g, UOp call) {
    const Tensor a = argument(call, kX), dq = arriving(g, call, kQ), dr = arriving(g, call, kR);
    const int64_t m = a.shape(-2), n = a.shape(-1), w = dq.shape(-1);
    const auto [q, r] =
        is_gone(call, kQ) || is_gone(call, kR) ? qr_of(a, w) : std::pair(written(call, kQ), written(call, kR));
    UOps out(kArguments);
    if (m >= n) {
      Tensor first = columns(dq, 0, n);
      if (w > n && g[kQ]) first = first + grad_of_rest(q, n, columns(dq, n, w));
      out[kX] = grad_thin_qr(columns(q, 0, n), rows(r, 0, n), first, rows(dr, 0, n)).uop();
      return out;
    }
    // The first m columns are Q times a triangle, the others Q times a rectangle.
    const Tensor drest = columns(dr, m, n), all = dq + columns(a, m, n).dot(transposed(drest));
    out[kX] = Tensor::cat({grad_thin_qr(q, columns(r, 0, m), all, columns(dr, 0, m)), q.dot(drest)}, -1).uop();
    return out;
  };
  const Householder h = householder(x, width, gradient);
  return {h.q, h.r};
}

/// Returns, from x = q r with r (batch, n, n): U of q's shape, the singular values, and V^T.
Tensors svd_values(const Tensor& q, const Tensor& r) {
  Tensor size = r.abs().max({.axis = {-2, -1}, .keepdim = true});
  size = (size != 0).where(size, 1.0).contiguous();
  auto [turned, vt] = jacobi(r / size);
  auto [s, order] = turned.square().sum(-1).sqrt().contiguous().sort(-1, true);
  const Tensor which = order.unsqueeze(-1).expand(vt.shape());
  // The columns are orthogonal, so their QR has a diagonal R, and Q has columns also where a singular value is 0.
  auto [u, diagonal] = householder(transposed(turned.gather(-2, which)), r.shape(-1));
  const Tensor sign = (diagonal.diagonal(0, -2, -1) < 0).where(-1.0, 1.0).cast(r.dtype());
  return {q.dot(u * sign.unsqueeze(-2)), s * size.squeeze(-1), vt.gather(-2, which)};
}

/// Returns a / b, and 0 where b is 0.
Tensor quotient(const Tensor& a, const Tensor& b) { return (a == 0).where(0.0, a / (a == 0).where(1.0, b)); }

Tensors thin_svd(const Tensor& x, const Tensor& q, const Tensor& r);

UOps grad_svd(const UOps& g, UOp call) {
  const Tensor x = argument(call, 6);
  Tensors f;
  if (is_gone(call, 0) || is_gone(call, 1) || is_gone(call, 2)) {
    auto [q, r] = qr_of(x, x.shape(-1));
    f = thin_svd(x, q, r);
  } else f = {written(call, 0), written(call, 1), written(call, 2)};
  const Tensor &u = f[0], &s = f[1], &vt = f[2], v = transposed(vt);
  const Tensor du = arriving(g, call, 0), ds = arriving(g, call, 1), dv = transposed(arriving(g, call, 2));
  auto skew = [](const Tensor& t) { return t - transposed(t); };
  const Tensor along = s.unsqueeze(-2), down = s.unsqueeze(-1), gaps = along.square() - down.square();
  const Tensor values = Tensor::eye(s.shape(-1), s.shape(-1), {.dtype = s.dtype()}) * ds.unsqueeze(-2);
  const Tensor turns =
      quotient(skew(transposed(u).dot(du)), gaps) * along + quotient(skew(transposed(v).dot(dv)), gaps) * down;
  Tensor r = u.dot(turns + values);
  if (u.shape(-2) > u.shape(-1)) r = r + quotient(du - u.dot(transposed(u).dot(du)), along);
  UOps out(7);
  out[6] = r.dot(vt).uop();
  return out;
}

/// Returns U (batch, m, n), the singular values and V^T of x = q r. The gradient is that of x alone, also where a
/// triangle is singular.
Tensors thin_svd(const Tensor& x, const Tensor& q, const Tensor& r) {
  const int64_t n = x.shape(-1);
  return values_of(svd_values(columns(q, 0, n).detach(), rows(r, 0, n).detach()), x, grad_svd);
}
}  // namespace

std::pair<Tensor, Tensor> Tensor::qr() const {
  OpScope s;
  check_matrix(*this, "qr");
  const int64_t m = shape(-2);
  const Matrices a(*this);
  if (max_numel() == 0) return {s(a.back(eye(m, m).expand({ops::product(a.room), m, m}))), *this};
  auto [q, r] = qr_of(a.x, m);
  return {s(a.back(q)), s(a.back(r))};
}

Tensor::Svd Tensor::svd(bool full_matrices) const {
  OpScope s;
  check_matrix(*this, "svd");
  const int64_t m = shape(-2), n = shape(-1);
  if (m < n) {
    Svd t = transpose(-2, -1).svd(full_matrices);
    return {t.vt.transpose(-2, -1), t.s, t.u.transpose(-2, -1)};
  }
  const Matrices a(*this);
  if (max_numel() == 0) {
    auto unit = [&](int64_t k, int64_t w) { return s(a.back(eye(k, w).expand({ops::product(a.room), k, w}))); };
    return {unit(m, full_matrices ? m : n), s(a.back(zeros({ops::product(a.room), n}))), unit(n, n)};
  }
  auto [q, r] = qr_of(a.x, full_matrices ? m : n);
  const Tensors done = thin_svd(a.x, q, r);
  const Tensor u = q.shape(-1) > n ? cat({done[0], columns(q, n, m)}, -1) : done[0];
  return {s(a.back(u)), s(a.back(done[1])), s(a.back(done[2]))};
}

Tensor Tensor::newton_schulz(int steps, const std::vector<double>& coefficients, double eps) const {
  OpScope s;
  check_matrix(*this, "newton_schulz");
  TG_CHECK(ValueError, steps >= 0 && !coefficients.empty(), "[newton_schulz] got ", steps, " steps and ",
           coefficients.size(), " coefficients, expected 0 or more, and 1 or more");
  if (shape(-2) > shape(-1)) return s(transpose(-2, -1).newton_schulz(steps, coefficients, eps).transpose(-2, -1));
  // The norm of narrow floats is computed in float32: their squares overflow, and eps rounds to 0.
  const Tensor wide = cast(wide_dtype(dtype()));
  Tensor g = (wide / (wide.square().sum({-2, -1}, true).sqrt() + eps)).cast(dtype());
  for (int i = 0; i < steps; i++) {
    Tensor a = g.dot(g.transpose(-2, -1)), power = g, sum = coefficients[0] * g;
    for (size_t c = 1; c < coefficients.size(); c++) {
      power = a.dot(power);
      sum = sum + coefficients[c] * power;
    }
    g = sum;
  }
  return s(g);
}

}  // namespace tg
