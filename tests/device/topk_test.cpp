/// \file The k greatest or least of many: equal values, gradients, lengths known at run time, and that only a few are
/// sorted.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "small_integers.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;

/// Few different values, so that many are equal.
Floats values(int64_t n, uint32_t seed, int different) {
  return test::small_integers(n, seed, -(different / 2), different - different / 2 - 1);
}
/// Places of the first k of a row in order, the first of equals first.
Longs order_of(const Floats& v, int64_t row, int64_t n, int64_t k, bool largest) {
  Longs order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  const float* x = &v[static_cast<size_t>(row * n)];
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return largest ? x[a] > x[b] : x[a] < x[b]; });
  order.resize(static_cast<size_t>(k));
  return order;
}

TEST(Topk, FirstOfManyAndOfFew) {
  uint32_t seed = 0;
  for (const auto& [rows, n, k] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                      {3, 40, 40},
                                                                      {2, 3000, 0},
                                                                      {2, 3000, 1},
                                                                      {2, 3001, 5},
                                                                      {1, 5000, 70},
                                                                      {600, 200, 3},
                                                                      {1, 70000, 2}})
    for (bool largest : {true, false})
      for (int different : {3, 1 << 20}) {
        SCOPED_TRACE(str(k, " of ", rows, " x ", n, largest ? " largest" : " smallest"));
        const Floats v = values(rows * n, ++seed, different);
        const Tensor x = Tensor::from(v, Shape{rows, n}).realize();
        Longs want;
        Floats top;
        for (int64_t r = 0; r < rows; r++)
          for (int64_t i : order_of(v, r, n, k, largest)) {
            want.push_back(i);
            top.push_back(v[static_cast<size_t>(r * n + i)]);
          }
        const auto [value, place] = x.topk(k, 1, largest);
        EXPECT_EQ(place.dtype(), dtypes::int32);
        EXPECT_EQ(place.to_vector<int64_t>(), want);
        EXPECT_EQ(value.to_vector<float>(), top);
        const auto [across, at] = x.T().topk(k, 0, largest);
        EXPECT_EQ(at.T().to_vector<int64_t>(), want);
        EXPECT_EQ(across.shape(), (Shape{k, rows}));
      }
}

TEST(Topk, LowestValuesAreFoundBehindWhatFillsTheLastChunk) {
  const int64_t n = 2051;
  const Tensor lowest = Tensor::full({n}, int64_t{INT32_MIN}, {.dtype = dtypes::int32}),
               most = Tensor::full({n}, uint64_t{UINT64_MAX}, {.dtype = dtypes::uint64});
  const Longs first{0, 1, 2, 3, 4};
  EXPECT_EQ(lowest.topk(5).second.to_vector<int64_t>(), first);
  EXPECT_EQ(most.topk(5, 0, false).second.to_vector<int64_t>(), first);
  const Tensor infinite = Tensor::full({n}, -INFINITY).clone();
  EXPECT_EQ(infinite.topk(5).second.to_vector<int64_t>(), first);
}

TEST(Topk, GradientGoesToThePositions) {
  const int64_t n = 4000, k = 6;
  const Floats v = values(2 * n, 7, 1 << 20);
  Tensor x = Tensor::from(v, Shape{2, n}).clone().realize();
  x.requires_grad_(true);
  const Tensor weight = (Tensor::arange(2 * k) + 1).reshape({2, k}).to_float();
  (x.topk(k, 1).first * weight).sum().backward();
  Floats want(static_cast<size_t>(2 * n));
  for (int64_t r = 0; r < 2; r++) {
    const Longs order = order_of(v, r, n, k, true);
    for (int64_t i = 0; i < k; i++)
      want[static_cast<size_t>(r * n + order[static_cast<size_t>(i)])] = static_cast<float>(r * k + i + 1);
  }
  EXPECT_EQ(x.grad().to_vector<float>(), want);
}

TEST(Topk, RowsWhoseNumberIsKnownAtRunTime) {
  const int64_t n = 2500, k = 4;
  const Floats v = values(6 * n, 9, 50);
  const Tensor x = Tensor::from(v, Shape{6, n}).realize();
  for (int64_t rows : {2, 5}) {
    const BoundVariable b = Variable("rows", 1, 6).bind(rows);
    const Tensor place = x.shrink({{0, b}, {0, n}}).topk(k, 1).second;
    Longs want;
    for (int64_t r = 0; r < rows; r++)
      for (int64_t i : order_of(v, r, n, k, true)) want.push_back(i);
    EXPECT_EQ(place.to_vector<int64_t>(), want);
  }
}

TEST(Topk, SortsChunksWithLargeMaximaOnly) {
  if (env::EAGER) GTEST_SKIP() << "what is counted is a whole graph; EAGER=1 computes each operation by itself";
  const int64_t rows = 16, n = 32768;
  const Tensor x = Tensor::from(values(rows * n, 11, 1 << 20), Shape{rows, n}).realize();
  const int64_t kernels = GlobalCounters::kernels, ops = GlobalCounters::ops;
  x.topk(10).second.realize();
  EXPECT_LE(GlobalCounters::kernels - kernels, 30);
  EXPECT_LT(GlobalCounters::ops - ops,
            80 * rows * n);  // a network exchanges all 120 times, with several operations each
}
}  // namespace
}  // namespace tg
