/// \file Order statistics of repeated measurements.
#pragma once
#include <algorithm>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg {

/// The summary of a list of samples.
struct Summary {
  double median, min, max;
  size_t runs;
};

/// Returns the middle value; the mean of the two middle ones when the count is even. Throws ValueError for an empty
/// list.
inline double median(std::vector<double> v) {
  TG_CHECK(ValueError, !v.empty(), "[median] got no samples, expected at least one");
  const auto mid = v.begin() + v.size() / 2;
  std::nth_element(v.begin(), mid, v.end());
  return v.size() % 2 ? *mid : (*std::max_element(v.begin(), mid) + *mid) / 2;
}

inline Summary summarize(const std::vector<double>& v) {
  const double mid = median(v);
  const auto [lo, hi] = std::minmax_element(v.begin(), v.end());
  return {mid, *lo, *hi, v.size()};
}

}  // namespace tg
