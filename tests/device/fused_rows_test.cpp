/// \file Reductions over the rows of large tensors: how many kernels they take, and that the kernels compute the same
/// as small ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "device/device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

constexpr int64_t kRows = 300,
                  kColumns = 2000;  // 2.4 MB, more than is fused from; neither a multiple of the lanes' tiles

std::vector<float> values(uint32_t seed = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> v(static_cast<size_t>(kRows * kColumns));
  for (float& x : v) x = normal(rng);
  return v;
}
int64_t kernels_of(const std::function<Tensor()>& f, std::vector<float>* result) {
  const int64_t before = GlobalCounters::kernels;
  const Tensor t = f().realize();
  const int64_t kernels = GlobalCounters::kernels - before;
  *result = t.to_vector<float>();
  return kernels;
}
/// Rows are one kernel, where a thread walks rows, or a group of threads has one of at most 32768 elements.
void expect_fused(int64_t kernels, int64_t length = kColumns) {
  if (env::EAGER) return;
  if (has_row_kernels() || (has_row_groups() && length <= 32768)) EXPECT_EQ(kernels, 1);
  else EXPECT_GT(kernels, 1);
}
/// Rows of float64 on the host.
template <class F>
void expect_rows(const std::vector<float>& in, const std::vector<float>& out, double tolerance, F&& row) {
  ASSERT_EQ(in.size(), out.size());
  std::vector<double> x(static_cast<size_t>(kColumns)), want(x.size());
  for (int64_t r = 0; r < kRows; r += 13) {
    for (size_t i = 0; i < x.size(); i++) x[i] = in[static_cast<size_t>(r * kColumns) + i];
    row(x, want);
    for (size_t i = 0; i < x.size(); i++)
      ASSERT_NEAR(out[static_cast<size_t>(r * kColumns) + i], want[i], tolerance * (1 + std::abs(want[i])))
          << "row " << r << " column " << i;
  }
}
void softmax_row(const std::vector<double>& x, std::vector<double>& y) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (size_t i = 0; i < x.size(); i++) sum += y[i] = std::exp(x[i] - most);
  for (double& v : y) v /= sum;
}

TEST(FusedRows, SoftmaxIsOneKernel) {
  const std::vector<float> v = values();
  const Tensor x = Tensor::from(v, Shape{kRows, kColumns}).realize();
  std::vector<float> out;
  const int64_t kernels = kernels_of([&] { return x.softmax(); }, &out);
  expect_fused(kernels);
  expect_rows(v, out, 1e-6, softmax_row);
}

TEST(FusedRows, ColumnsOfAPowerOfTwoKeepTheirKernels) {
  auto kernels = [](int64_t rows, int64_t columns) {
    const Tensor x =
        Tensor::from(std::vector<float>(static_cast<size_t>(rows * columns), 0.5f), Shape{rows, columns}).realize();
    std::vector<float> out;
    const int64_t n = kernels_of([&] { return x.softmax(0); }, &out);
    for (float f : out) EXPECT_FLOAT_EQ(f, 1.f / static_cast<float>(rows));
    return n;
  };
  const int64_t side_by_side = kernels(512, 1500), collide = kernels(512, 4096);
  expect_fused(side_by_side);
  if (!env::EAGER) EXPECT_EQ(collide, has_row_groups() ? 1 : 3);
}

TEST(FusedRows, SmallOrLongRowsKeepTheirKernels) {
  std::vector<float> out;
  const Tensor small = Tensor::from(std::vector<float>(64 * 64, 0.5f), Shape{64, 64}).realize();
  const int64_t of_small = kernels_of([&] { return small.softmax(); }, &out);
  if (!env::EAGER) EXPECT_EQ(of_small, has_row_groups() ? 1 : 3);
  for (float f : out) ASSERT_FLOAT_EQ(f, 1.f / 64);
  const Tensor wide =
      Tensor::from(std::vector<float>(65 * 81920, 0.5f), Shape{65, 81920}).realize();  // a row of 320 KiB
  const int64_t of_wide = kernels_of([&] { return wide.softmax(); }, &out);
  if (!env::EAGER) EXPECT_EQ(of_wide, 3);
  for (float f : out) ASSERT_FLOAT_EQ(f, 1.f / 81920);
}

TEST(FusedRows, LongRowsOfOddLengthsAreOneKernel) {
  constexpr int64_t kLong = 50257, kFew = 70;
  std::mt19937 rng(3);
  std::vector<float> v(static_cast<size_t>(kLong * kFew)), out;
  for (float& x : v) x = static_cast<float>(rng() % 2000) * 0.01f - 10;
  const Tensor x = Tensor::from(v, Shape{kFew, kLong}).realize();
  const int64_t kernels = kernels_of([&] { return x.softmax(); }, &out);
  expect_fused(kernels, kLong);
  std::vector<double> row(static_cast<size_t>(kLong)), want(row.size());
  for (int64_t r = 0; r < kFew; r += 23) {
    const size_t at = static_cast<size_t>(r * kLong);
    for (size_t i = 0; i < row.size(); i++) row[i] = v[at + i];
    softmax_row(row, want);
    for (size_t i = 0; i < row.size(); i++)
      ASSERT_NEAR(out[at + i], want[i], 1e-5 * want[i]) << "row " << r << " column " << i;
  }
}

TEST(FusedRows, LayernormIsOneKernel) {
  const std::vector<float> v = values(2);
  const Tensor x = Tensor::from(v, Shape{kRows, kColumns}).realize();
  std::vector<float> out;
  const int64_t kernels = kernels_of([&] { return x.layernorm(); }, &out);
  expect_fused(kernels);
  expect_rows(v, out, 1e-5, [](const std::vector<double>& a, std::vector<double>& y) {
    double mean = 0, var = 0;
    for (double e : a) mean += e / static_cast<double>(a.size());
    for (double e : a) var += (e - mean) * (e - mean) / static_cast<double>(a.size());
    for (size_t i = 0; i < a.size(); i++) y[i] = (a[i] - mean) / std::sqrt(var + 1e-5);
  });
}

TEST(FusedRows, TheRowsMayBeOfAnyAxis) {
  const std::vector<float> v = values(3);
  const Tensor x = Tensor::from(v, Shape{kRows, kColumns}).realize();
  // The same numbers with the row axis in the middle, and rows of two axes.
  const Tensor middle = x.reshape({20, 15, kColumns}).softmax(2), first = x.transpose().softmax(0).transpose();
  expect_rows(v, middle.to_vector<float>(), 1e-6, softmax_row);
  expect_rows(v, first.contiguous().to_vector<float>(), 1e-5, softmax_row);  // sums of 2,000 terms one after another
}

TEST(FusedRows, AResultOthersReadIsStored) {
  const std::vector<float> v = values(4);
  const Tensor x = Tensor::from(v, Shape{kRows, kColumns}).realize();
  const Tensor most = x.max(1, true), centered = (x - most).exp();
  realize(most, centered);
  expect_rows(v, centered.to_vector<float>(), 1e-6, [](const std::vector<double>& a, std::vector<double>& y) {
    const double m = *std::max_element(a.begin(), a.end());
    for (size_t i = 0; i < a.size(); i++) y[i] = std::exp(a[i] - m);
  });
  const std::vector<float> m = most.to_vector<float>();
  for (int64_t r = 0; r < kRows; r++)
    ASSERT_EQ(m[static_cast<size_t>(r)], *std::max_element(v.begin() + r * kColumns, v.begin() + (r + 1) * kColumns));
}

TEST(FusedRows, InPlace) {
  const std::vector<float> v = values(5);
  Tensor x = Tensor::from(v, Shape{kRows, kColumns}).realize();
  x.assign(x.softmax()).realize();
  expect_rows(v, x.to_vector<float>(), 1e-6, softmax_row);
}

TEST(FusedRows, GradientOfSoftmax) {
  const std::vector<float> v = values(6), w = values(7);
  Tensor x = Tensor::from(v, Shape{kRows, kColumns}).realize().requires_grad_();
  const Tensor g = Tensor::from(w, Shape{kRows, kColumns}).realize();
  (x.softmax() * g).sum().backward();
  size_t row = 0;
  expect_rows(v, x.grad().to_vector<float>(), 1e-5, [&](const std::vector<double>& a, std::vector<double>& y) {
    std::vector<double> p(a.size());
    softmax_row(a, p);
    double dot = 0;
    for (size_t i = 0; i < a.size(); i++) dot += p[i] * w[row * static_cast<size_t>(kColumns) + i];
    for (size_t i = 0; i < a.size(); i++) y[i] = p[i] * (w[row * static_cast<size_t>(kColumns) + i] - dot);
    row += 13;
  });
}

TEST(FusedRows, RowsOfAnyLengthAndType) {
  for (const int64_t columns : {1023, 2049}) {
    const int64_t rows = (3 << 20) / 4 / columns;
    std::vector<float> v = values(8);
    v.resize(static_cast<size_t>(rows * columns), 0.25f);
    for (const DType d : {dtypes::float32, dtypes::float64, dtypes::float16, dtypes::bfloat16}) {
      if ((columns != 1023 && d != dtypes::float32) || !has_type(d)) continue;
      const double tolerance = d == dtypes::float64   ? 1e-6
                               : d == dtypes::float32 ? 2e-6
                               : d == dtypes::float16 ? 2e-3
                                                      : 2e-2;
      const Tensor x = Tensor::from(v, Shape{rows, columns}).cast(d).realize();
      const std::vector<float> in = x.cast(dtypes::float32).to_vector<float>();
      const std::vector<float> soft = x.softmax().cast(dtypes::float32).to_vector<float>(),
                               log = x.log_softmax().cast(dtypes::float32).to_vector<float>();
      for (int64_t r : {int64_t{0}, rows / 2, rows - 1}) {
        std::vector<double> a(in.begin() + r * columns, in.begin() + (r + 1) * columns), want(a.size());
        softmax_row(a, want);
        for (size_t i = 0; i < a.size(); i++) {
          const size_t at = static_cast<size_t>(r * columns) + i;
          ASSERT_NEAR(soft[at], want[i], tolerance * (want[i] + 1e-2))
              << d << " row " << r << " of " << rows << " column " << i;
          ASSERT_NEAR(log[at], std::log(want[i]), tolerance * (1 - std::log(want[i])))
              << d << " row " << r << " column " << i;
        }
      }
    }
  }
}

TEST(FusedRows, NaNStaysInItsRow) {
  std::vector<float> v = values(9);
  const float inf = std::numeric_limits<float>::infinity();
  auto row = [&](int64_t r) { return v.begin() + r * kColumns; };
  row(3)[17] = std::numeric_limits<float>::quiet_NaN();
  row(5)[1999] = inf;
  std::fill(row(7), row(8), -inf);
  std::fill(row(9), row(10) - 1, -inf);
  row(11)[0] = -inf;
  row(12)[5] = 3e38f;
  row(13)[6] = -3e38f;
  const Tensor x = Tensor::from(v, Shape{kRows, kColumns}).realize();
  const std::vector<float> out = x.softmax().to_vector<float>();
  for (int64_t r = 0; r < 20; r++) {
    std::vector<double> a(row(r), row(r + 1)), want(a.size());
    softmax_row(a, want);
    const bool none = r == 3 || r == 5 || r == 7;
    for (size_t i = 0; i < a.size(); i++) {
      const float got = out[static_cast<size_t>(r * kColumns) + i];
      if (none && (r != 5 || i == 1999)) ASSERT_TRUE(std::isnan(got)) << "row " << r << " column " << i;
      else if (!none) ASSERT_NEAR(got, want[i], 1e-6 * (1 + want[i])) << "row " << r << " column " << i;
    }
  }
}

TEST(FusedRows, ResultsLargerThanTheCachesAndViewsOfThem) {
  // 40 MB, beyond the last level cache of most machines: whole lines are stored past it, where the result begins at
  // one.
  const int64_t rows = 2500, columns = 4096;
  std::vector<float> v(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<float>((i * 7919) % 1013) / 128;
  const Tensor x = Tensor::from(v, Shape{rows, columns}).realize();
  Tensor whole = Tensor::zeros({rows * columns + 16}).contiguous().realize();
  for (const int64_t from : {0, 1, 16}) {
    whole.shrink({{from, from + rows * columns}}).assign((x * 2.f + 1.f).flatten()).realize();
    const std::vector<float> got = whole.to_vector<float>();
    for (size_t i = 0; i < v.size(); i += 101) ASSERT_EQ(got[i + static_cast<size_t>(from)], v[i] * 2 + 1);
    ASSERT_EQ(got[v.size() - 1 + static_cast<size_t>(from)], v.back() * 2 + 1);
  }
  const std::vector<float> soft = x.softmax().to_vector<float>();
  for (int64_t r = 0; r < rows; r += 97) {
    std::vector<double> a(v.begin() + r * columns, v.begin() + (r + 1) * columns), want(a.size());
    softmax_row(a, want);
    for (size_t i = 0; i < a.size(); i++)
      ASSERT_NEAR(soft[static_cast<size_t>(r * columns) + i], want[i], 1e-6 * want[i] + 1e-9) << "row " << r;
  }
}

}  // namespace
}  // namespace tg
