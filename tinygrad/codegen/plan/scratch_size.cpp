/// \file Sizes of panels and windows, and the loops that share one filling of them.
#include <cmath>

#include "tinygrad/codegen/cost/cost_model.h"

namespace tg {

double CostModel::scratch(const Operand& o, const Candidate& c, Mask lane) const {
  double bytes = o.bytes;
  for (size_t i = 0; i < size.size(); i++)
    if (o.mask >> i & 1) bytes *= is_reduce[i] ? static_cast<double>(size[i]) : step(c, lane, i);
  return bytes;
}

double CostModel::window(const Operand& o, const Candidate& c, Mask lane, Mask whole, int axis, int64_t steps) const {
  double bytes = o.bytes;
  for (const auto& sum : o.sums) {
    double extent = 1;
    for (auto [i, k] : sum) {
      const double once = step(c, lane, i) * static_cast<double>(static_cast<int>(i) == axis ? steps : 1),
                   covered = is_reduce[i]     ? static_cast<double>(size[i])
                             : whole >> i & 1 ? once * trips(c, i)
                                              : once;
      extent += static_cast<double>(k) * (covered - 1);
    }
    bytes *= extent;
  }
  return bytes;
}

CostModel::Mask CostModel::window_inner_axes(const Candidate& c, Mask lane) const {
  Mask m = 0;
  const uint32_t windows = lane_windows(c, lane);
  for (size_t i = size.size(); i-- > 0 && windows;) {
    double bytes = 0;
    bool used = false;
    for (size_t o = 0; o < operands.size(); o++)
      if (windows >> o & 1) {
        bytes += window(operands[o], c, lane, m | Mask{1} << i);
        used |= operands[o].mask >> i & 1;
      }
    if (is_reduce[i] || !used || trips(c, i) <= 1) continue;
    if (bytes > l2 * rates.lane_window_share) break;
    m |= Mask{1} << i;
  }
  return m;
}

bool CostModel::runs_along(size_t operand, const AxisSum& sum) const {
  for (auto [i, k] : sum)
    for (const Access& a : accesses)
      if (a.operand == static_cast<int>(operand) && a.mask >> i & 1 && a.step(i) == 1) return true;
  return false;
}

double CostModel::window_run(size_t operand, const Candidate& c, Mask lane, Mask whole) const {
  double run = 1;
  for (const auto& sum : operands[operand].sums)
    if (runs_along(operand, sum))
      run = std::max(run, window({.mask = 0, .scope = 0, .bytes = 1, .usable = true, .sums = {sum}}, c, lane, whole));
  return run;
}

double CostModel::step_lines(size_t operand, const Candidate& c) const {
  double lines = 1;
  for (const auto& sum : operands[operand].sums) {
    double extent = 1;
    for (auto [i, k] : sum)
      if (!is_reduce[i]) extent += static_cast<double>(k * (c.tile[i] - 1));
    lines *= runs_along(operand, sum) ? 1 + (extent - 1) * operands[operand].bytes / MachineRates::kLine : extent;
  }
  return lines;
}

std::vector<size_t> CostModel::far_first(const Candidate& c) const {
  std::vector<int64_t> far(size.size(), 0);
  std::vector<size_t> axes;
  for (size_t i = 0; i < size.size(); i++) {
    if (is_reduce[i]) continue;
    axes.push_back(i);
    for (const Access& a : accesses)
      if (a.mask >> i & 1 && is_window(c, a.operand)) far[i] = std::max(far[i], a.step(i));
  }
  std::stable_sort(axes.begin(), axes.end(), [&](size_t x, size_t y) { return far[x] > far[y]; });
  return axes;
}

CostModel::Mask CostModel::sliding_axes(const Candidate& c) const {
  Mask sliding = 0;
  for (size_t o = 0; o < operands.size(); o++)
    if (is_window(c, static_cast<int>(o)))
      for (const AxisSum& sum : operands[o].sums)
        for (auto [i, k] : sum)
          if (sum.size() > 1) sliding |= Mask{1} << i;
  return sliding;
}

CostModel::Cover CostModel::cover(const Candidate& c, Mask lane) const {
  if (!c.windows || lane_windows(c, lane)) return {};
  Cover found;
  double panels = 0;
  for (size_t o = 0; o < operands.size(); o++) {
    if (!(c.staged >> o & 1) || is_window(c, static_cast<int>(o))) continue;
    panels += scratch(operands[o], c, lane);
    for (size_t i = 0; i < size.size(); i++)
      if (operands[o].mask >> i & 1 && !is_reduce[i] && trips(c, i) > 1) found.outer |= Mask{1} << i;
  }
  auto fits = [&](Mask whole, int axis, int64_t steps) {
    double bytes = 0;
    for (size_t o = 0; o < operands.size(); o++)
      if (is_window(c, static_cast<int>(o))) bytes += window(operands[o], c, lane, whole, axis, steps);
    return bytes <= l2 * rates.lane_window_share;
  };
  if (panels > l2 * rates.covered_panel_share || !fits(0, -1, 1)) return {};
  found.usable = true;
  const std::vector<size_t> axes = far_first(c);
  const Mask sliding = sliding_axes(c);
  for (size_t k = axes.size(); k-- > 0;) {
    const size_t i = axes[k];
    if (!(sliding >> i & 1) || found.outer >> i & 1 || trips(c, i) <= 1) continue;
    if (fits(found.whole | Mask{1} << i, -1, 1)) {
      found.whole |= Mask{1} << i;
      continue;
    }
    const auto n = static_cast<int64_t>(trips(c, i));
    int64_t rows = std::min(n, rates.max_window_rows);
    while (rows > 1 && (n % rows || !fits(found.whole, static_cast<int>(i), rows))) rows--;
    if (rows > 1) {
      found.rows_axis = static_cast<int>(i);
      found.rows = rows;
    }
    break;
  }
  return found;
}

int64_t CostModel::resident_panels(const Candidate& c, Mask lane) const {
  if (lane_windows(c, lane)) return 1;
  double bytes = 0;
  for (size_t o = 0; o < operands.size(); o++)
    if (c.staged >> o & 1 && operands[o].mask & lane)
      bytes += std::min(scratch(operands[o], c, lane), longest_panel(c, lane));
  const auto steps = static_cast<int64_t>(trips(c, static_cast<size_t>(c.lane_axes[0])));
  const int64_t most = packs_again(c, lane) ? rates.repacked_panels_at_once : rates.panels_at_once;
  int64_t n = std::clamp<int64_t>(static_cast<int64_t>(l2 / 2 / std::max(bytes, 1.0)), 1, most);
  while (steps % n) n--;
  return n;
}

}  // namespace tg
