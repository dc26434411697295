/// \file Running sums, products and maxima in chunks: lengths of every kind, any axis, gradients, and that work grows
/// with the length alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "device_facts.h"
#include "small_integers.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;

Floats values(int64_t n, uint32_t seed) { return test::small_integers(n, seed, -4, 4); }
/// f(so far, next) along the middle of three axes.
template <class F> Floats running(const Floats& v, int64_t outer, int64_t n, int64_t inner, bool backwards, F f) {
  Floats r = v;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t k = 1; k < n; k++)
      for (int64_t i = 0; i < inner; i++) {
        const int64_t at = backwards ? n - 1 - k : k;
        auto place = [&](int64_t a) { return static_cast<size_t>((o * n + a) * inner + i); };
        r[place(at)] = f(r[place(backwards ? at + 1 : at - 1)], v[place(at)]);
      }
  return r;
}

TEST(Prefix, EveryLengthAlongEveryAxis) {
  uint32_t seed = 0;
  // Within one chunk, whole chunks of several lengths, prime lengths, chunks of chunks.
  for (int64_t n : {1, 16, 17, 24, 250, 1021, 4097})
    for (const auto& [outer, inner] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {70, 1}, {3, 33}, {18, 16}}) {
      SCOPED_TRACE(str(outer, " x ", n, " x ", inner));
      const Floats v = values(outer * n * inner, ++seed);
      const Tensor x = Tensor::from(v, Shape{outer, n, inner}).realize();
      EXPECT_EQ(x.cumsum(1).to_vector<float>(),
                running(v, outer, n, inner, false, [](float a, float b) { return a + b; }));
      if (n > 2000) continue;
      EXPECT_EQ(x.cummax(1).first.to_vector<float>(),
                running(v, outer, n, inner, false, [](float a, float b) { return std::max(a, b); }));
      EXPECT_EQ(x.flip(1).cumsum(1).flip(1).to_vector<float>(),
                running(v, outer, n, inner, true, [](float a, float b) { return a + b; }));
    }
}

TEST(Prefix, Products) {
  for (int64_t n : {30, 160, 509}) {
    Floats v = values(3 * n, 5);
    for (float& x : v) x = x < 0 ? -1.0f : x == 3 ? 2.0f : x == 4 ? 0.5f : 1.0f;  // exact
    const Tensor x = Tensor::from(v, Shape{3, n}).realize();
    EXPECT_EQ(x.cumprod(1).to_vector<float>(), running(v, 3, n, 1, false, [](float a, float b) { return a * b; }));
  }
}

TEST(Prefix, PositionsOfMaximaAreTheFirst) {
  for (const auto& [rows, n] : std::vector<std::pair<int64_t, int64_t>>{{3, 40}, {2, 600}, {70, 250}}) {
    const Floats v = values(rows * n, 21);
    std::vector<int64_t> most, least;
    for (int64_t r = 0; r < rows; r++) {
      const auto row = v.begin() + static_cast<std::ptrdiff_t>(r * n);
      for (int64_t i = 1; i <= n; i++) {
        most.push_back(std::max_element(row, row + i) - row);
        least.push_back(std::min_element(row, row + i) - row);
      }
    }
    const Tensor x = Tensor::from(v, Shape{rows, n}).realize();
    EXPECT_EQ(x.cummax(1).second.to_vector<int64_t>(), most) << n;
    EXPECT_EQ(x.cummin(1).second.to_vector<int64_t>(), least) << n;
    EXPECT_EQ(x.T().cummax(0).second.T().to_vector<int64_t>(), most) << n;
  }
  const Tensor x = Tensor(Floats{1, NAN, 3, NAN, 5, 6, 7, 8}).cummax(0).second;
  EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(Prefix, LogarithmsOfSums) {
  for (const auto& [rows, n] : std::vector<std::pair<int64_t, int64_t>>{{5, 12}, {70, 250}, {2, 3001}}) {
    Floats v = values(rows * n, 31);
    for (float& x : v) x = x == 4 ? -INFINITY : x * 20;
    std::fill_n(v.begin(), std::min<int64_t>(n, 40), -INFINITY);
    const Tensor x = Tensor::from(v, Shape{rows, n}).realize();
    const Floats got = x.logcumsumexp(1).to_vector<float>(), across = x.T().logcumsumexp(0).T().to_vector<float>();
    for (int64_t r = 0; r < rows; r++) {
      double most = -INFINITY, sum = 0;  // below the maximum
      for (int64_t i = 0; i < n; i++) {
        const auto at = static_cast<size_t>(r * n + i);
        if (v[at] > most) {
          sum = std::exp(most - v[at]) * sum + 1;
          most = v[at];
        } else if (v[at] > -INFINITY) sum += std::exp(v[at] - most);
        const double want = sum ? most + std::log(sum) : -INFINITY;
        for (float x : {got[at], across[at]})
          if (std::isinf(want)) ASSERT_EQ(x, want) << at;
          else ASSERT_NEAR(x, want, 1e-6 * (1 + std::abs(want))) << at;
      }
    }
  }
}

TEST(Prefix, OneLongAxis) {
  const int64_t n = (1 << 20) + 3;
  const Floats v = values(n, 3);
  const Floats sums = Tensor::from(v, Shape{n}).cumsum().to_vector<float>(),
               want = running(v, 1, n, 1, false, [](float a, float b) { return a + b; });
  EXPECT_EQ(sums, want);
}

TEST(Prefix, ErrorsStaySmall) {
  const int64_t n = 1 << 18;
  std::mt19937 rng(1);
  Floats v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(rng() % 1000003) / 1000003;
  const Floats sums = Tensor::from(v, Shape{n}).cumsum().to_vector<float>();
  double exact = 0;
  for (size_t i = 0; i < v.size(); i++) {
    exact += v[i];
    ASSERT_NEAR(sums[i], exact, 1e-6 * (1 + exact)) << i;  // one after the other they would be off by 1e-4
  }
}

TEST(Prefix, GradientIsTheSumOfWhatFollows) {
  for (const auto& [outer, n, inner] :
       std::vector<std::array<int64_t, 3>>{{4, 20, 1}, {33, 128, 1}, {5, 1000, 2}, {1, 1021, 40}}) {
    const Floats g = values(outer * n * inner, 8);
    Tensor x = Tensor::from(values(outer * n * inner, 7), Shape{outer, n, inner}).clone().realize();
    x.requires_grad_(true);
    (x.cumsum(1) * Tensor::from(g, Shape{outer, n, inner})).sum().backward();
    EXPECT_EQ(x.grad().to_vector<float>(), running(g, outer, n, inner, true, [](float a, float b) { return a + b; }))
        << n;
  }
}

TEST(Prefix, WorkGrowsWithTheLength) {
  if (!counts_whole_graphs())
    GTEST_SKIP() << "what is counted is a whole graph in buffers; EAGER=1 and IMAGE=1 have none";
  auto cost = [](int64_t rows, int64_t n, int axis) {
    const Tensor x = (axis ? Tensor::zeros({rows, n}) : Tensor::zeros({n, rows})).clone().realize();
    const int64_t ops = GlobalCounters::ops, bytes = GlobalCounters::mem, kernels = GlobalCounters::kernels;
    x.cumsum(axis).realize();
    EXPECT_LE(GlobalCounters::kernels - kernels, 7) << n;
    EXPECT_LT(GlobalCounters::mem - bytes, 4 * rows * n * 4)
        << n;  // read twice, written once, a sixteenth of that for the chunks
    return static_cast<double>(GlobalCounters::ops - ops) / static_cast<double>(rows * n);
  };
  for (int axis : {0, 1}) EXPECT_LT(cost(64, 4096, axis), 80) << axis;
  for (int axis : {0, 1}) EXPECT_LT(cost(4, 1 << 16, axis), 80) << axis;
  auto operations = [](const std::function<Tensor(Tensor)>& f, int64_t n) {
    const Tensor x = Tensor::zeros({16, n}).clone().realize();
    const int64_t ops = GlobalCounters::ops;
    f(x).realize();
    return static_cast<double>(GlobalCounters::ops - ops) / static_cast<double>(16 * n);
  };
  EXPECT_LT(operations([](const Tensor& x) { return x.cummax(1).second; }, 4096), 250);
  // Of an element as many for four times the length, up to what more chunks cost; how many depends on the device, which
  // may compute exponentials again.
  const auto sums = [](const Tensor& x) { return x.logcumsumexp(1); };
  EXPECT_LT(operations(sums, 4 * 4096), 2.5 * operations(sums, 4096));
}
}  // namespace
}  // namespace tg
