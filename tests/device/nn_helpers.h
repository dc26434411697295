/// \file What the tests of layers and optimizers share.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::test {

/// scale * ((7 i) mod 19 - 9) + shift: the inputs of nn_reference.py.
inline Tensor ramp(const Shape& shape, float scale, float shift) {
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); i++) v[i] = scale * static_cast<float>(static_cast<int>(7 * i % 19) - 9) + shift;
  return Tensor::from(v, shape);
}

inline void expect_close(const Tensor& got, std::span<const float> expected, double tolerance) {
  const std::vector<float> v = got.to_vector<float>();
  ASSERT_EQ(v.size(), expected.size());
  for (size_t i = 0; i < v.size(); i++)
    ASSERT_NEAR(v[i], expected[i], tolerance * std::max(1.0, std::abs(static_cast<double>(expected[i]))))
        << "element " << i;
}

}  // namespace tg::test
