/// \file The loops around a register tile: their order, blocks of a reduction, and where staged operands are filled.
#include <algorithm>
#include <cmath>

#include "tinygrad/codegen/cost/cost_model.h"

namespace tg {
namespace {
using Mask = CostModel::Mask;
using Access = CostModel::Access;

/// Chooses the loops in which staged operands are filled.
class StagePlacement {
 public:
  StagePlacement(const CostModel& model, Candidate& candidate)
      : m_(model), c_(candidate), lane_(CostModel::lane_mask(candidate)) {}
  bool place(int cores);

 private:
  bool is_staged(size_t o) const { return c_.staged >> o & 1; }
  bool has_lanes(size_t o) const { return (m_.operands[o].mask & lane_) != 0; }
  bool is_window(size_t o) const { return CostModel::is_window(c_, static_cast<int>(o)); }
  double trips(int axis) const { return m_.trips(c_, static_cast<size_t>(axis)); }
  static void append(std::vector<int>& to, const std::vector<int>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  void place_covered(const CostModel::Cover& covered);
  void sort_loops(Mask inside_window);
  bool panels_share_loops() const;
  void cut_reduction();
  int64_t blocks_of(int axis) const;
  void group_panels(int cores);
  double broadcast_bytes() const;
  void hold_rows();

  const CostModel& m_;
  Candidate& c_;
  const Mask lane_;
  std::vector<int> outer_, inner_, sliding_, rest_;  // loops of the panels, inside of them, of windows; no loops
  double bytes_ = 0;                                 // of scratch memory that is resident
  int panels_at_ = -1;                               // the innermost loop around the panels with lanes
  int all_panels_ = -1;                              // the axis of all panels at once, inside of everything else
};

void StagePlacement::place_covered(const CostModel::Cover& covered) {
  std::vector<int> around, inside, rest;
  for (size_t i = 0; i < m_.size.size(); i++)
    if (!m_.is_reduce[i] && m_.trips(c_, i) > 1 && covered.outer >> i & 1) c_.order.push_back(static_cast<int>(i));
  const int panels_at = c_.order.empty() ? -1 : c_.order.back();
  for (size_t i : m_.far_first(c_))
    if (!(covered.outer >> i & 1))
      (m_.trips(c_, i) <= 1 ? rest : covered.whole >> i & 1 ? inside : around).push_back(static_cast<int>(i));
  append(c_.order, around);
  const int windows_at = c_.order.empty() ? -1 : c_.order.back();
  append(c_.order, inside);
  append(c_.order, rest);
  c_.rows_axis = covered.rows_axis;
  c_.rows = covered.rows;
  c_.stages_outside = panels_at;
  c_.filling = m_.pack_cycles(c_, lane_).filling;
  for (size_t o = 0; o < m_.operands.size(); o++)
    if (is_staged(o)) c_.stages.push_back({is_window(o) ? windows_at : panels_at, static_cast<int>(o)});
}

/// Puts loops of the panels outside, others inside, so that each panel is filled once.
void StagePlacement::sort_loops(Mask inside_window) {
  Mask first = 0;
  for (size_t o = 0; o < m_.operands.size(); o++)
    if (is_staged(o) && has_lanes(o)) {
      first |= m_.operands[o].mask;
      bytes_ +=
          is_window(o) ? m_.window(m_.operands[o], c_, lane_, inside_window) : m_.scratch(m_.operands[o], c_, lane_);
    }
  for (size_t i = 0; i < m_.size.size(); i++)
    if (!m_.is_reduce[i])
      (m_.trips(c_, i) <= 1     ? rest_
       : inside_window >> i & 1 ? sliding_
       : first >> i & 1         ? outer_
                                : inner_)
          .push_back(static_cast<int>(i));
  std::stable_partition(outer_.begin(), outer_.end(), [&](int a) { return !(lane_ >> a & 1); });
}

/// Returns false for lanes along what two panels have in common, a batch: whichever loops are outside, one of them
/// would be filled again in each of them.
bool StagePlacement::panels_share_loops() const {
  for (size_t o = 0; o < m_.operands.size(); o++)
    if (is_staged(o) && has_lanes(o))
      for (int a : outer_)
        if (!(m_.operands[o].mask >> a & 1)) return false;
  return true;
}

/// Runs the longest reduce loop in blocks when a panel is too large.
void StagePlacement::cut_reduction() {
  if (bytes_ <= m_.longest_panel(c_, lane_) * m_.rates.panel_slack || m_.lane_windows(c_, lane_) || !m_.blocks) return;
  int longest = -1;
  for (size_t i = 0; i < m_.size.size(); i++)
    if (m_.is_reduce[i] && !(lane_ >> i & 1) && (longest < 0 || m_.size[i] > m_.size[static_cast<size_t>(longest)]))
      longest = static_cast<int>(i);
  const int64_t parts = longest < 0 ? 1 : blocks_of(longest);
  if (parts <= 1) return;
  c_.block_axis = longest;
  c_.blocks = parts;
  bytes_ /= static_cast<double>(parts);
}

/// Returns the smallest number of blocks whose panels are short enough; 1 where a block is too short for reading and
/// writing the outputs once more: the loops inside of it count as well.
int64_t StagePlacement::blocks_of(int axis) const {
  const double most = m_.longest_panel(c_, lane_) * m_.rates.panel_slack;
  const int64_t n = m_.size[static_cast<size_t>(axis)] / c_.tile[static_cast<size_t>(axis)];
  auto parts = static_cast<int64_t>(bytes_ / most);
  while (parts < n && (parts < 1 || n % parts || bytes_ / static_cast<double>(parts) > most)) parts++;
  parts = std::min(parts, n);
  auto iterations = static_cast<double>(n / std::max<int64_t>(parts, 1));
  for (size_t i = 0; i < m_.size.size(); i++)
    if (m_.is_reduce[i] && static_cast<int>(i) != axis) iterations *= m_.trips(c_, i);
  return iterations < m_.rates.min_panel_trips ? 1 : parts;
}

/// Keeps several panels at once, so that what is not staged comes from far away less often.
void StagePlacement::group_panels(int cores) {
  panels_at_ = outer_.empty() ? -1 : outer_.back();
  if (panels_at_ < 0 || inner_.empty() || m_.lane_windows(c_, lane_)) return;
  const int last = panels_at_;
  const auto n = static_cast<int64_t>(trips(last));
  const int64_t resident = m_.resident_panels(c_, lane_);
  // All of them, where they need not be shared out: the other operand is packed once.
  if (cores == 1 && m_.packs_again(c_, lane_) && resident == n && bytes_ * static_cast<double>(n) <= m_.l2 / 2) {
    all_panels_ = last;
    bytes_ *= static_cast<double>(n);
    outer_.pop_back();
    panels_at_ = outer_.empty() ? -1 : outer_.back();
    return;
  }
  double others = 1;
  for (int a : outer_)
    if (a != last) others *= trips(a);
  for (int64_t k = resident; k > 1; k--) {
    const double left = others * static_cast<double>(n / k);
    if (n % k || k == n || bytes_ * static_cast<double>(k) > m_.l2 / 2) continue;
    if (left < 4 * cores && static_cast<int64_t>(left) % cores) continue;
    c_.split_axis = last;
    c_.split = k;
    return;
  }
}

/// Returns the bytes of operands without lanes.
double StagePlacement::broadcast_bytes() const {
  double bytes = bytes_;
  for (size_t o = 0; o < m_.operands.size(); o++) {
    if (!is_staged(o) || has_lanes(o)) continue;
    const CostModel::Operand& p = m_.operands[o];
    bytes += (is_window(o) ? m_.window(p, c_, lane_, 0) : m_.scratch(p, c_, lane_)) /
             static_cast<double>(std::max<int64_t>(c_.blocks, 1)) *
             (c_.split_axis >= 0 && p.mask >> c_.split_axis & 1 ? static_cast<double>(c_.split) : 1);
  }
  return bytes;
}

/// Makes a panel without lanes that memory crosses hold several steps of its axis: with one, short runs far apart are
/// read; several make whole lines of them.
void StagePlacement::hold_rows() {
  if (inner_.empty() || c_.windows) return;
  const auto i = static_cast<size_t>(inner_.back());
  const auto n = static_cast<int64_t>(m_.trips(c_, i));
  for (const Access& a : m_.accesses) {
    if (c_.rows || !CostModel::is_staged(c_, a.operand) || has_lanes(static_cast<size_t>(a.operand))) continue;
    if (!(a.mask >> i & 1) || a.nonlinear >> i & 1 || a.stride[i] != 1 ||
        static_cast<double>(c_.tile[i] * a.itemsize) >= MachineRates::kLine)
      continue;
    const double one = m_.scratch(m_.operands[static_cast<size_t>(a.operand)], c_, lane_) /
                       static_cast<double>(std::max<int64_t>(c_.blocks, 1));
    for (int64_t k : {32, 16, 8, 4, 2})
      if (n % k == 0 && n > k && bytes_ + one * static_cast<double>(k - 1) <= m_.l2 * m_.rates.staged_share) {
        c_.rows_axis = inner_.back();
        c_.rows = k;
        break;
      }
  }
}

bool StagePlacement::place(int cores) {
  const Mask inside_window = m_.window_inner_axes(c_, lane_);
  if (const CostModel::Cover covered = m_.cover(c_, lane_); covered.usable) {
    place_covered(covered);
    return true;
  }
  sort_loops(inside_window);
  if (!panels_share_loops()) return false;
  cut_reduction();
  if (bytes_ > m_.l2 / 2) return false;
  group_panels(cores);
  bytes_ = broadcast_bytes();
  if (bytes_ > m_.l2) return false;
  hold_rows();
  c_.order = outer_;
  append(c_.order, inner_);
  if (all_panels_ >= 0) c_.order.push_back(all_panels_);
  append(c_.order, sliding_);
  append(c_.order, rest_);
  c_.stages_outside = panels_at_;
  c_.filling = m_.pack_cycles(c_, lane_).filling;
  const int inside = inner_.empty() ? panels_at_ : inner_.back();
  for (size_t o = 0; o < m_.operands.size(); o++)
    if (is_staged(o)) c_.stages.push_back({has_lanes(o) ? panels_at_ : inside, static_cast<int>(o)});
  return true;
}

/// Chooses the blocks in which a reduction runs around the output loops, so that its operands stay in the cache.
class Blocking {
 public:
  Blocking(const CostModel& model, const Candidate& candidate, int thread);
  std::pair<int, int64_t> best() const;

 private:
  int64_t longest_block(size_t axis, double inner) const;

  const CostModel& m_;
  const Candidate& c_;
  const Mask lane_;
  std::vector<std::pair<Mask, double>> reused_;  // operands that the inner loops use more than once: axes, bytes
  bool crowded_ = false;                         // strides reach few sets of the cache
  double panels_ = 0;                            // bytes that one place reads
};

Blocking::Blocking(const CostModel& model, const Candidate& candidate, int thread)
    : m_(model), c_(candidate), lane_(CostModel::lane_mask(candidate)) {
  for (const Access& a : m_.accesses) {
    if (a.store) continue;
    const double crowding = m_.l2 / std::max(m_.capacity(a, c_, lane_), 1.0);
    crowded_ |= crowding > 1;
    double streamed = m_.panel(a, c_, lane_) * crowding;  // without reuse
    panels_ += streamed / (crowding > 1 ? 2 : 1);
    Mask inner_loops = 0;
    for (size_t i = 0; i < m_.size.size(); i++)
      if (!m_.is_reduce[i] && static_cast<int>(i) != thread && m_.trips(c_, i) > 1) {
        inner_loops |= Mask{1} << i;
        if (a.mask >> i & 1) streamed *= m_.trips(c_, i);
      }
    // Axes that slide over each other touch the same bytes; an operand that every inner loop moves along streams by.
    const double bytes = m_.panel(a, c_, lane_, inner_loops) * crowding;
    if (bytes < m_.rates.reused_part * streamed || (inner_loops & ~a.mask)) reused_.emplace_back(a.mask, bytes);
  }
}

/// Returns the longest block whose operands stay in the cache while all outputs use them, better in the first level:
/// outputs are read and written once more per block. 0: there is none.
int64_t Blocking::longest_block(size_t axis, double inner) const {
  const int64_t steps = m_.size[axis] / c_.tile[axis];
  double fixed = 0, per_step = 0;
  for (const auto& [mask, bytes] : reused_)
    (mask >> axis & 1 ? per_step : fixed) += bytes / (mask >> axis & 1 ? static_cast<double>(steps) : 1);
  const MachineRates& r = m_.rates;
  int64_t far = 0, near = 0;
  for (int64_t b = 1; b < steps; b++) {
    const double bytes = fixed + per_step * static_cast<double>(b), iterations = static_cast<double>(b) * inner;
    if (steps % b || iterations < r.min_block_trips) continue;
    if (bytes < (crowded_ ? r.crowded_block_share : r.block_share) * m_.l2) far = b;
    if (bytes < r.near_block * m_.l1 && iterations >= r.min_near_trips) near = b;
  }
  return near ? near : far;
}

std::pair<int, int64_t> Blocking::best() const {
  std::pair<int, int64_t> best{-1, 0};
  if (panels_ < m_.l2 / 4) return best;  // the operands of one place stay in the cache as it is
  double length = 0;                     // iterations of the best block
  for (size_t r = 0; r < m_.size.size(); r++) {
    if (!m_.is_reduce[r] || m_.size[r] == 0 || lane_ >> r & 1) continue;
    double inner = 1;
    for (size_t i = 0; i < m_.size.size(); i++)
      if (m_.is_reduce[i] && i != r) inner *= m_.trips(c_, i);
    const int64_t b = longest_block(r, inner);
    if (b && static_cast<double>(b) * inner > length) {
      best = {static_cast<int>(r), m_.size[r] / c_.tile[r] / b};
      length = static_cast<double>(b) * inner;
    }
  }
  return best;
}

/// Sorts loops of a kernel without reductions: along memory, as it is written.
void sort_by_stores(const CostModel& m, std::vector<int>& loops) {
  auto stride = [&](int i) {
    int64_t k = 0;
    for (const Access& a : m.accesses)
      if (a.store) k = std::max(k, std::abs(a.stride[static_cast<size_t>(i)]));
    return k;
  };
  std::stable_sort(loops.begin(), loops.end(), [&](int x, int y) { return stride(x) > stride(y); });
}

/// Returns the bytes from beyond the second level cache when `loops` nest in this order.
double bytes_in_order(const CostModel& m, const Candidate& c, Mask lane, const std::vector<int>& loops) {
  double bytes = 0;
  for (const Access& a : m.accesses) {
    // The part of the operand that one step of the output loops reads comes once for each step of the loops down to
    // the innermost it depends on.
    const double panel = m.panel(a, c, lane);
    size_t last = 0;
    for (size_t i = 0; i < loops.size(); i++)
      if (a.mask >> loops[i] & 1) last = i + 1;
    if (panel > m.l2 / 2) last = loops.size();
    double fetches = 1;
    for (size_t i = 0; i < last; i++) fetches *= m.trips(c, static_cast<size_t>(loops[i]));
    bytes += panel * fetches;
  }
  return bytes;
}
}  // namespace

bool CostModel::place_stages(Candidate& c, int cores) const { return StagePlacement(*this, c).place(cores); }

std::pair<int, int64_t> CostModel::blocking(const Candidate& c, int thread) const {
  return blocks ? Blocking(*this, c, thread).best() : std::pair<int, int64_t>{-1, 0};
}

std::vector<int> CostModel::best_order(const Candidate& c) const {
  std::vector<int> loops, fixed;
  for (size_t i = 0; i < size.size(); i++)
    if (!is_reduce[i]) (trips(c, i) > 1 ? loops : fixed).push_back(static_cast<int>(i));
  std::vector<int> best = loops;
  if (reduces.empty()) {
    sort_by_stores(*this, best);
  } else if (loops.size() >= 2 && loops.size() <= 5) {  // 120 orders at most
    constexpr double kClearlyLess = 0.99;
    double least = INFINITY;
    do {
      const double bytes = bytes_in_order(*this, c, lane_mask(c), loops);
      if (bytes >= least * kClearlyLess) continue;
      least = bytes;
      best = loops;
    } while (std::next_permutation(loops.begin(), loops.end()));
  }
  best.insert(best.end(), fixed.begin(), fixed.end());
  return best;
}

}  // namespace tg
