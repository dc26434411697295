#include "tinygrad/tensor/ops/matrix_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/tensor/ops/steps.h"

namespace tg::tensor_detail {

namespace {
constexpr int64_t kLanes = 16;   // partial sums of a dot product, so that it can be computed in vectors
constexpr int64_t kSweeps = 30;  // over all pairs of columns; about ten suffice, the others then do nothing

UOp whole(int64_t v) { return UOp::constant(v); }
UOp absolute(UOp v) { return v.maximum(v.neg()); }
UOp root(UOp v) { return UOp::alu(Ops::SQRT, {v}); }
/// Returns a / b, or 0 where b is 0.
UOp quotient(UOp a, UOp b) {
  const UOp zero = b.const_like(0);
  return b.ne(zero).where(a / b.ne(zero).where(b, b.const_like(1)), zero);
}

int64_t padded(int64_t size) { return (size + kLanes - 1) / kLanes * kLanes; }

/// Applies the reflector H = I - tau v v^T to the rows from k on of one matrix of a batch, whose rows are padded to
/// whole vectors. The columns before the k-th are zero there, so that a vector may begin before `first`. `sums` is
/// scratch.
struct Reflection {
  UOp v, tau, sums, batch, k;
  int64_t rows, columns;
  void apply(Steps& s, UOp x, UOp first) const {
    const UOp before = first / ConstValue(kLanes), vectors = whole(padded(columns) / kLanes) - before,
              height = whole(rows) - k;
    auto each = [&](auto&& body) {
      s.loop(vectors, [&](UOp c) { s.lanes(kLanes, [&](UOp l) { body((before + c) * kLanes + l); }); });
    };
    each([&](UOp c) { s.write(sums, {batch, c}, sums.const_like(0)); });
    s.loop(height, [&](UOp i) {
      const UOp vi = s.read(v, {batch, k, k + i});
      each([&](UOp c) { s.write(sums, {batch, c}, s.read(sums, {batch, c}) + vi * s.read(x, {batch, k + i, c})); });
    });
    s.loop(height, [&](UOp i) {
      const UOp factor = s.read(v, {batch, k, k + i}) * s.read(tau, {batch, k});
      each([&](UOp c) {
        s.write(x, {batch, k + i, c},
                s.read(x, {batch, k + i, c}) + factor * s.read(sums, {batch, c}) * sums.const_like(-1));
      });
    });
  }
};

/// Builds the QR kernel from: R, Q, the reflectors with their factors, sums, R and Q with rows of whole vectors; the
/// matrix.
UOp householder_kernel(const UOps& p) {
  using enum Householder::Argument;
  const UOp v = p[kReflectors], tau = p[kFactors], sums = p[kSums], r = p[kWorkR], q = p[kWorkQ], x = p[kX];
  const Shape shape = shape_of(x);
  const int64_t batch = shape[0].value(), m = shape[1].value(), n = shape[2].value(),
                columns = shape_of(p[kQ])[2].value(), count = std::min(m, n);
  Steps s;
  const UOp t = s.registers(4, x.dtype()), zero = whole(0), none = UOp::constant(0.0, x.dtype()),
            one = UOp::constant(1.0, x.dtype());
  const UOp largest = whole(0), length = whole(1), head = whole(2);
  s.loop(batch, [&](UOp b) {
    s.loop(m, [&](UOp i) {
      s.loop(n, [&](UOp c) { s.write(r, {b, i, c}, s.read(x, {b, i, c})); });
      s.loop(padded(n) - n, [&](UOp c) { s.write(r, {b, i, c + n}, none); });
    });
    s.loop(count, [&](UOp k) {
      const UOp height = whole(m) - k;
      // The length of the column below the diagonal, scaled so that squares neither overflow nor vanish.
      s.write(t, {largest}, none);
      s.write(t, {length}, none);
      s.loop(height,
             [&](UOp i) { s.write(t, {largest}, s.read(t, {largest}).maximum(absolute(s.read(r, {b, k + i, k})))); });
      s.loop(height, [&](UOp i) {
        const UOp y = quotient(s.read(r, {b, k + i, k}), s.read(t, {largest}));
        s.write(t, {length}, s.read(t, {length}) + y * y);
      });
      const UOp first = s.read(r, {b, k, k}), norm = root(s.read(t, {length})) * s.read(t, {largest});
      s.write(t, {length}, (first < none).where(norm.neg(), norm));  // away from zero: no cancellation
      s.write(t, {head}, s.read(r, {b, k, k}) + s.read(t, {length}));
      s.write(tau, {b, k}, quotient(s.read(t, {head}), s.read(t, {length})));
      s.loop(height, [&](UOp i) {
        s.write(v, {b, k, k + i}, i.eq(zero).where(one, quotient(s.read(r, {b, k + i, k}), s.read(t, {head}))));
      });
      Reflection{v, tau, sums, b, k, m, n}.apply(s, r, k + 1);
      s.write(r, {b, k, k}, s.read(t, {length}).neg());
      s.loop(height + -1, [&](UOp i) { s.write(r, {b, k + i + 1, k}, none); });
    });
    s.loop(m, [&](UOp i) { s.loop(padded(columns), [&](UOp c) { s.write(q, {b, i, c}, i.eq(c).where(one, none)); }); });
    s.loop(count, [&](UOp back) {
      const UOp k = whole(count - 1) - back;
      Reflection{v, tau, sums, b, k, m, columns}.apply(s, q, k);
    });
    s.loop(m, [&](UOp i) {
      s.loop(n, [&](UOp c) { s.write(p[kR], {b, i, c}, s.read(r, {b, i, c})); });
      s.loop(columns, [&](UOp c) { s.write(p[kQ], {b, i, c}, s.read(q, {b, i, c})); });
    });
  });
  return s.sink("householder");
}

/// One-sided Jacobi on one matrix of a batch, step by step; p: x V and V, transposed, and the matrix.
struct Jacobi {
  explicit Jacobi(const UOps& p)
      : w(p[0]),
        vt(p[1]),
        x(p[2]),
        n(shape_of(w)[1].value()),
        length(shape_of(w)[2].value()),
        turned(shape_of(vt)[2].value()),
        rows(shape_of(x)[1].value()),
        d(x.dtype()),
        none(UOp::constant(0.0, d)),
        one(UOp::constant(1.0, d)),
        alphas(s.registers(kLanes, d)),
        betas(s.registers(kLanes, d)),
        gammas(s.registers(kLanes, d)),
        t(s.registers(6, d)),
        flags(s.registers(3, dtypes::int32)) {}

  Steps s;
  const UOp w, vt, x;
  const int64_t n, length, turned, rows;  // rows of w and vt are padded to a multiple of the lanes
  const DType d;
  const UOp none, one, zero = whole(0), no = UOp::constant(0, dtypes::int32);
  const UOp alphas, betas, gammas, t, flags;
  const UOp alpha = whole(0), beta = whole(1), gamma = whole(2), tangent = whole(3), sine = whole(4), part = whole(5);
  const UOp rotated = whole(0), before = whole(1), turns = whole(2);  // in this sweep, in the one before, this pair

  UOp where_set(UOp flag, int64_t size) { return s.read(flags, {flag}).ne(no).where(whole(size), zero); }

  /// Copies the matrix, transposed, and sets V to the identity.
  void load(UOp b) {
    s.loop(n, [&](UOp j) {
      s.loop(rows, [&](UOp i) { s.write(w, {b, j, i}, s.read(x, {b, i, j})); });
      s.loop(length - rows, [&](UOp i) { s.write(w, {b, j, i + rows}, none); });
      s.loop(turned, [&](UOp i) { s.write(vt, {b, j, i}, i.eq(j).where(one, none)); });
    });
  }

  /// Computes the squared lengths of columns i and j and their product.
  void products(UOp b, UOp i, UOp j) {
    for (UOp sum : {alphas, betas, gammas}) s.lanes(kLanes, [&](UOp l) { s.write(sum, {l}, none); });
    s.loop(length / kLanes, [&](UOp k) {
      auto add = [&](UOp sum, UOp x, UOp y) {
        s.lanes(kLanes, [&](UOp l) {
          const UOp at = k * kLanes + l;
          s.write(sum, {l}, s.read(sum, {l}) + s.read(w, {b, x, at}) * s.read(w, {b, y, at}));
        });
      };
      add(alphas, i, i);
      add(betas, j, j);
      add(gammas, i, j);
    });
    for (auto [which, sum] : {std::pair{alpha, alphas}, {beta, betas}, {gamma, gammas}}) {
      for (int64_t half = kLanes / 2; half > 0; half /= 2)
        s.lanes(half, [&, sum = sum](UOp l) { s.write(sum, {l}, s.read(sum, {l}) + s.read(sum, {l + half})); });
      s.write(t, {which}, s.read(sum, {zero}));
    }
  }

  /// Chooses the rotation that makes the columns orthogonal, and whether they need one.
  void choose_rotation() {
    // Rounding leaves products of orthogonal columns as large as this.
    const double rounding =
        d == dtypes::float64 ? std::numeric_limits<double>::epsilon() : double{std::numeric_limits<float>::epsilon()};
    const double least = rounding * std::sqrt(static_cast<double>(rows));
    const UOp lengths = root(s.read(t, {alpha})) * root(s.read(t, {beta}));
    s.write(flags, {turns}, (lengths * ConstValue(least) < absolute(s.read(t, {gamma}))).cast(dtypes::int32));
    s.write(flags, {rotated}, UOp::alu(Ops::OR, {s.read(flags, {rotated}), s.read(flags, {turns})}));
    const UOp apart = quotient(s.read(t, {beta}) - s.read(t, {alpha}), s.read(t, {gamma})) * ConstValue(0.5);
    const UOp far = one / (absolute(apart) + root(one + apart * apart));
    s.write(t, {tangent}, (apart < none).where(far.neg(), far));
    // sin and tan of half the angle: cos is 1 - sin tan, where it would be rounded to 1 as well.
    const UOp hypotenuse = root(one + s.read(t, {tangent}) * s.read(t, {tangent}));
    s.write(t, {sine}, s.read(t, {tangent}) / hypotenuse);
    s.write(t, {part}, s.read(t, {sine}) / (one + one / hypotenuse));
  }

  /// Rotates columns i and j of x V and of V.
  void rotate(UOp b, UOp i, UOp j) {
    const UOp sn = s.read(t, {sine}), half = s.read(t, {part});
    for (auto [matrix, size] : {std::pair{w, length}, {vt, turned}})
      s.loop(where_set(turns, size / kLanes), [&, matrix = matrix](UOp k) {
        auto at = [&](UOp l) { return k * kLanes + l; };
        s.lanes(kLanes, [&](UOp l) { s.write(alphas, {l}, s.read(matrix, {b, i, at(l)})); });
        s.lanes(kLanes, [&](UOp l) { s.write(betas, {l}, s.read(matrix, {b, j, at(l)})); });
        s.lanes(kLanes, [&](UOp l) {
          const UOp a = s.read(alphas, {l}), e = s.read(betas, {l});
          s.write(matrix, {b, i, at(l)}, a - sn * (e + half * a));
        });
        s.lanes(kLanes, [&](UOp l) {
          const UOp a = s.read(alphas, {l}), e = s.read(betas, {l});
          s.write(matrix, {b, j, at(l)}, e + sn * (a - half * e));
        });
      });
  }
};

/// Builds the kernel that computes x V and V, transposed, of the matrix.
UOp jacobi_kernel(const UOps& p) {
  Jacobi m(p);
  m.s.loop(shape_of(p[0])[0].value(), [&](UOp b) {
    m.load(b);
    m.s.write(m.flags, {m.rotated}, UOp::constant(1, dtypes::int32));
    m.s.loop(kSweeps, [&](UOp) {
      m.s.write(m.flags, {m.before}, m.s.read(m.flags, {m.rotated}));
      m.s.write(m.flags, {m.rotated}, m.no);
      m.s.loop(m.where_set(m.before, m.n - 1), [&](UOp i) {
        m.s.loop(whole(m.n - 1) - i, [&](UOp distance) {
          const UOp j = i + distance + 1;
          m.products(b, i, j);
          m.choose_rotation();
          m.rotate(b, i, j);
        });
      });
    });
  });
  return m.s.sink("jacobi");
}

/// Builds the kernel that solves for X, given R and B.
UOp back_substitution_kernel(const UOps& p) {
  const UOp x = p[0], r = p[1], y = p[2];
  const Shape shape = shape_of(x);
  const int64_t batch = shape[0].value(), n = shape[1].value(), columns = shape[2].value();
  Steps s;
  s.loop(batch, [&](UOp b) {
    s.loop(n, [&](UOp back) {
      const UOp i = whole(n - 1) - back;
      s.loop(columns, [&](UOp c) { s.write(x, {b, i, c}, s.read(y, {b, i, c})); });
      s.loop(back, [&](UOp k) {
        const UOp j = i + k + 1, factor = s.read(r, {b, i, j});
        s.loop(columns, [&](UOp c) { s.write(x, {b, i, c}, s.read(x, {b, i, c}) - factor * s.read(x, {b, j, c})); });
      });
      const UOp diagonal = s.read(r, {b, i, i});
      s.loop(columns, [&](UOp c) { s.write(x, {b, i, c}, s.read(x, {b, i, c}) / diagonal); });
    });
  });
  return s.sink("back_substitution");
}

/// Allocates scratch or a result of a kernel, on the device of what it reads.
Tensor room(const Tensor& like, const Shape& shape) {
  return Tensor::empty(shape, {.dtype = like.dtype(), .device = like.device()});
}
}  // namespace

Householder householder(const Tensor& x, int64_t columns, const NodeGradient& gradient) {
  const Shape shape = x.shape();
  const SInt b = shape[0];
  const int64_t m = shape[1].value(), n = shape[2].value(), count = std::min(m, n);
  const Tensors done = custom_kernel(
      {room(x, {b, m, n}), room(x, {b, m, columns}), room(x, {b, count, m}), room(x, {b, count}),
       room(x, {b, padded(std::max(columns, n))}), room(x, {b, m, padded(n)}), room(x, {b, m, padded(columns)}), x},
      householder_kernel, gradient);
  return {done[Householder::kQ], done[Householder::kR]};
}

std::pair<Tensor, Tensor> jacobi(const Tensor& x) {
  const Shape shape = x.shape();
  const SInt b = shape[0];
  const int64_t m = shape[1].value(), n = shape[2].value();
  const Tensors done = custom_kernel({room(x, {b, n, padded(m)}), room(x, {b, n, padded(n)}), x}, jacobi_kernel);
  return {done[0].shrink_to({b, n, m}), done[1].shrink_to({b, n, n})};
}

Tensor back_substitution(const Tensor& r, const Tensor& b, const NodeGradient& gradient) {
  return custom_kernel({room(b, b.shape()), r, b}, back_substitution_kernel, gradient)[0];
}

Tensors values_of(const Tensors& values, const Tensor& x, const NodeGradient& gradient) {
  Tensors all;
  for (const Tensor& v : values) all.push_back(room(x, v.shape()));
  all.insert(all.end(), values.begin(), values.end());
  all.push_back(x);
  auto copy = [n = values.size()](const UOps& p) {
    Steps s;
    for (size_t i = 0; i < n; i++) {
      const int64_t size = shape_of(p[i]).numel();
      const UOp to = ops::reshape(p[i], {size}), from = ops::reshape(p[n + i], {size});
      s.loop(size, [&](UOp k) { s.write(to, {k}, s.read(from, {k})); });
    }
    return s.sink("values");
  };
  Tensors done = custom_kernel(all, copy, gradient);
  done.resize(values.size());
  return done;
}

}  // namespace tg::tensor_detail
