/// \file Operations on vectors of halves: every bit pattern, NaN, infinities and denormal numbers included, as floats
/// have them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using dtypes::float16, dtypes::float32;
constexpr int64_t kAll = 1 << 16;

/// All halves, and the same in an order in which each meets another.
struct Halves {
  Tensor x, y;
  std::vector<float> a, b;
  Halves() {
    std::vector<uint16_t> bits(kAll), others(kAll);
    for (int64_t i = 0; i < kAll; i++) {
      bits[static_cast<size_t>(i)] = static_cast<uint16_t>(i);
      others[static_cast<size_t>(i)] = static_cast<uint16_t>(i % 5 ? i * 40503 + 7 : i ^ (i % 2 ? 0x8000 : 0));
    }
    x = Tensor::from(bits).bitcast(float16).realize();
    y = Tensor::from(others).bitcast(float16).realize();
    a = x.cast(float32).to_vector<float>();
    b = y.cast(float32).to_vector<float>();
  }
};

void expect_same(const Tensor& result, const Halves& h, const std::function<float(float, float)>& want) {
  const std::vector<float> got = result.cast(float32).to_vector<float>();
  ASSERT_EQ(got.size(), static_cast<size_t>(kAll));
  for (size_t i = 0; i < got.size(); i++) {
    const float w = want(h.a[i], h.b[i]);
    if (std::isnan(w)) ASSERT_TRUE(std::isnan(got[i])) << h.a[i] << ' ' << h.b[i] << ": " << got[i];
    else ASSERT_EQ(got[i], w) << h.a[i] << ' ' << h.b[i];
  }
}

TEST(Halves, AreComparedAsNumbers) {
  const Halves h;
  expect_same(h.x < h.y, h, [](float a, float b) { return a < b; });
  expect_same(h.x == h.y, h, [](float a, float b) { return a == b; });
  expect_same(h.x != h.y, h, [](float a, float b) { return a != b; });
  expect_same(h.x.isnan(), h, [](float a, float) { return std::isnan(a); });
  expect_same((h.x < h.y).where(h.x, h.y), h, [](float a, float b) { return a < b ? a : b; });
  expect_same((h.x < 0.25).where(1, h.y), h, [](float a, float b) { return a < 0.25f ? 1 : b; });
}

TEST(Halves, MaximaRootsAndWholeNumbers) {
  const Halves h;
  const auto greater = [](float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); };
  expect_same(h.x.maximum(h.y), h, greater);
  expect_same(h.x.relu(), h, [](float a, float) { return std::isnan(a) ? NAN : std::max(a, 0.0f); });
  expect_same(h.x.cast(float32).maximum(h.y.cast(float32)), h, greater);
  expect_same(h.x.trunc(), h, [](float a, float) { return std::trunc(a); });
  expect_same(h.x.sqrt(), h, [](float a, float) { return half_to_float(float_to_half(std::sqrt(a))); });
  const std::vector<float> top =
      h.x.isnan().where(0, h.x).reshape(256, 256).max({.axis = 1}).cast(float32).to_vector<float>();
  for (size_t i = 0; i < top.size(); i++) {
    float want = -INFINITY;
    for (size_t j = 0; j < 256; j++) want = std::max(want, std::isnan(h.a[i * 256 + j]) ? 0 : h.a[i * 256 + j]);
    ASSERT_EQ(top[i], want) << i;
  }
}

}  // namespace
}  // namespace tg
