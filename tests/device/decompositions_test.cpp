/// \file QR and SVD of batches of matrices: what they promise, shapes without elements, matrices without full rank, and
/// gradients against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Doubles = std::vector<double>;

Tensor matrix(const Shape& shape, uint64_t seed, DType d = dtypes::float64) {
  Tensor::manual_seed(seed);
  return Tensor::randn(shape, {.dtype = dtypes::float32}).cast(d).realize();
}
Tensor transposed(const Tensor& t) { return t.transpose(-2, -1); }
double largest(const Tensor& t) { return t.abs().max().to("CPU").cast(dtypes::float64).item<double>(); }
/// How far the columns of q are from being orthonormal.
double skewness(const Tensor& q) {
  return largest(transposed(q).dot(q) - Tensor::eye(q.shape(-1), q.shape(-1), {.dtype = q.dtype()}));
}
Tensor product(const Tensor::Svd& f) {
  const int64_t k = f.s.shape(-1);
  return f.u(Ellipsis, Slice(0, k)).dot(f.s.unsqueeze(-1) * f.vt(Ellipsis, Slice(0, k), Slice()));
}

/// The gradient of f at x against central differences.
void expect_gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x, double tolerance = 1e-6) {
  x.requires_grad_();
  const Doubles got = f(x).gradient({x})[0].to_vector<double>(), at = x.to_vector<double>();
  const double h = 1e-5;
  for (size_t i = 0; i < at.size(); i++) {
    auto moved = [&](double by) {
      Doubles v = at;
      v[i] += by;
      return f(Tensor(v).reshape(x.shape()).clone().realize()).item<double>();
    };
    EXPECT_NEAR(got[i], (moved(h) - moved(-h)) / (2 * h), tolerance) << "element " << i << " of " << x.shape();
  }
}
/// A scalar that depends on every element of t differently.
Tensor mixed(const Tensor& t, uint64_t seed) { return (t * matrix(t.shape(), seed)).sum(); }

TEST(Decompositions, Qr) {
  for (const Shape& shape :
       {Shape{3, 3}, Shape{7, 4}, Shape{4, 7}, Shape{1, 1}, Shape{5, 1}, Shape{1, 5}, Shape{2, 3, 6, 5}})
    for (DType d : {dtypes::float32, dtypes::float64}) {
      if (!has_type(d)) continue;
      const Tensor x = matrix(shape, 1, d);
      auto [q, r] = x.qr();
      const double tolerance = d == dtypes::float64 ? 1e-13 : 3e-6;
      EXPECT_EQ(q.shape(-1), shape[shape.size() - 2].value());
      EXPECT_EQ(q.dtype(), d);
      EXPECT_LT(skewness(q), tolerance) << shape;
      EXPECT_LT(largest(q.dot(r) - x), tolerance) << shape;
      EXPECT_EQ(largest(r.tril(-1)), 0) << shape;
    }
}

TEST(Decompositions, Svd) {
  TG_NEEDS_ITERATIONS(72882);
  for (const Shape& shape :
       {Shape{3, 3}, Shape{7, 4}, Shape{4, 7}, Shape{1, 1}, Shape{5, 1}, Shape{1, 5}, Shape{2, 3, 6, 5}, Shape{17, 17}})
    for (bool full : {false, true})
      for (DType d : {dtypes::float32, dtypes::float64}) {
        if (!has_type(d)) continue;
        const Tensor x = matrix(shape, 2, d);
        const Tensor::Svd f = x.svd(full);
        const double tolerance = d == dtypes::float64 ? 1e-13 : 5e-6;
        EXPECT_LT(skewness(f.u), tolerance) << shape;
        EXPECT_LT(skewness(transposed(f.vt)), tolerance) << shape;
        EXPECT_LT(largest(product(f) - x), tolerance) << shape;
        const Doubles s = f.s.flatten().to("CPU").cast(dtypes::float64).to_vector<double>();
        for (size_t i = 1; i < static_cast<size_t>(f.s.shape(-1)); i++) EXPECT_GE(s[i - 1], s[i]);
      }
}

TEST(Decompositions, RowsOfSeveralVectors) {
  TG_NEEDS_TYPE(dtypes::float64);
  for (const Shape& shape : {Shape{50, 37}, Shape{37, 50}, Shape{33, 16}, Shape{2, 40, 32}, Shape{64, 64}}) {
    const Tensor x = matrix(shape, 3);
    auto [q, r] = x.qr();
    EXPECT_LT(skewness(q), 1e-13) << shape;
    EXPECT_LT(largest(q.dot(r) - x), 1e-13) << shape;
    EXPECT_EQ(largest(r.tril(-1)), 0) << shape;
    const Tensor::Svd f = x.svd();
    EXPECT_LT(largest(product(f) - x), 1e-12) << shape;
    EXPECT_LT(skewness(f.u), 1e-13) << shape;
    EXPECT_LT(skewness(transposed(f.vt)), 1e-13) << shape;
  }
}

TEST(Decompositions, WithoutFullRank) {
  TG_NEEDS_ITERATIONS(72882);
  for (const Tensor& x : {Tensor::zeros(4, 3), Tensor::ones(4, 4), Tensor({{0.f, 1.f}, {0.f, 2.f}})}) {
    auto [q, r] = x.qr();
    EXPECT_LT(skewness(q), 1e-6);
    EXPECT_LT(largest(q.dot(r) - x), 1e-6);
    const Tensor::Svd f = x.svd();
    EXPECT_LT(skewness(f.u), 1e-6) << "columns of U also where a singular value is 0";
    EXPECT_LT(skewness(transposed(f.vt)), 1e-6);
    EXPECT_LT(largest(product(f) - x), 2e-6);
  }
}

TEST(Decompositions, NumbersWhoseSquaresDoNotFit) {
  TG_NEEDS_ITERATIONS(129435);
  const Tensor x = matrix({5, 5}, 3, dtypes::float32);
  const Doubles s = x.svd().s.to_vector<double>();
  for (float scale : {1e30f, 1e-30f}) {
    const Doubles got = (x * scale).svd().s.to_vector<double>();
    for (size_t i = 0; i < s.size(); i++) EXPECT_NEAR(got[i] / scale, s[i], 1e-5);
    auto [q, r] = (x * scale).qr();
    EXPECT_LT(largest(q.dot(r / scale) - x), 1e-5);
  }
}

TEST(Decompositions, HalfPrecisionIsRoundedOnce) {
  TG_NEEDS_ITERATIONS(72882);
  const Tensor x = matrix({6, 4}, 4, dtypes::float16);
  auto [q, r] = x.qr();
  EXPECT_EQ(q.dtype(), dtypes::float16);
  EXPECT_LT(largest(q.cast(dtypes::float32).dot(r.cast(dtypes::float32)) - x.cast(dtypes::float32)), 3e-3);
  EXPECT_EQ(x.svd().s.to_vector<float>(), x.cast(dtypes::float32).svd().s.cast(dtypes::float16).to_vector<float>());
}

TEST(Decompositions, WithoutElements) {
  EXPECT_EQ(Tensor::zeros(0, 3).qr().first.shape(), (Shape{0, 0}));
  EXPECT_EQ(Tensor::zeros(3, 0).qr().first.to_vector<float>(), Tensor::eye(3).to_vector<float>());
  EXPECT_EQ(Tensor::zeros(0, 4, 3).qr().second.shape(), (Shape{0, 4, 3}));
  const Tensor::Svd f = Tensor::zeros(3, 0).svd(), g = Tensor::zeros(0, 4, 3).svd(false);
  EXPECT_EQ(f.u.shape(), (Shape{3, 3}));
  EXPECT_EQ(f.s.shape(), Shape{0});
  EXPECT_EQ(g.u.shape(), (Shape{0, 4, 3}));
  EXPECT_EQ(g.vt.shape(), (Shape{0, 3, 3}));
}

TEST(Decompositions, GradientsOfQr) {
  TG_NEEDS_TYPE(dtypes::float64);
  for (const Shape& shape : {Shape{3, 3}, Shape{5, 3}, Shape{3, 5}, Shape{2, 4, 2}})
    expect_gradient(
        [](const Tensor& x) {
          auto [q, r] = x.qr();
          return mixed(q, 5) + mixed(r, 6);  // of a tall matrix also the columns of Q that only complete the basis
        },
        matrix(shape, 7));
}

TEST(Decompositions, GradientsOfSingularValues) {
  TG_NEEDS_TYPE(dtypes::float64);
  for (const Shape& shape : {Shape{2, 2}, Shape{3, 3}, Shape{5, 5}, Shape{5, 3}, Shape{3, 5}, Shape{2, 4, 3}})
    expect_gradient([](const Tensor& t) { return mixed(t.svd().s, 9); }, matrix(shape, 8));
}
// The signs of the columns of U and V are free, those of their products are not.
TEST(Decompositions, GradientsOfSingularVectors) {
  TG_NEEDS_TYPE(dtypes::float64);
  for (const Shape& shape : {Shape{3, 3}, Shape{4, 2}, Shape{2, 4}})
    expect_gradient(
        [](const Tensor& t) {
          const Tensor::Svd f = t.svd(false);
          return mixed(f.u.square(), 10) + mixed(f.vt.square(), 11) + mixed(product(f), 12);
        },
        matrix(shape, 8));
}
TEST(Decompositions, GradientsOfCompletedSingularVectors) {
  TG_NEEDS_TYPE(dtypes::float64);
  for (const Shape& shape : {Shape{4, 2}, Shape{2, 4}})
    expect_gradient(
        [](const Tensor& t) { return mixed(t.svd(true).u.square(), 13) + mixed(t.svd(true).vt.square(), 14); },
        matrix(shape, 8), 1e-5);
}

TEST(Decompositions, GradientOfSingularValuesWithoutFullRank) {
  TG_NEEDS_TYPE(dtypes::float64);
  const Tensor x = Tensor({{1.f, 1.f}, {2.f, 2.f}, {3.f, 3.f}}).cast(dtypes::float64).realize().requires_grad_();
  const Doubles g = x.svd().s[0].gradient({x})[0].to_vector<double>(), first = x.to_vector<double>();
  for (size_t i = 0; i < g.size(); i++) EXPECT_NEAR(g[i], first[i] / std::sqrt(28.0), 1e-12) << "u v^T";
}

TEST(Decompositions, GradientsOfWhatWasRead) {
  TG_NEEDS_TYPE(dtypes::float64);
  const Tensor x = matrix({4, 3}, 19);
  const Tensor s = x.svd().s, r = x.qr().second,
               want = (x.svd().s.sum() + x.qr().second.square().sum()).gradient({x})[0];
  s.to_vector<double>();  // U, V and Q are not held by anybody
  r.to_vector<double>();
  for (int again = 0; again < 2; again++) {
    const Doubles got = (s.sum() + r.square().sum()).gradient({x})[0].to_vector<double>(),
                  expected = want.to_vector<double>();
    for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], expected[i], 1e-12);
  }
}

TEST(Decompositions, SecondGradients) {
  TG_NEEDS_TYPE(dtypes::float64);
  if (env::EAGER) GTEST_SKIP() << "EAGER=1 computes the first gradient before it is differentiated";
  const Tensor weight = matrix({4, 3}, 14);
  auto first = [&](const Tensor& x, const Tensor& y) { return (y.gradient({x})[0] * weight).sum(); };
  expect_gradient([&](const Tensor& x) { return first(x, x.svd(false).s.square().square().sum()); }, matrix({4, 3}, 15),
                  1e-4);
  expect_gradient([&](const Tensor& x) { return first(x, mixed(x.qr().second, 16)); }, matrix({4, 3}, 17), 1e-4);
}

TEST(Decompositions, OneKernelForAllColumns) {
  TG_NEEDS_ITERATIONS(87360);
  const Tensor small = matrix({8, 8}, 18, dtypes::float32), large = matrix({24, 24}, 18, dtypes::float32);
  auto kernels = [](const Tensor& x) {
    const int64_t before = GlobalCounters::kernels;
    x.svd().s.realize();
    return GlobalCounters::kernels - before;
  };
  EXPECT_EQ(kernels(small), kernels(large));
}

}  // namespace
}  // namespace tg
