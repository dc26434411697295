/// \file A maximum that has been computed already and the values it is of, computed again: other kernels may round them
/// otherwise, and still the places of the maxima must be found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "device/nn_helpers.h"

namespace tg {
namespace {
using test::expect_close;

Tensor noise(const Shape& shape, int seed) {
  Tensor::manual_seed(seed);
  return Tensor::randn(shape).clone().realize();
}

TEST(Ties, GradientsOfPoolingsThatWereComputedBefore) {
  // Shapes whose convolutions are summed in another order once more than their pooled values are wanted.
  for (const Shape& shape :
       {Shape{8, 1, 7, 6}, Shape{2, 3, 9, 8}, Shape{4, 8, 12, 10}, Shape{1, 16, 11, 7}, Shape{16, 2, 6, 6}}) {
    const Tensor x = noise(shape, 1), values = noise({4, shape[1].value(), 3, 3}, 2);
    auto gradient = [&](bool first) {
      const Tensor w = values.clone().realize();
      w.requires_grad_(true);
      const Tensor y = x.conv2d(w, {}, {.padding = {1}}).max_pool2d({.kernel_size = {2, 2}});
      (y * y).sum().backward();
      if (first) y.realize();
      return w.grad().to_vector<float>();
    };
    const std::vector<float> together = gradient(false), apart = gradient(true);
    ASSERT_EQ(together.size(), apart.size());
    float largest = 0;
    for (float v : together) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < apart.size(); i++)
      ASSERT_NEAR(apart[i], together[i], 1e-4 * largest) << shape << " element " << i;
  }
}
TEST(Ties, PlacesOfMaximaThatWereComputedBefore) {
  for (int64_t k : {33, 64, 257, 1000}) {
    const Tensor a = noise({24, k}, 3), b = noise({k, 40}, 4), x = a.matmul(b);
    x.max({.axis = 1}).realize();
    x.cummax(1).first.realize();
    const std::vector<int32_t> place = x.argmax({.axis = 1}).to_vector<int32_t>(),
                               running = x.cummax(1).second.to_vector<int32_t>();
    const std::vector<float> v = x.to_vector<float>();
    for (size_t i = 0; i < 24; i++) {
      const auto row = v.begin() + static_cast<std::ptrdiff_t>(i * 40);
      EXPECT_EQ(place[i], std::max_element(row, row + 40) - row) << k << " row " << i;
      EXPECT_EQ(running[i * 40 + 39], place[i]) << k << " row " << i;
    }
  }
}
TEST(Ties, PlacesOfPooledValuesThatWereComputedBefore) {
  const Tensor x = noise({4, 6, 12, 10}, 5).conv2d(noise({8, 6, 3, 3}, 6), {}, {.padding = {1}});
  const auto [value, place] = x.max_pool2d_with_indices({.kernel_size = {2, 2}});
  value.realize();
  const std::vector<int32_t> at = place.to_vector<int32_t>();
  const std::vector<float> v = x.to_vector<float>(), top = value.to_vector<float>();
  ASSERT_EQ(at.size(), top.size());
  for (size_t i = 0; i < at.size(); i++) {
    ASSERT_GE(at[i], 0);
    ASSERT_LT(at[i], 120);
    EXPECT_NEAR(v[i / 30 * 120 + static_cast<size_t>(at[i])], top[i], 1e-4) << i;
  }
}
}  // namespace
}  // namespace tg
