/// \file What accesses move between caches and memory: bytes that are touched, how often they come, and how well they
/// stream.
#include <cmath>

#include "tinygrad/codegen/cost/cost_model.h"

namespace tg {
namespace {
using Mask = CostModel::Mask;
using Access = CostModel::Access;

/// The traffic of one candidate, access by access.
class Traffic {
 public:
  Traffic(const CostModel& model, const Candidate& candidate, Mask lane);
  double bytes(const Access& a, bool in_blocks) const;

 private:
  bool is_linear(const Access& a, size_t i) const { return a.mask >> i & 1 && !(a.nonlinear >> i & 1); }
  double panels_around(const Access& a) const;
  double jumps(const Access& a) const;
  bool is_stream(const Access& a, size_t inner) const;
  double shared_sets(const Access& a, double moved) const;
  bool is_rows_of_bytes(const Access& a) const;
  bool is_lanes_of_rows(const Access& a) const;

  const CostModel& m_;
  const Candidate& c_;
  const Mask lane_;
  Mask around_panel_ = 0;
  double resident_ = 1;
};

Traffic::Traffic(const CostModel& model, const Candidate& candidate, Mask lane)
    : m_(model), c_(candidate), lane_(lane) {
  if (!c_.staged) return;
  for (size_t o = 0; o < m_.operands.size(); o++)
    if (c_.staged >> o & 1 && m_.operands[o].mask & lane) around_panel_ |= m_.operands[o].mask & ~m_.reduce_axes;
  around_panel_ &= ~m_.window_inner_axes(c_, lane);
  resident_ = static_cast<double>(m_.resident_panels(c_, lane));
}

/// Returns how many panels are filled while an access that is not staged comes once.
double Traffic::panels_around(const Access& a) const {
  double panels = 1;
  for (size_t i = 0; i < m_.size.size(); i++)
    if (around_panel_ >> i & 1 && !(m_.lane_windows(c_, lane_) && a.mask >> i & 1)) panels *= m_.trips(c_, i);
  return panels;
}

/// Returns true when elements that follow each other are adjacent or a few bytes apart: bytes in blocks with their
/// scales within a line, one element at a time otherwise.
bool Traffic::is_stream(const Access& a, size_t inner) const {
  const bool nonlinear = a.nonlinear >> inner & 1;
  const int64_t stride = std::abs(a.stride[inner]);
  if (nonlinear ? a.shared_lane_axes >> inner & 1 : stride && stride <= m_.rates.shuffle_reach) return true;
  const int64_t step = nonlinear ? MachineRates::kPage : stride * a.itemsize;
  if (a.itemsize == 1) return static_cast<double>(step) <= MachineRates::kLine;
  return step <= (!a.store && !(a.mask & lane_) ? m_.rates.stream_step : 0);
}

/// Returns the factor for short contiguous runs with a jump after each: pages and prefetchers suffer.
double Traffic::jumps(const Access& a) const {
  int inner = -1;
  for (size_t i : m_.nest(c_))
    if (a.mask >> i & 1 && m_.trips(c_, i) > 1) inner = static_cast<int>(i);
  if (inner < 0 || is_stream(a, static_cast<size_t>(inner))) return 1;
  double run = a.itemsize;
  // A store through x / c and x % c mostly goes on where it was.
  for (size_t i = 0; i < m_.size.size(); i++)
    if (a.mask >> i & 1 && (a.stride[i] == 1 || (a.store && a.nonlinear >> i & 1)))
      run *= std::min(CostModel::step(c_, lane_, i), m_.elements(i));
  return 1 + m_.rates.jump_bytes / std::max(run, m_.reduces.empty() ? m_.rates.run_jump : m_.rates.run_jump_products);
}

/// Returns the bytes moved where a step touches a part of several rows: more of them than a block has share sets of the
/// cache.
double Traffic::shared_sets(const Access& a, double moved) const {
  double rows = 1, part = a.itemsize;
  for (size_t i = 0; m_.reduces.empty() && i < m_.size.size(); i++) {
    if (!is_linear(a, i)) continue;
    if (a.stride[i] == 1) part *= CostModel::step(c_, lane_, i);
    else if (static_cast<double>(std::abs(a.stride[i]) * a.itemsize) >= MachineRates::kLine)
      rows *= CostModel::step(c_, lane_, i);
  }
  const double spread = std::min(1.0, (rows - 1) / m_.rates.row_streams);
  if (a.store) moved *= 1 + m_.rates.row_part / part * spread * spread;
  if (part < m_.rates.narrow_part) moved *= std::max(1.0, rows / m_.rates.narrow_rows);
  return moved;
}

/// Returns true for streams of bytes, each less than a line a step: rows one after another with their blocks unrolled
/// are not fetched ahead.
bool Traffic::is_rows_of_bytes(const Access& a) const {
  if (a.itemsize != 1 || a.store || m_.reduces.empty()) return false;
  for (size_t i = 0; i < m_.size.size(); i++)
    if (is_linear(a, i) && !m_.is_reduce[i] && c_.tile[i] > 1 &&
        static_cast<double>(std::abs(a.stride[i])) > MachineRates::kLine)
      return true;
  return false;
}

/// Returns true for a sum along memory whose lanes are rows: each is a stream of its own, less than a line a step.
bool Traffic::is_lanes_of_rows(const Access& a) const {
  if (a.store || m_.reduces.empty()) return false;
  for (const CostModel::Reduce& r : m_.reduces)
    if (r.mul || r.dot) return false;  // factors are reused
  const int64_t stride = CostModel::lane_stride(a, c_);
  if (static_cast<double>(stride * a.itemsize) < MachineRates::kLine) return false;
  for (size_t i = 0; i < m_.size.size(); i++)
    if (is_linear(a, i) && m_.is_reduce[i] && a.stride[i] == 1) return true;
  return false;
}

double Traffic::bytes(const Access& a, bool in_blocks) const {
  double total = a.itemsize, fetches = 1, all = 1, within = 1;
  for (size_t i = 0; i < m_.size.size(); i++) {
    const bool in = a.mask >> i & 1;
    if (in) total *= m_.elements(i);
    if (m_.is_reduce[i] || !(a.scope >> i & 1)) continue;
    const double t = m_.trips(c_, i);
    all *= t;
    if (!in) continue;
    fetches *= t;
    within *= m_.elements(i) / (t * CostModel::step(c_, lane_, i));  // what is beyond the end is not read
  }
  const double sets = m_.capacity(a, c_, lane_),
               room = sets < m_.l2 ? std::max(sets, 1.0) * m_.rates.set_share : m_.l2 / 2;
  if (total <= room || m_.is_reread(a, c_, lane_, total)) return 0;
  const double parts = c_.blocks > 1 && a.mask >> c_.block_axis & 1 ? static_cast<double>(c_.blocks) : 1,
               bytes = m_.panel(a, c_, lane_) / parts;
  // A panel that fits is fetched once per place; one that does not, in every iteration around it.
  double moved = bytes * parts * within * (bytes > room ? all : fetches);
  if (c_.staged && !a.store) moved = total * std::ceil(panels_around(a) / resident_);
  moved = shared_sets(a, moved * jumps(a));
  if (is_rows_of_bytes(a)) moved *= m_.rates.byte_rows;
  if (is_lanes_of_rows(a)) moved *= m_.rates.lane_rows;
  // With the reduction in blocks an operand comes once for a few output loops only.
  if (in_blocks)
    moved = std::min(moved, m_.rates.block_reread * total *
                                std::min(m_.l2 / std::max(2 * room, 1.0), m_.rates.block_reread_crowded));
  return moved;
}
}  // namespace

double CostModel::traffic(const Candidate& c, Mask lane, bool in_blocks) const {
  const Traffic traffic(*this, c, lane);
  double cycles = 0;
  for (const Access& a : accesses)
    if (!is_staged(c, a.operand) && !a.spilled) cycles += traffic.bytes(a, in_blocks) / rates.memory_bandwidth;
  return cycles;
}

double CostModel::refills(const Candidate& c, Mask lane) const {
  if (reduces.empty()) return 0;
  // Called for each candidate: memory for the lists is reused.
  thread_local std::vector<const MemoryWalk*> walks;
  thread_local LoopNest loops;
  walks.clear();
  loops.size.clear();
  loops.step.clear();
  loops.trips.clear();
  loops.nest = nest(c);
  for (const Access& a : accesses)
    if (!is_staged(c, a.operand) && !a.spilled) walks.push_back(&a);
  for (size_t i = 0; i < size.size(); i++) {
    loops.size.push_back(elements(i));
    loops.trips.push_back(trips(c, i));
    loops.step.push_back(step(c, lane, i));
  }
  constexpr double kSets = MachineRates::kPage / MachineRates::kLine;
  return refill_cycles(
      walks, loops,
      {kSets, l1 / MachineRates::kPage, rates.l1_line, rates.l1_run, rates.l1_far_run, rates.l1_far_latency});
}

double CostModel::panel(const Access& a, const Candidate& c, Mask lane, Mask whole) const {
  double bytes = a.itemsize;
  int64_t done[64];
  size_t n_done = 0;
  for (size_t i = 0; i < size.size(); i++) {
    if (!(a.mask >> i & 1)) continue;
    const int64_t stride = a.nonlinear >> i & 1 ? -1 - static_cast<int64_t>(i) : std::abs(a.stride[i]);
    if (stride == 0 || std::find(done, done + n_done, stride) != done + n_done) continue;
    done[n_done++] = stride;
    // Axes of one stride slide over each other: y + ky, or y - ky.
    double extent = 1;
    for (size_t k = i; k < size.size(); k++) {
      if (!(a.mask >> k & 1) || (a.nonlinear >> k & 1) != (a.nonlinear >> i & 1) ||
          (k != i && std::abs(a.stride[k]) != stride))
        continue;
      extent += (is_reduce[k] || whole >> k & 1 ? elements(k) : step(c, lane, k)) - 1;
    }
    bytes *= extent;
  }
  return bytes;
}

double CostModel::contiguous_bytes(const Access& a, const Candidate& c, Mask lane) const {
  double run = 1;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1)
      run += (is_reduce[i] ? elements(i) : step(c, lane, i)) - 1;
  return run * a.itemsize;
}

double CostModel::capacity(const Access& a, const Candidate& c, Mask lane) const {
  int64_t longest = 0, jump = 0;
  for (size_t i = 0; i < size.size(); i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && is_reduce[i] && size[i] > longest && a.stride[i]) {
      longest = size[i];
      jump = std::abs(a.stride[i]);
    }
  constexpr double kLine = MachineRates::kLine;
  jump *= a.itemsize;
  const double sets = std::min(static_cast<double>(jump & -jump), rates.max_way);
  if (longest < rates.long_stride_count || sets <= kLine) return l2;
  // What lies between two jumps.
  double window = std::ceil(contiguous_bytes(a, c, lane) / kLine) * kLine;
  for (size_t i = 0; i < size.size(); i++) {
    const int64_t stride = a.mask >> i & 1 && !(a.nonlinear >> i & 1) ? std::abs(a.stride[i]) * a.itemsize : 0;
    if (static_cast<double>(stride) >= kLine && stride < jump)
      window *= is_reduce[i] ? static_cast<double>(std::max<int64_t>(size[i], 1)) : static_cast<double>(c.tile[i]);
  }
  return l2 * std::min(1.0, window / sets);
}

bool CostModel::is_reread(const Access& a, const Candidate& c, Mask lane, double total) const {
  for (const Access& b : accesses) {
    if (&b == &a) return false;
    if (b.store || a.store || b.base != a.base || b.nonlinear || a.nonlinear) continue;
    double other = b.itemsize;
    bool same = true;
    for (size_t i = 0; i < size.size(); i++) {
      if (b.mask >> i & 1) other *= static_cast<double>(std::max<int64_t>(size[i], 1));
      if (!is_reduce[i] && a.mask >> i & 1 && b.mask >> i & 1) same &= a.stride[i] == b.stride[i];
    }
    // The row: of the reduce loops, or of the output loops that only one of the two is in.
    if (same && other == total && (a.mask != b.mask) && panel(b, c, lane, b.mask & ~a.mask) <= l2 / 2) return true;
  }
  return false;
}

double CostModel::accumulating(const Candidate& c) const {
  if (c.blocks <= 1) return 0;
  const Mask lane = lane_mask(c);
  double cycles = 0;
  for (const Access& a : accesses) {
    if (!a.store) continue;
    double n = 1;
    bool scattered = false;
    for (size_t i = 0; i < size.size(); i++) {
      if (!(a.mask >> i & 1) || is_reduce[i]) continue;
      n *= elements(i);
      scattered |= lane >> i & 1 && (a.nonlinear >> i & 1 || std::abs(a.stride[i]) > rates.shuffle_reach);
    }
    cycles += n * (scattered ? rates.accumulate_scattered : a.itemsize * 2.0 / rates.accumulate_bandwidth);
  }
  return static_cast<double>(c.blocks - 1) * cycles;
}

}  // namespace tg
