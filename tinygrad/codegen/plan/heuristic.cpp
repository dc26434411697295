/// \file The search for OptOps by the cost model: where to begin, register tiles in two dimensions, a climb, loops.
#include "tinygrad/codegen/plan/heuristic.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/cost/cost_model.h"

namespace tg {
namespace {
using Mask = CostModel::Mask;
constexpr size_t kMaxAxes = 60;          // a set of axes is a word
constexpr double kClearlyBetter = 0.98;  // of the cycles: what a start has to bring,
constexpr double kStepBetter = 0.985;    // a step of the climb
constexpr int kMaxSteps = 12;            // of the climb
constexpr int64_t kShortAxis = 5;        // taps of a filter: tiled as a whole or not at all
constexpr double kFeedsThreads = 8;      // iterations of a loop that threads can share
constexpr size_t kFewStarts = 3;         // that are climbed from; one more where windows compete with each other

/// Returns true when axis `i` can share the lanes of `c`: nothing depends on two of them, and it walks memory in steps
/// of one.
bool can_share_lanes(const CostModel& m, const Candidate& c, size_t i) {
  if (m.size[i] < c.lanes / 2 || m.size[i] < 2 || contains(c.lane_axes, static_cast<int>(i))) return false;
  const Mask lane = CostModel::lane_mask(c) | Mask{1} << i;
  auto is_shared = [&](Mask axes) { return __builtin_popcountll(axes & lane) > 1; };
  if (std::any_of(m.exclusive.begin(), m.exclusive.end(), is_shared)) return false;
  for (const CostModel::Reduce& r : m.reduces)
    if (is_shared(r.value | r.reduced)) return false;
  bool unit = false;
  for (const CostModel::Access& a : m.accesses) {
    if (!(a.mask >> i & 1)) continue;
    if (a.nonlinear >> i & 1 || (a.stride[i] != 1 && a.stride[i] != 0)) return false;
    unit |= a.stride[i] == 1;
  }
  return unit;
}
void share_lanes(const CostModel& m, Candidate& c) {
  for (size_t i = 0; i < m.size.size(); i++)
    if (can_share_lanes(m, c, i)) c.lane_axes.push_back(static_cast<int>(i));
}

/// Orders the loops of a candidate without staged operands.
void plan_loops(const CostModel& m, Candidate& c) {
  c.order = m.best_order(c);
  int thread = -1;  // the outermost loop that feeds the threads, else the first
  for (int a : c.order) {
    const bool feeds = m.trips(c, static_cast<size_t>(a)) >= kFeedsThreads;
    if (thread < 0 || feeds) thread = a;
    if (feeds) break;
  }
  std::tie(c.block_axis, c.blocks) = m.blocking(c, thread);
  c.cycles = std::max(c.cycles, m.traffic(c, CostModel::lane_mask(c), false));
}

/// The search of one kernel.
class CandidateSearch {
 public:
  CandidateSearch(const CostModel& model, int cores) : m_(model), cores_(cores), most_lanes_(model.most_lanes) {
    scalar_.tile.assign(m_.size.size(), 1);
  }
  std::vector<Candidate> best(size_t n);

 private:
  using Change = std::initializer_list<std::pair<size_t, int64_t>>;
  void start_plain();
  void start_lanes(size_t axis);
  void start_staged(size_t axis);
  bool only_gathers(size_t axis) const;
  void tile_start(Candidate& c);
  void tile_pair(Candidate& best, const Candidate& c, size_t a, size_t b);
  void keep_few(size_t n);
  void climb(Candidate& c);
  void step(Candidate& best, const Candidate& c, size_t axis);
  bool plan(Candidate& c) const;
  int64_t extent(const Candidate& c, size_t a) const {
    return contains(c.lane_axes, static_cast<int>(a)) ? (m_.size[a] + c.lanes - 1) / c.lanes : m_.size[a];
  }
  /// Returns false for a padded reduce axis: it needs masks, and only the lanes pay for them anyway.
  bool is_allowed(const Candidate& c, size_t a, int64_t f) const {
    return f <= extent(c, a) && (f == 1 || !m_.is_reduce[a] || extent(c, a) != m_.size[a] || m_.size[a] % f == 0);
  }
  void try_tile(Candidate& best, const Candidate& c, Change change, double gain);

  const CostModel& m_;
  const int cores_, most_lanes_;
  Candidate scalar_, trial_;  // the second: the candidate being changed, else with other tiles
  std::vector<Candidate> starts_;
};

/// Returns true when no access walks memory along the axis.
bool CandidateSearch::only_gathers(size_t axis) const {
  bool unit = false, any = false;
  for (const CostModel::Access& a : m_.accesses)
    if (a.mask >> axis & 1) {
      any = true;
      unit |= !(a.nonlinear >> axis & 1) && a.stride[axis] == 1;
    }
  return any && !unit;
}

/// Adds scalar code, and lanes along each axis.
void CandidateSearch::start_plain() {
  starts_.push_back(scalar_);
  for (size_t v = 0; v < m_.size.size(); v++)
    if (m_.size[v] >= 2 && !only_gathers(v)) start_lanes(v);
}

void CandidateSearch::start_lanes(size_t axis) {
  const int most = most_lanes_;
  for (int lanes = most; lanes >= 2 && lanes >= most / 4; lanes /= 2) {
    if (m_.size[axis] * 2 <= lanes && lanes > 2 && lanes > most / 4) continue;
    Candidate c = scalar_;
    c.lanes = lanes;
    c.lane_axes = {static_cast<int>(axis)};
    share_lanes(m_, c);
    starts_.push_back(std::move(c));
  }
}

/// Adds lanes along an output axis with operands in scratch memory: those that move along the lanes, all, and windows.
void CandidateSearch::start_staged(size_t axis) {
  uint32_t along = 0, all = 0, sliding = 0, broadcast = 0;  // the last two: windows with and without lanes
  for (size_t o = 0; o < m_.operands.size(); o++) {
    if (!m_.operands[o].usable) continue;
    const bool moves = m_.operands[o].mask >> axis & 1;
    all |= 1u << o;
    if (moves) along |= 1u << o;
    if (!m_.operands[o].sums.empty()) (moves ? sliding : broadcast) |= 1u << o;
  }
  if (!along || most_lanes_ < 2 || m_.size[axis] * 2 <= most_lanes_) return;
  auto add = [&](uint32_t staged, uint32_t windows) -> Candidate& {
    Candidate c = scalar_;
    c.lanes = most_lanes_;
    c.lane_axes = {static_cast<int>(axis)};
    c.staged = staged;
    c.windows = windows;
    return starts_.emplace_back(std::move(c));
  };
  add(along, 0);
  if (all != along) add(all, 0);
  // Taps inside, so that neighbouring ones find their rows in the first level cache.
  const bool differs = m_.by_stride != m_.natural;
  if (broadcast) {
    Candidate& c = add(all, broadcast);
    c.by_stride = differs && m_.cover(c, CostModel::lane_mask(c)).usable;
  }
  if (sliding) add(sliding, sliding).by_stride = differs;
}

/// Takes `c` with other tiles where that is better than the best so far.
void CandidateSearch::try_tile(Candidate& best, const Candidate& c, Change change, double gain) {
  for (auto [a, f] : change)
    if (!is_allowed(c, a, f)) return;
  for (auto [a, f] : change) trial_.tile[a] = f;
  trial_.cycles = m_.score(trial_, best.cycles * gain);
  if (trial_.cycles < best.cycles * gain) best = trial_;
  for (auto [a, f] : change) trial_.tile[a] = c.tile[a];
}

/// Tiles two axes at once, since a register tile pays only in two dimensions; two short ones, taps of a filter, as a
/// whole, with a third.
void CandidateSearch::tile_pair(Candidate& best, const Candidate& c, size_t a, size_t b) {
  const bool is_short = m_.size[a] <= kShortAxis && m_.size[b] <= kShortAxis;
  if (m_.is_reduce[a] && m_.is_reduce[b]) {
    if (is_short) try_tile(best, c, {{a, m_.size[a]}, {b, m_.size[b]}}, kClearlyBetter);
    return;
  }
  for (auto [f, g] : {std::pair<int64_t, int64_t>{2, 2}, {4, 4}, {8, 2}, {2, 8}})
    try_tile(best, c, {{a, f}, {b, g}}, kClearlyBetter);
  for (size_t d = 0; d < m_.size.size() && is_short; d++)
    if (d != a && d != b && m_.size[d] > 1)
      for (int64_t f : {2, 4}) try_tile(best, c, {{a, m_.size[a]}, {b, m_.size[b]}, {d, f}}, kClearlyBetter);
}

void CandidateSearch::tile_start(Candidate& c) {
  c.cycles = m_.score(c);
  Candidate best = trial_ = c;
  for (size_t a = 0; a < m_.size.size(); a++)
    for (size_t b = a + 1; b < m_.size.size(); b++)
      if (m_.size[a] >= 2 && m_.size[b] >= 2) tile_pair(best, c, a, b);
  c = std::move(best);
  if (m_.by_stride == m_.natural || c.staged) return;
  best = c;
  best.by_stride = true;
  best.cycles = m_.score(best);
  if (best.cycles < c.cycles * kClearlyBetter) c = std::move(best);
}

void sort_by_cycles(std::vector<Candidate>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cycles < b.cycles; });
}

/// Keeps the best few starts, and the best without panels: what those cost in addition is known at the end only.
/// Windows of both kinds look equally good at first.
void CandidateSearch::keep_few(size_t n) {
  sort_by_cycles(starts_);
  const bool both = std::any_of(starts_.begin(), starts_.end(), [&](const Candidate& c) {
    return c.windows && !m_.lane_windows(c, CostModel::lane_mask(c));
  });
  const size_t few = std::max(n, both ? kFewStarts + 1 : kFewStarts);
  if (starts_.size() <= few) return;
  auto plain = std::find_if(starts_.begin(), starts_.end(), [](const Candidate& c) { return !c.staged; });
  if (plain - starts_.begin() >= static_cast<std::ptrdiff_t>(few)) starts_[few - 1] = *plain;
  starts_.resize(few);
}

/// Tries other tiles of one axis, alone and traded against another axis.
void CandidateSearch::step(Candidate& best, const Candidate& c, size_t axis) {
  static constexpr int64_t kFactors[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16};
  for (int64_t f : kFactors) {
    if (f == c.tile[axis]) continue;
    try_tile(best, c, {{axis, f}}, kStepBetter);
    for (size_t b = 0; b < m_.size.size() && f > c.tile[axis]; b++)
      if (b != axis && c.tile[b] > 1) try_tile(best, c, {{axis, f}, {b, c.tile[b] / 2}}, kStepBetter);
  }
}

void CandidateSearch::climb(Candidate& c) {
  for (int i = 0; i < kMaxSteps; i++) {
    Candidate best = trial_ = c;
    for (size_t a = 0; a < m_.size.size(); a++)
      if (m_.size[a] >= 2) step(best, c, a);
    if (best.cycles >= c.cycles) return;
    c = std::move(best);
  }
}

/// Chooses the loops of a candidate; false when its panels are too large.
bool CandidateSearch::plan(Candidate& c) const {
  for (size_t i : m_.by_stride)
    if (c.by_stride && m_.is_reduce[i]) c.reduce_order.push_back(static_cast<int>(i));
  if (c.staged) return m_.place_stages(c, cores_);
  plan_loops(m_, c);
  return true;
}

std::vector<Candidate> CandidateSearch::best(size_t n) {
  start_plain();
  for (size_t v = 0; v < m_.size.size(); v++)
    if (m_.size[v] >= 2 && !m_.is_reduce[v]) start_staged(v);
  for (Candidate& c : starts_) tile_start(c);
  keep_few(n);
  for (Candidate& c : starts_) climb(c);
  std::erase_if(starts_, [&](Candidate& c) { return !plan(c); });
  for (Candidate& c : starts_) c.cycles += m_.accumulating(c);
  sort_by_cycles(starts_);
  if (starts_.size() > n) starts_.resize(n);
  return std::move(starts_);
}

/// Returns true when the staged operands of a candidate can be: panels have lanes along an output axis.
bool is_possible(const CostModel& m, const Candidate& c) {
  if (c.staged && (c.lane_axes.empty() || std::any_of(c.lane_axes.begin(), c.lane_axes.end(),
                                                      [&](int a) { return m.is_reduce[static_cast<size_t>(a)]; })))
    return false;
  for (size_t o = 0; o < CostModel::kMaxOperands; o++) {
    if (!(c.staged >> o & 1)) continue;
    if (o >= m.operands.size() || !m.operands[o].usable) return false;
    if (c.windows >> o & 1 && m.operands[o].sums.empty()) return false;
  }
  return true;
}

/// Forgets the loops of an earlier plan that depend on what is staged.
void forget_stages(Candidate& c) {
  c.split_axis = c.rows_axis = c.block_axis = c.stages_outside = -1;
  c.split = c.rows = c.blocks = 0;
  c.stages.clear();
}
}  // namespace

std::vector<Candidate> candidates(const KernelAxes& kernel, UOp sink, const Renderer& renderer, size_t n) {
  const CostModel model(kernel, sink, renderer);
  if (model.size.size() > kMaxAxes) return {};
  return CandidateSearch(model, std::max(1, renderer.target().cores)).best(n);
}

void plan_candidates(std::vector<Candidate>& list, const KernelAxes& kernel, UOp sink, const Renderer& renderer) {
  const CostModel m(kernel, sink, renderer);
  const int cores = std::max(1, renderer.target().cores);
  std::erase_if(list, [&](Candidate& c) {
    if (c.lane_axes.size() == 1 && !c.staged) share_lanes(m, c);
    c.windows &= c.staged;
    if (!is_possible(m, c)) return true;
    if (c.staged || !c.stages.empty()) forget_stages(c);
    c.cycles = m.score(c);
    if (!std::isfinite(c.cycles) || (c.staged && !m.place_stages(c, cores))) return true;
    if (!c.staged) {
      c.order = m.best_order(c);
      c.cycles = std::max(c.cycles, m.traffic(c, CostModel::lane_mask(c), c.blocks > 1));
    }
    c.cycles += m.accumulating(c);
    return false;
  });
}

}  // namespace tg
