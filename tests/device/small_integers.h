/// \file Random inputs whose sums are exact in any order.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

namespace tg::test {

/// n integers of [lo, hi], as floats.
inline std::vector<float> small_integers(int64_t n, uint32_t seed, int lo, int hi) {
  std::mt19937 rng(seed);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(static_cast<int>(rng() % static_cast<uint32_t>(hi - lo + 1)) + lo);
  return v;
}

}  // namespace tg::test
