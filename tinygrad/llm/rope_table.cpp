/// \file Frequencies of every rope variant as one list of numbers, so that kernels know one kind only.
#include "tinygrad/llm/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tinygrad/base/error.h"

namespace tg::llm {
namespace {

/// Returns the (real) number of the pair that makes `turns` turns over the original context.
double pair_of_turns(const RopeConfig& c, double turns) {
  const auto dims = static_cast<double>(c.dims), context = static_cast<double>(c.original_context);
  return dims * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(c.base));
}

/// Mixes interpolated and original frequencies: fast pairs keep theirs.
void apply_yarn(const RopeConfig& c, RopeFrequencies& f) {
  const double last = static_cast<double>(c.dims) - 1;
  const double low = std::clamp(std::floor(pair_of_turns(c, c.yarn_beta_fast)), 0.0, last),
               high = std::clamp(std::ceil(pair_of_turns(c, c.yarn_beta_slow)), 0.0, last);
  for (size_t i = 0; i < f.per_position.size(); i++) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double keep = (1 - ramp) * c.yarn_extrapolation;
    f.per_position[i] *= (1 - keep) / c.factor + keep;
  }
  // With a multiplier the scale of the scores grows instead.
  if (c.yarn_log_multiplier == 0 && c.yarn_extrapolation != 0) f.magnitude *= 1 + 0.1 * std::log(c.factor);
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& c, std::span<const float> factors) {
  RopeFrequencies f;
  const auto pairs = static_cast<size_t>(c.dims / 2);
  TG_CHECK(FormatError, factors.empty() || factors.size() == pairs, "[rope] got ", factors.size(),
           " factors of frequencies, expected ", pairs);
  f.magnitude = c.attention_factor;
  for (size_t i = 0; i < pairs; i++) {
    double v = std::pow(c.base, -2 * static_cast<double>(i) / static_cast<double>(c.dims));
    if (!factors.empty()) {
      TG_CHECK(FormatError, std::isfinite(factors[i]) && factors[i] > 0, "[rope] factor ", i, " is ", factors[i],
               ", expected a number above 0");
      v /= static_cast<double>(factors[i]);
    }
    f.per_position.push_back(c.scaling == RopeScaling::kLinear ? v / c.factor : v);
  }
  if (c.scaling == RopeScaling::kYarn) apply_yarn(c, f);
  return f;
}

RopeTable::RopeTable(const RopeFrequencies& f, RopePairs pairs, int64_t positions, const std::string& device)
    : pairs_(pairs), dims_(2 * static_cast<int64_t>(f.per_position.size())) {
  const size_t n = f.per_position.size();
  std::vector<float> cos(static_cast<size_t>(positions) * n), sin(cos.size());
  for (size_t p = 0; p < static_cast<size_t>(positions); p++)
    for (size_t i = 0; i < n; i++) {
      const double angle = static_cast<double>(p) * f.per_position[i];
      cos[p * n + i] = static_cast<float>(std::cos(angle) * f.magnitude);
      sin[p * n + i] = static_cast<float>(std::sin(angle) * f.magnitude);
    }
  const Shape shape{positions, static_cast<int64_t>(n)};
  cos_ = Tensor::from(cos, shape, {.device = device}).realize();
  sin_ = Tensor::from(sin, shape, {.device = device}).realize();
}

RopeTable::Rows RopeTable::rows(const Tensor& positions) const {
  // Rows without a token have positions behind the last one; what they compute is read by nobody.
  const Tensor known = positions.minimum(cos_.shape(0) - 1);
  return {cos_[known].unsqueeze(2), sin_[known].unsqueeze(2)};
}

Tensor RopeTable::turn(const Tensor& heads, const Rows& r) const {
  const int64_t dim = heads.shape(-1), half = dims_ / 2;
  const Tensor x = dim == dims_ ? heads : heads.slice(-1, 0, dims_);
  Tensor y;
  if (pairs_ == RopePairs::kAdjacent) {
    const Tensor pair = x.unflatten(-1, {half, 2});
    const Tensor a = pair.slice(-1, 0, 1).squeeze(-1), b = pair.slice(-1, 1, 2).squeeze(-1);
    y = Tensor::stack({a * r.cos - b * r.sin, a * r.sin + b * r.cos}, -1).flatten(-2);
  } else {
    const Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half, dims_);
    y = Tensor::cat({a * r.cos - b * r.sin, a * r.sin + b * r.cos}, -1);
  }
  return dim == dims_ ? y : Tensor::cat({y, heads.slice(-1, dims_, dim)}, -1);
}

}  // namespace tg::llm
