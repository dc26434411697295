/// \file Long sums of products with something computed of them: two kernels, the numbers of one.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
std::vector<float> normal(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = draw(rng);
  return v;
}

TEST(LongSums, AreStoredBeforeWhatIsMadeOfThem) {
  struct Case {
    int64_t m, k, n;
    bool transposed;
    int64_t kernels;
  };
  for (const Case& c : {Case{64, 2304, 48, false, 2},
                        {64, 2304, 48, true, 2},
                        {33, 2304, 65, false, 2},
                        {64, 2048, 48, false, 1},
                        {8, 2304, 48, false, 1},
                        {1, 2304, 48, true, 1}}) {
    SCOPED_TRACE(str(c.m, ' ', c.k, ' ', c.n, c.transposed ? " transposed" : ""));
    const std::vector<float> a = normal(c.m * c.k, 1), b = normal(c.k * c.n, 2), bias = normal(c.n, 3);
    const Tensor x = Tensor::from(a, Shape{c.m, c.k}).realize(), z = Tensor::from(bias).realize();
    Tensor y = Tensor::from(b, c.transposed ? Shape{c.n, c.k} : Shape{c.k, c.n}).realize();
    if (c.transposed) y = y.transpose();
    const int64_t before = GlobalCounters::kernels;
    const Tensor r = (x.matmul(y) + z).relu().realize();
    if (counts_whole_graphs() && !splits_sums_for_threads()) { EXPECT_EQ(GlobalCounters::kernels - before, c.kernels); }
    const std::vector<float> got = r.to_vector<float>();
    for (int64_t i = 0; i < c.m; i += 7)
      for (int64_t j = 0; j < c.n; j += 5) {
        double want = bias[static_cast<size_t>(j)], magnitude = std::abs(want);
        for (int64_t l = 0; l < c.k; l++) {
          const double p = static_cast<double>(a[static_cast<size_t>(i * c.k + l)]) *
                           b[static_cast<size_t>(c.transposed ? j * c.k + l : l * c.n + j)];
          want += p;
          magnitude += std::abs(p);
        }
        ASSERT_NEAR(got[static_cast<size_t>(i * c.n + j)], std::max(want, 0.0), magnitude * 1e-5) << i << ' ' << j;
      }
  }
}

/// A sum that is a result needs no kernel more, and neither does one that several kernels read.
TEST(LongSums, OnlyWhereSomethingIsMadeOfThem) {
  if (env::EAGER) return;
  if (splits_sums_for_threads()) GTEST_SKIP() << Device::get().kind() << " splits sums of so few results";
  const Tensor x = Tensor::from(normal(64 * 2304, 1), Shape{64, 2304}).realize(),
               y = Tensor::from(normal(2304 * 48, 2), Shape{2304, 48}).realize();
  int64_t before = GlobalCounters::kernels;
  const Tensor r = x.matmul(y).realize();
  EXPECT_EQ(GlobalCounters::kernels - before, 1);
  before = GlobalCounters::kernels;
  const Tensor half = x.matmul(y).cast(dtypes::float16).realize();
  EXPECT_EQ(GlobalCounters::kernels - before, 2);
  EXPECT_EQ(half.cast(dtypes::float32).to_vector<float>(),
            r.cast(dtypes::float16).cast(dtypes::float32).to_vector<float>());
}

}  // namespace
}  // namespace tg
