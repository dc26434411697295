/// \file Random numbers, linspace and resized images at the ends of their ranges.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using dtypes::int64, dtypes::int32, dtypes::float16, dtypes::bfloat16;

TEST(RandomRanges, UniformStaysBelowItsLimit) {
  Tensor::manual_seed(0);
  EXPECT_LT(Tensor::uniform({200'000}, {.low = 0, .high = 10, .dtype = float16}).max().item<double>(), 10);
  EXPECT_LT(Tensor::uniform({200'000}, {.low = 1, .high = 3, .dtype = bfloat16}).max().item<double>(), 3);
  EXPECT_LT(Tensor::uniform({200'000}, {.low = -1, .high = 0, .dtype = float16}).max().item<double>(), 0);
  EXPECT_LT(Tensor::uniform({200'000}, {.low = 1e6, .high = 1e6 + 1}).max().item<double>(), 1e6 + 1);
  EXPECT_EQ(Tensor::uniform({2000}, {.low = 1, .high = 1.0009, .dtype = float16}).max().item<double>(), 1)
      << "the only half of the interval";
}
TEST(RandomRanges, IntegersOfSmallRangesAreScaledFloats) {
  Tensor::manual_seed(7);
  const std::vector<float> unit = Tensor::rand(100).to_vector<float>();
  Tensor::manual_seed(7);
  const std::vector<int32_t> drawn = Tensor::randint({100}, {.low = -5, .high = 1000}).to_vector<int32_t>();
  for (size_t i = 0; i < drawn.size(); i++) EXPECT_EQ(drawn[i], static_cast<int32_t>(1005 * unit[i]) - 5);
}

/// Expects about half of the values to be odd, and about a quarter of them in each quarter of the range.
void expect_even_spread(int64_t low, int64_t high, DType d) {
  constexpr size_t kCount = 4000;
  Tensor::manual_seed(1);
  const std::vector<int64_t> v =
      Tensor::randint({kCount}, {.low = low, .high = high, .dtype = d}).cast(int64).to_vector<int64_t>();
  size_t odd = 0, quarters[4] = {};
  for (int64_t x : v) {
    ASSERT_GE(x, low);
    ASSERT_LT(x, high);
    odd += x % 2 != 0;
    const double place =
        (static_cast<double>(x) - static_cast<double>(low)) / (static_cast<double>(high) - static_cast<double>(low));
    quarters[std::min(3, static_cast<int>(place * 4))]++;
  }
  EXPECT_NEAR(static_cast<double>(odd), kCount / 2, 150) << low << " to " << high;
  for (size_t n : quarters) EXPECT_NEAR(static_cast<double>(n), kCount / 4, 150) << low << " to " << high;
}
TEST(RandomRanges, IntegersOfWideRangesAreAllDrawn) {
  expect_even_spread(0, 100'000, int32);
  expect_even_spread(0, 1 << 25, int32);
  expect_even_spread(0, INT32_MAX, int32);
  expect_even_spread(INT32_MIN, INT32_MAX, int32);
  expect_even_spread(0, int64_t{1} << 40, int64);
  expect_even_spread(-5, int64_t{3} << 61, int64);
  expect_even_spread(INT64_MIN, INT64_MAX, int64);
  Tensor::manual_seed(1);
  const std::vector<int32_t> v = Tensor::randint({2000}, {.low = INT32_MIN, .high = INT32_MAX}).to_vector<int32_t>();
  EXPECT_GT(std::set<int32_t>(v.begin(), v.end()).size(), 1990u);
  // Remainders of 3 * 2^61 are as frequent as each other: no value stands for more of the bits than another.
  size_t counts[3] = {};
  for (int64_t x : Tensor::randint({3000}, {.low = 0, .high = int64_t{3} << 61, .dtype = int64}).to_vector<int64_t>())
    counts[x % 3]++;
  for (size_t n : counts) EXPECT_NEAR(static_cast<double>(n), 1000, 120);
  EXPECT_EQ(Tensor::randint({0, 3}, {.low = 0, .high = 1 << 30}).shape(), (Shape{0, 3}));
}
TEST(RandomRanges, LinspaceEndsAtItsEnd) {
  for (int64_t n : {2, 3, 7, 50, 100, 1000}) {
    const std::vector<float> v = Tensor::linspace(0.1, 0.9, n).to_vector<float>();
    EXPECT_EQ(v.front(), 0.1f) << n;
    EXPECT_EQ(v.back(), 0.9f) << n;
    EXPECT_TRUE(std::is_sorted(v.begin(), v.end())) << n;
  }
  EXPECT_EQ(Tensor::linspace(5, -5, 5).to_vector<float>(), (std::vector<float>{5, 2.5, 0, -2.5, -5}));
  EXPECT_EQ(Tensor::linspace(0, 10, 4, {.dtype = int32}).to_vector<int32_t>(), (std::vector<int32_t>{0, 3, 6, 10}));
  EXPECT_EQ(Tensor::linspace(0, 2047, 2048, {.dtype = float16})[2047].item<double>(), 2047);
}
TEST(RandomRanges, BytesAreInterpolatedWithoutRoundingInBetween) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 16; i++) pixels.push_back(static_cast<uint8_t>(16 * i));
  const Tensor x = Tensor::from(pixels, {1, 1, 4, 4});
  const std::vector<uint8_t> bytes = x.interpolate({3, 3}).to_vector<uint8_t>();
  const std::vector<float> exact = x.to_float().interpolate({3, 3}).to_vector<float>();
  for (size_t i = 0; i < bytes.size(); i++) EXPECT_EQ(bytes[i], std::lround(exact[i])) << i;
  EXPECT_EQ(bytes[6], 184);
}

}  // namespace
}  // namespace tg
