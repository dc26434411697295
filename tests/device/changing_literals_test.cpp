/// \file A program that makes the same graph with another number in every step: a few kernels, then one that reads the
/// number.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tinygrad/base/env.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
/// Kernels that are compiled (or loaded from the disk) while `f` runs for 0 to n - 1; without the first `known` of
/// them.
template <class F> int64_t kernels_of(int n, int known, F f) {
  clear_kernel_cache();
  clear_schedule_cache();
  for (int i = 0; i < known; i++) f(i);
  GlobalCounters::reset();
  for (int i = known; i < n; i++) f(i);
  return GlobalCounters::compiled + GlobalCounters::disk_hits;
}
Tensor numbers() { return Tensor({1.f, -2.f, 0.5f, 3.f, 7.f}).realize(); }

TEST(ChangingLiterals, FloatsBecomeInputs) {
  if (env::EAGER) GTEST_SKIP() << "a kernel for every operation";
  const Tensor x = numbers();
  EXPECT_EQ(kernels_of(40, 6,
                       [&](int i) {
                         EXPECT_EQ((x * (i + 1.25)).sum().item<float>(), 9.5f * (static_cast<float>(i) + 1.25f));
                       }),
            0);
  EXPECT_EQ(
      kernels_of(40, 6, [&](int i) { EXPECT_EQ((x + 100 * i).max().item<float>(), static_cast<float>(7 + 100 * i)); }),
      0);
}

TEST(ChangingLiterals, IntegersBecomeInputs) {
  const Tensor x = Tensor({1, 2, 3}).realize(), y = Tensor({200, 100}).cast(dtypes::uint8).contiguous().realize();
  EXPECT_EQ(kernels_of(40, 6,
                       [&](int i) {
                         EXPECT_EQ((x * (i + 2) - 7).to_vector<int>(), (std::vector<int>{i - 5, 2 * i - 3, 3 * i - 1}));
                       }),
            0);
  EXPECT_EQ(
      kernels_of(40, 6,
                 [&](int i) { EXPECT_EQ((y + i).to_vector<int>(), (std::vector<int>{(200 + i) % 256, 100 + i})); }),
      0);
}

TEST(ChangingLiterals, OnlyThoseThatChange) {
  const Tensor x = numbers();
  const auto step = [&](int i) {
    const auto got = ((x > i - 20).where(x * 3, i * 0.5) + 1).to_vector<float>();
    const auto v = x.to_vector<float>();
    for (size_t k = 0; k < v.size(); k++)
      EXPECT_EQ(got[k], (v[k] > static_cast<float>(i - 20) ? 3 * v[k] : static_cast<float>(i) * 0.5f) + 1)
          << i << " " << k;
  };
  step(100);
  // Where i - 20 is 1 or 3 two literals are one: a graph of its own.
  EXPECT_LE(kernels_of(60, 10, step), 4);
}

TEST(ChangingLiterals, TheSameToTheBit) {
  const Tensor x = Tensor::arange(1000).cast(dtypes::float32).sub(431.7).mul(0.0137).contiguous().realize();
  const auto value = [&](int i) {
    const double c = 0.1 * i + 1e-3;
    return ((x * c - c / 3) / (x.square() + c) * 1.7 + (x - c).exp() * (x.maximum(c) < 2 * c).where(x, c))
        .to_vector<float>();
  };
  clear_schedule_cache();
  for (int i = 0; i < 12; i++) {
    const std::vector<float> got = value(i);
    const Context literal{{"SCACHE", 0}};
    const std::vector<float> want = value(i);
    for (size_t k = 0; k < want.size(); k++)
      ASSERT_TRUE(!std::memcmp(&got[k], &want[k], 4) || (std::isnan(got[k]) && std::isnan(want[k])))
          << i << " " << k << ": " << got[k] << " " << want[k];
  }
}

TEST(ChangingLiterals, SizesExponentsAndDivisorsStay) {
  const Tensor x = Tensor({4.f, 9.f, 16.f, 25.f, 36.f, 49.f, 64.f, 81.f}).realize(),
               n = Tensor({100, -100, 7}).realize();
  for (int i = 1; i < 8; i++) {
    EXPECT_EQ(x.shrink({{SInt(0), SInt(i)}}).sum().item<float>(),
              static_cast<float>((i + 1) * (i + 2) * (2 * i + 3) / 6 - 1));
    const auto p = x.pow(0.5 * i).to_vector<float>();
    EXPECT_NEAR(p[1], std::pow(9.0, 0.5 * i), 1e-3 * p[1]);
    EXPECT_EQ(n.floor_div(i).to_vector<int>(), n.floor_div(Tensor({i, i, i}).realize()).to_vector<int>());
    EXPECT_EQ((n % i).to_vector<int>(), (n % Tensor({i, i, i}).realize()).to_vector<int>());
    EXPECT_EQ(Tensor::full({3}, i).sum().item<int>(), 3 * i);
  }
}

TEST(ChangingLiterals, SpecialValuesAmongThem) {
  const Tensor x = numbers();
  const auto v = x.to_vector<float>();
  for (double c : {3.5, 2.5, -1.5, 4.5, 0.25, 0.0, 1.0, -1.0, 2.0, -0.0, double{INFINITY}, -double{INFINITY},
                   std::nan(""), 1e-45, 3e38, 7.25}) {
    const auto product = (x * c).to_vector<float>(), sum = (x + c).to_vector<float>();
    for (size_t k = 0; k < v.size(); k++) {
      const float f = static_cast<float>(c), p = v[k] * f, s = v[k] + f;
      EXPECT_TRUE(product[k] == p || (std::isnan(product[k]) && std::isnan(p))) << c;
      EXPECT_TRUE(sum[k] == s || (std::isnan(sum[k]) && std::isnan(s))) << c;
    }
  }
}

TEST(ChangingLiterals, AssignsAndGradients) {
  Tensor w = Tensor({1.f, 2.f}).contiguous().realize();
  EXPECT_LE(kernels_of(30, 10,
                       [&](int i) {
                         w.assign(w * 0 + i).realize();
                         EXPECT_EQ(w.to_vector<float>(), (std::vector<float>(2, static_cast<float>(i))));
                         Tensor p = Tensor({3.f, 4.f}).contiguous().realize().requires_grad_();
                         (p * p * (i + 1)).sum().backward();
                         EXPECT_EQ(p.grad().to_vector<float>(), (std::vector<float>{6.f * static_cast<float>(i + 1),
                                                                                    8.f * static_cast<float>(i + 1)}));
                       }),
            0);
}

TEST(ChangingLiterals, AChainOfWritesHasOneKernel) {
  if (env::EAGER) GTEST_SKIP() << "no chain of pending writes";
  constexpr int kWrites = 50;
  const auto count = [](const auto& write) {
    const Tensor x = Tensor::zeros({kWrites + 1, 3}).contiguous().realize();
    return kernels_of(1, 0, [&](int) {
      for (int i = 0; i < kWrites; i++) write(x, i);
      x.realize();
      const std::vector<float> got = x.to_vector<float>();
      for (int i = 0; i < kWrites; i++) EXPECT_EQ(got[static_cast<size_t>(3 * i + 4)], static_cast<float>(i + 1));
    });
  };
  Tensors rows;
  for (int i = 0; i < kWrites; i++) rows.push_back(Tensor::full({3}, i + 1.0).clone().realize());
  EXPECT_EQ(count([&](const Tensor& x, int i) { x.at(i + 1) = rows[static_cast<size_t>(i)]; }), 1);
  EXPECT_LE(count([&](const Tensor& x, int i) { x.at(i + 1) = x(i) + 1; }), 4) << "the first ones are folded";
}

TEST(ChangingLiterals, CapturedOnesKeepTheirValue) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 captures nothing";
  const Tensor x = numbers();
  for (int i = 0; i < 8; i++) (x * (i + 0.5)).realize();
  auto f = jit([](const Tensor& t) { return t * 9.5; });
  for (int i = 0; i < 4; i++)
    EXPECT_EQ(f((numbers() + i).realize()).to_vector<float>()[0], 9.5f * static_cast<float>(1 + i));
  for (int i = 0; i < 3; i++) (x * (i + 20.5)).realize();
  EXPECT_EQ(f(numbers()).to_vector<float>()[3], 28.5f);
}

}  // namespace
}  // namespace tg
