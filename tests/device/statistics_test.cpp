/// \file Means, deviations and norms of halves and integers, whose sums and squares do not fit their types, against
/// values of NumPy and PyTorch.
#include <gtest/gtest.h>

#include <cmath>

#include "device/nn_helpers.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using dtypes::bfloat16, dtypes::float16, dtypes::float32, dtypes::int32, dtypes::int64;
using test::expect_close;

constexpr float kStandardized[] = {-0.16907f, -1.52148f, 1.18359f, 0.50732f};  // of wide_row()
constexpr double kHalfDigits = 1e-3;

/// Values whose squares are infinite in float16.
Tensor wide_row(const Shape& shape) {
  return Tensor({1000.0, -1000.0, 3000.0, 2000.0}, float16).reshape(shape).realize();
}
Tensor repeated(double value, int64_t n, DType d) { return Tensor::full({n}, value, d).contiguous().realize(); }
template <class T> double mean_of(const std::vector<T>& v) {
  const Tensor mean = Tensor::from(v).realize().mean();
  return mean.item<double>();
}

TEST(Statistics, MeansOfIntegersDoNotWrap) {
  EXPECT_EQ(mean_of<int32_t>({INT32_MAX, INT32_MAX}), 2147483648.0);  // as a float32
  EXPECT_EQ(mean_of<int32_t>({INT32_MIN, INT32_MIN}), -2147483648.0);
  EXPECT_EQ(mean_of<uint32_t>({UINT32_MAX, UINT32_MAX}), 4294967296.0);
  EXPECT_EQ(mean_of(std::vector<int64_t>(4, int64_t{1} << 62)), std::ldexp(1, 62));
  EXPECT_EQ(mean_of(std::vector<uint64_t>(3, UINT64_MAX)), std::ldexp(1, 64));
  EXPECT_EQ(mean_of<int64_t>({-1, -1, -1, -2}), -1.25);
  EXPECT_NEAR(mean_of<int64_t>({INT64_MAX, INT64_MIN, 5}), 4.0 / 3, 1e-6);
  EXPECT_EQ(mean_of(std::vector<int16_t>(100'000, 30'000)), 30'000);
  EXPECT_EQ(mean_of<int8_t>({-128, 127, -128, 127}), -0.5);
  EXPECT_NEAR(repeated(255, 20'000'000, dtypes::uint8).mean().item<float>(), 255, 1e-4);
  const Tensor rows = Tensor::full({2, 4}, 1 << 30, int32).contiguous().realize();
  EXPECT_EQ(rows.mean(1).to_vector<float>(), std::vector<float>(2, 1 << 30));
}

TEST(Statistics, VariancesOfIntegersAreThoseOfTheirDifferences) {
  EXPECT_NEAR(Tensor::from<int32_t>({INT32_MAX, INT32_MAX - 2}).std().item<double>(), std::sqrt(2), 1e-6);
  EXPECT_NEAR(Tensor::from<int64_t>({INT64_MAX, INT64_MAX - 4, INT64_MAX - 2}).var().item<double>(), 4, 1e-5);
  EXPECT_NEAR(Tensor::from<uint8_t>({0, 255}).std(VarOptions{.correction = 0}).item<double>(), 127.5, 1e-4);
  EXPECT_NEAR(Tensor::from<int64_t>({INT64_MAX, INT64_MIN}).std(VarOptions{.correction = 0}).item<double>(),
              std::ldexp(1, 63), std::ldexp(1, 40));
  const auto [v, m] = Tensor({1, 2, 3, 5}).var_mean();
  EXPECT_NEAR(v.item<double>(), 2.9166667, 1e-6);
  EXPECT_EQ(m.item<double>(), 2.75);
}

TEST(Statistics, NormsOfHalvesAreComputedInFloat32) {
  const Tensor row = wide_row({1, 4});
  expect_close(row.layernorm(), kStandardized, kHalfDigits);
  expect_close(nn::LayerNorm(4)(row), kStandardized, kHalfDigits);
  expect_close(nn::GroupNorm(1, 4, {.affine = false})(row), kStandardized, kHalfDigits);
  expect_close(nn::InstanceNorm(1, {.affine = false})(wide_row({1, 1, 4})), kStandardized, kHalfDigits);
  {
    nn::Training train;
    const nn::BatchNorm norm(1, {.affine = false});
    expect_close(norm(wide_row({4, 1, 1, 1})), kStandardized, kHalfDigits);
    EXPECT_NEAR(norm.running_var.item<double>(), 0.9 + 0.1 * 2916666.7, 1);
  }
  constexpr float unit[] = {0.25819889f, -0.25819889f, 0.77459667f, 0.51639778f};
  expect_close(row.normalize(), unit, kHalfDigits);
  expect_close(wide_row({4}).std(), {{1707.825f}}, kHalfDigits);
  EXPECT_TRUE(std::isinf(wide_row({4}).var().item<double>())) << "2916667 is no half";
  EXPECT_EQ(row.layernorm().dtype(), float16);
  EXPECT_EQ(nn::LayerNorm(4)(row).dtype(), float32) << "of a weight of float32";
  EXPECT_EQ(nn::LayerNorm(4, {.affine = false})(row).dtype(), float16);
  EXPECT_EQ(nn::LayerNorm(4, {.affine = false})(Tensor({{1, 2, 3, 4}})).dtype(), float32);
}

TEST(Statistics, NormsOfHalvesDoNotRoundMeanAndEpsilon) {
  const Tensor near = Tensor({{1000.0, 1001.0, 1002.0, 1003.0}}).cast(bfloat16);  // 1000, 1000, 1000, 1004
  constexpr float standardized[] = {-0.57735f, -0.57735f, -0.57735f, 1.73205f};
  expect_close(near.layernorm(), standardized, 1e-2);
  const Tensor equal = Tensor::ones({1, 4}, float16).contiguous();
  EXPECT_EQ(equal.layernorm(-1, 1e-12).to_vector<float>(), std::vector<float>(4, 0));
  EXPECT_EQ(Tensor::zeros({1, 4}, float16).contiguous().normalize().to_vector<float>(), std::vector<float>(4, 0));
}

TEST(Statistics, WeightAndBiasOfANormAreAppliedBeforeRounding) {
  const nn::LayerNorm norm(4);
  norm.weight.replace(Tensor({3.0, 3.0, 3.0, 3.0}, float16));
  norm.bias.replace(Tensor({0.1, 0.1, 0.1, 0.1}, float16));
  const std::vector<float> y = norm(wide_row({1, 4})).to_vector<float>();
  const double bias = half_to_float(float_to_half(0.1f)), deviation = std::sqrt(2187500 + 1e-5);
  for (size_t i = 0; const double x : {1000, -1000, 3000, 2000})
    EXPECT_EQ(y[i++], half_to_float(float_to_half(static_cast<float>((x - 1250) / deviation * 3 + bias)))) << x;
}

TEST(Statistics, TiesOfAMaximumAreCountedInFloat32) {
  const auto total = [](auto f) {
    const Tensor x = repeated(1, 70'000, float16);
    x.requires_grad_();
    f(x).backward();
    return x.grad().cast(float32).sum().template item<double>();
  };
  EXPECT_NEAR(total([](const Tensor& x) { return x.max(); }), 1, 0.01);
  EXPECT_NEAR(total([](const Tensor& x) { return x.min(); }), 1, 0.01);
  EXPECT_NEAR(
      total([](const Tensor& x) { return x.reshape(1, 1, -1, 1).max_pool2d({.kernel_size = {70'000, 1}}).sum(); }), 1,
      0.01);
}

TEST(Statistics, PoolsOfHalvesSumAndCountInFloat32) {
  const Tensor x = Tensor::full({1, 1, 17, 17}, 300.0, float16).contiguous().realize();
  const PoolOptions inside{.kernel_size = {17, 17}, .count_include_pad = false};
  EXPECT_EQ(x.avg_pool2d(inside).item<double>(), 300);
  EXPECT_EQ(x.cast(bfloat16).avg_pool2d(inside).item<double>(), 300);
  EXPECT_EQ(x.avg_pool2d({.kernel_size = {17, 17}, .ceil_mode = true}).item<double>(), 300);
}

TEST(Statistics, SumsOfWhatIsScatteredAreRoundedOnce) {
  const Tensor zero = Tensor::zeros({1}, float16), index = Tensor::zeros({3000}, int32),
               ones = Tensor::ones({3000}, float16).contiguous();
  EXPECT_EQ(zero.scatter_add(0, index, ones).item<double>(), 3000);
  EXPECT_EQ(zero.scatter_reduce(0, index, ones, ScatterReduce::kMean, false).item<double>(), 1);
  const Tensor large = Tensor::full({300}, 300.0, float16).contiguous();
  EXPECT_EQ(zero.scatter_reduce(0, Tensor::zeros({300}, int32), large, ScatterReduce::kMean, false).item<double>(), 300)
      << "the sum is no half";
}

TEST(Statistics, KernelsAreAsManyAsForFloat32) {
  const auto kernels = [](const Tensor& t) { return t.schedule().schedule->calls.size(); };
  const auto compare = [&](auto f) {
    const Tensor x = Tensor::ones({64, 256}).contiguous().realize(), half = x.cast(float16).contiguous().realize();
    EXPECT_EQ(kernels(f(half)), kernels(f(x)));
  };
  compare([](const Tensor& x) { return x.layernorm(); });
  compare([](const Tensor& x) { return x.normalize(); });
  compare([](const Tensor& x) { return x.std(1); });
  compare([](const Tensor& x) { return x.var(); });
  compare([](const Tensor& x) { return nn::LayerNorm(256, {.affine = false})(x); });
  compare([](const Tensor& x) { return x.cross_entropy(Tensor::zeros({64}, int32)); });
}

}  // namespace
}  // namespace tg
