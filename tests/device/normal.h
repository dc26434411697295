/// \file Normally distributed inputs.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace tg::test {

/// n floats of mean 0 and variance 1; the same ones for a seed.
inline std::vector<float> normal(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = draw(rng);
  return v;
}

}  // namespace tg::test
