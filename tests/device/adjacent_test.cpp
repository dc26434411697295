/// \file Elements that a thread reads and writes at once, where a kernel has them: of any length, in views that begin
/// anywhere, of all sizes, in place; and rows that the threads of a group share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "device/device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr int64_t kMany = 1 << 15;  // enough of them that threads take several

std::vector<float> numbers(int64_t n, int64_t first = 0) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) v[static_cast<size_t>(i)] = static_cast<float>((i + first) % 251);
  return v;
}
void expect_equal(const std::vector<float>& got, const std::function<float(int64_t)>& want) {
  for (size_t i = 0; i < got.size(); i++) ASSERT_EQ(got[i], want(static_cast<int64_t>(i))) << "element " << i;
}

TEST(Adjacent, OfAnyLength) {
  for (int64_t n : {kMany, kMany + 1, kMany + 2, kMany + 20003}) {
    const Tensor x = Tensor::from(numbers(n), Shape{n}).realize();
    SCOPED_TRACE(n);
    expect_equal((x * 2 + 1).to_vector<float>(), [](int64_t i) { return static_cast<float>(i % 251 * 2 + 1); });
  }
}

TEST(Adjacent, ViewsThatBeginAnywhere) {
  const Tensor x = Tensor::from(numbers(kMany + 8), Shape{kMany + 8}).realize();
  for (int64_t at : {1, 2, 4, 7}) {
    SCOPED_TRACE(at);
    const Tensor y = (x.shrink({{at, kMany + at}}) + x.shrink({{0, kMany}})).realize();
    expect_equal(y.to_vector<float>(),
                 [&](int64_t i) { return static_cast<float>((i + at) % 251) + static_cast<float>(i % 251); });
  }
}

TEST(Adjacent, IntoAViewThatBeginsAnywhere) {
  const Tensor all = Tensor::zeros(Shape{kMany + 8}).contiguous().realize();
  Tensor part = all.shrink({{3, kMany + 3}});
  part.assign(Tensor::from(numbers(kMany), Shape{kMany}) + 1).realize();
  expect_equal(all.to_vector<float>(),
               [](int64_t i) { return i < 3 || i >= kMany + 3 ? 0.f : static_cast<float>((i - 3) % 251 + 1); });
}

TEST(Adjacent, OfAllSizes) {
  const Tensor x = Tensor::from(numbers(2 * kMany), Shape{2 * kMany}).realize();
  for (DType d :
       {dtypes::int8, dtypes::uint8, dtypes::int16, dtypes::float16, dtypes::bfloat16, dtypes::int64, dtypes::bool_}) {
    SCOPED_TRACE(str(d));
    const Tensor narrow = (x % 2).cast(d).contiguous().realize();
    const Tensor y = (narrow.cast(dtypes::float32) + 1).realize();
    expect_equal(y.to_vector<float>(), [](int64_t i) { return static_cast<float>(i % 251 % 2 + 1); });
    expect_equal((narrow.maximum(narrow.zeros_like())).cast(dtypes::float32).to_vector<float>(),
                 [](int64_t i) { return static_cast<float>(i % 251 % 2); });
  }
}

TEST(Adjacent, RowsOfAPaddedWindow) {
  const Tensor x = Tensor::from(numbers(256 * 128), Shape{256, 128}).realize();
  const Tensor y = x.pad({{0, 0}, {4, 4}}).contiguous().realize();  // whole runs of zeros at both ends
  expect_equal(y.to_vector<float>(), [](int64_t i) {
    const int64_t row = i / 136, column = i % 136 - 4;
    return column < 0 || column >= 128 ? 0.f : static_cast<float>((row * 128 + column) % 251);
  });
}

TEST(Adjacent, SumsOfRowsOfAnyLength) {
  for (int64_t n : {64, 100, 1000, 1001, 4096}) {
    SCOPED_TRACE(n);
    const Tensor x = Tensor::from(numbers(8 * n), Shape{8, n}).realize();
    expect_equal(x.sum(1).to_vector<float>(), [&](int64_t row) {
      float sum = 0;
      for (int64_t i = 0; i < n; i++) sum += static_cast<float>((row * n + i) % 251);
      return sum;
    });
  }
}

/// Rows on the host, in float64.
std::vector<double> softmax(const std::vector<float>& x) {
  const double most = *std::max_element(x.begin(), x.end());
  std::vector<double> y;
  for (float v : x) y.push_back(std::exp(v - most));
  const double sum = std::accumulate(y.begin(), y.end(), 0.0);
  for (double& v : y) v /= sum;
  return y;
}

TEST(Adjacent, RowsThatGroupsShare) {
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{3, 33}, {2, 1000}, {1, 5003}}) {
    SCOPED_TRACE(str(rows, " rows of ", n));
    std::vector<float> v = numbers(rows * n);
    for (float& f : v) f = f * 0.05f - 6;
    const Tensor x = Tensor::from(v, Shape{rows, n}).realize();
    const std::vector<float> soft = x.softmax(1).to_vector<float>(), logs = x.log_softmax(1).to_vector<float>(),
                             norm = x.layernorm().to_vector<float>(), sums = x.logsumexp(1).to_vector<float>();
    for (int64_t r = 0; r < rows; r++) {
      const std::vector<float> row(v.begin() + r * n, v.begin() + (r + 1) * n);
      const std::vector<double> want = softmax(row);
      const double mean = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(n);
      double variance = 0, sum = 0;
      for (float f : row) {
        variance += (f - mean) * (f - mean) / static_cast<double>(n);
        sum += std::exp(f);
      }
      EXPECT_NEAR(sums[static_cast<size_t>(r)], std::log(sum), 1e-4);
      for (int64_t i = 0; i < n; i++) {
        const auto at = static_cast<size_t>(r * n + i);
        const double w = want[static_cast<size_t>(i)];
        ASSERT_NEAR(soft[at], w, 1e-6 + 1e-5 * w) << "column " << i;
        ASSERT_NEAR(logs[at], std::log(w), 1e-4) << "column " << i;
        ASSERT_NEAR(norm[at], (row[static_cast<size_t>(i)] - mean) / std::sqrt(variance + 1e-5), 1e-4)
            << "column " << i;
      }
    }
  }
}

TEST(Adjacent, ColumnsThatGroupsShare) {
  constexpr int64_t kRows = 70, kColumns = 48;
  std::vector<float> v = numbers(kRows * kColumns);
  for (float& f : v) f = f * 0.05f - 6;
  const std::vector<float> got = Tensor::from(v, Shape{kRows, kColumns}).realize().softmax(0).to_vector<float>();
  for (int64_t c = 0; c < kColumns; c++) {
    std::vector<float> column;
    for (int64_t r = 0; r < kRows; r++) column.push_back(v[static_cast<size_t>(r * kColumns + c)]);
    const std::vector<double> want = softmax(column);
    for (int64_t r = 0; r < kRows; r++)
      ASSERT_NEAR(got[static_cast<size_t>(r * kColumns + c)], want[static_cast<size_t>(r)], 1e-6) << r << ", " << c;
  }
}

/// A kernel of a group reads its rows once, whatever reduces them.
TEST(Adjacent, RowsOfGroupsAreOneKernel) {
  if (env::EAGER || !has_row_groups()) GTEST_SKIP() << "no groups that share rows";
  const Tensor x = Tensor::from(numbers(64 * 1024), Shape{64, 1024}).realize();
  for (const auto& f :
       std::vector<std::function<Tensor()>>{[&] { return x.softmax(1); }, [&] { return x.log_softmax(1); },
                                            [&] { return x.layernorm(); }, [&] { return x.logsumexp(1); }}) {
    const int64_t before = GlobalCounters::kernels;
    f().realize();
    EXPECT_EQ(GlobalCounters::kernels - before, 1);
  }
}
}  // namespace
}  // namespace tg
