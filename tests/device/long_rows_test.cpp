/// \file Softmax and its relatives over rows longer than the caches: one pass over memory for the maximum and the sum.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> values(int64_t n, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(rng() % 20001) / 1000 - 10;
  return v;
}
struct Result {
  std::vector<float> out;
  int64_t kernels, bytes;
};
Result run(const std::function<Tensor()>& f) {
  const int64_t kernels = GlobalCounters::kernels, bytes = GlobalCounters::mem;
  const Tensor t = f().realize();
  Result r{{}, GlobalCounters::kernels - kernels, GlobalCounters::mem - bytes};
  r.out = t.to_vector<float>();
  return r;
}
struct Row {
  double most = -kInf, sum = 0;
};
/// Maximum and sum below it as the plain form has them; `finite`: as logsumexp, which takes an infinite maximum as 0.
Row row_of(const float* x, int64_t n, bool finite) {
  Row r;
  for (int64_t i = 0; i < n; i++)
    r.most = std::isnan(x[i]) || std::isnan(r.most) ? std::nan("") : std::max<double>(r.most, x[i]);
  if (finite && std::isinf(r.most)) r.most = 0;
  for (int64_t i = 0; i < n; i++) r.sum += std::exp(x[i] - r.most);
  return r;
}
void expect_same(double got, double want, double tolerance) {
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got)) << got;
  } else if (std::isinf(want)) {
    ASSERT_EQ(got, want);
  } else {
    ASSERT_NEAR(got, want, tolerance * (1e-6 + std::abs(want)));
  }
}

TEST(LongRows, OnePassForMaximumAndSum) {
  for (const auto& [rows, n] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1 << 20}, {3, 1 << 19}, {66, 1 << 17}, {2, 3 << 18}}) {
    SCOPED_TRACE(str(rows, " x ", n));
    const std::vector<float> v = values(rows * n);
    const Tensor x = Tensor::from(v, Shape{rows, n}).realize();
    const Result lse = run([&] { return x.logsumexp({.axis = -1}); }), soft = run([&] { return x.softmax(); }),
                 log = run([&] { return x.log_softmax(); });
    const auto once = static_cast<int64_t>(v.size()) * 4;
    if (!env::EAGER) {
      EXPECT_LT(lse.bytes, once * 11 / 10);
      EXPECT_LT(soft.bytes, once * 31 / 10);
      EXPECT_LT(log.bytes, once * 31 / 10);
    }
    for (int64_t r = 0; r < rows; r++) {
      const Row row = row_of(&v[static_cast<size_t>(r * n)], n, false);
      ASSERT_NEAR(lse.out[static_cast<size_t>(r)], row.most + std::log(row.sum), 1e-5);
      for (int64_t i = r; i < n; i += 1009) {
        const auto at = static_cast<size_t>(r * n + i);
        ASSERT_NEAR(soft.out[at], std::exp(v[at] - row.most) / row.sum, 1e-6 / row.sum);
        ASSERT_NEAR(log.out[at], v[at] - row.most - std::log(row.sum), 1e-5);
      }
    }
  }
}

TEST(LongRows, NaNAndInfinity) {
  constexpr int64_t kRows = 8, kLength = 1 << 18;
  std::vector<float> v = values(kRows * kLength);
  auto row = [&](int64_t r) { return &v[static_cast<size_t>(r * kLength)]; };
  std::fill_n(row(0), kLength, -kInf);
  std::fill_n(row(1), kLength - 3, -kInf);
  for (int64_t i = kLength - 3; i < kLength; i++) row(1)[i] = -200;  // exp(200) is beyond float32
  row(2)[70000] = kInf;
  row(3)[5] = std::nanf("");
  row(4)[5] = kInf;
  row(4)[200000] = -kInf;
  std::fill_n(row(5), kLength / 2, -1e30f);
  row(6)[100] = 3e38f;
  const Tensor x = Tensor::from(v, Shape{kRows, kLength}).realize();
  const Result lse = run([&] { return x.logsumexp({.axis = -1}); }), soft = run([&] { return x.softmax(); });
  for (int64_t r = 0; r < kRows; r++) {
    SCOPED_TRACE(str("row ", r));
    const Row finite = row_of(row(r), kLength, true), plain = row_of(row(r), kLength, false);
    expect_same(lse.out[static_cast<size_t>(r)], finite.most + std::log(finite.sum), 1e-5);
    for (int64_t i : {int64_t{0}, int64_t{5}, int64_t{100}, int64_t{70000}, kLength / 2, kLength - 1}) {
      const double want = std::exp(row(r)[i] - plain.most) / plain.sum;
      expect_same(soft.out[static_cast<size_t>(r * kLength + i)], want < 1e-30 ? 0 : want, 1e-5);
    }
  }
}

TEST(LongRows, CrossEntropyAndGradients) {
  constexpr int64_t kRows = 4, kLength = 1 << 18;
  const std::vector<float> v = values(kRows * kLength, 5);
  Tensor x = Tensor::from(v, Shape{kRows, kLength}).realize();
  x.requires_grad_();
  const std::vector<int32_t> classes{3, 70000, 200000, kLength - 1};
  const Tensor loss = x.sparse_categorical_crossentropy(Tensor::from(classes, Shape{kRows}));
  loss.backward();
  realize(loss, x.grad());
  const std::vector<float> grad = x.grad().to_vector<float>();
  double want = 0;
  for (int64_t r = 0; r < kRows; r++) {
    const Row row = row_of(&v[static_cast<size_t>(r * kLength)], kLength, false);
    want -= v[static_cast<size_t>(r * kLength + classes[static_cast<size_t>(r)])] - row.most - std::log(row.sum);
    for (int64_t i : {int64_t{0}, int64_t{3}, int64_t{70000}, int64_t{70001}, int64_t{200000}, kLength - 1}) {
      const auto at = static_cast<size_t>(r * kLength + i);
      const double p = std::exp(v[at] - row.most) / row.sum;
      ASSERT_NEAR(grad[at], (p - (i == classes[static_cast<size_t>(r)] ? 1 : 0)) / kRows, 1e-8 + 1e-5 * p)
          << r << ' ' << i;
    }
  }
  EXPECT_NEAR(loss.item<float>(), want / kRows, 1e-4);
}

/// The sum is taken below the very maxima that its kernel has found: they have moved to make room for the sums.
TEST(LongRows, MaximaThatAreUsedAgain) {
  const int64_t rows = 1920, n = 320;
  const std::vector<float> v = values(rows * n);
  const Tensor x = (Tensor::from(v, Shape{rows, n}).realize() * 1).contiguous();
  const Tensor m = x.max({.axis = -1, .keepdim = true}).detach(), e = (x - m).exp(),
               total = e.sum({.axis = -1, .keepdim = true});
  const Tensor logs = m + total.log(), p = e / total;
  realize({logs, p});
  const std::vector<float> log_sum = logs.to_vector<float>(), share = p.to_vector<float>();
  for (int64_t i = 0; i < rows; i++) {
    const float* row = &v[static_cast<size_t>(i * n)];
    const Row want = row_of(row, n, false);
    expect_same(log_sum[static_cast<size_t>(i)], want.most + std::log(want.sum), 1e-6);
    expect_same(share[static_cast<size_t>(i * n + i % n)], std::exp(row[i % n] - want.most) / want.sum, 1e-5);
  }
}

TEST(LongRows, ResultsDoNotDependOnThreads) {
  const Tensor x = Tensor::from(values(2 << 19), Shape{2, 1 << 19}).realize();
  std::vector<float> one;
  for (int threads : {1, 2, 3, 5}) {
    const Context context{{"NUM_CPU_THREADS", threads}};
    const std::vector<float> got = x.softmax().to_vector<float>();
    if (threads == 1) one = got;
    EXPECT_EQ(std::memcmp(got.data(), one.data(), one.size() * sizeof(float)), 0) << threads << " threads";
  }
}

}  // namespace
}  // namespace tg
