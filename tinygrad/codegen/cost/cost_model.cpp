/// \file Predicted cycles of a candidate: issue, latency, registers, loads and stores by their form, loops, caches.
#include "tinygrad/codegen/cost/cost_model.h"

#include <array>
#include <bit>
#include <cmath>

namespace tg {
namespace {
using Mask = CostModel::Mask;
using Access = CostModel::Access;
using Operand = CostModel::Operand;
using Reduce = CostModel::Reduce;
constexpr size_t kFewDomains = 32;  // more are rare

/// A candidate while it is scored. Output axes nest outside, in axis order, reduce axes inside; a node runs once per
/// iteration of the loops around it down to the innermost it depends on.
class Evaluation {
 public:
  Evaluation(const CostModel& model, const Candidate& candidate);
  double cycles(double bound);
  CostAccount account();

 private:
  // How often nodes run.
  double instances(Mask m) const;
  double iterations(Mask m, Mask scope) const;
  double executions(size_t domain) const { return executions_[domain]; }
  double instances_of(size_t domain) const { return instances_[domain]; }
  double iterations_of(size_t domain) const { return executions_[domain] / instances_[domain]; }
  double vectors(Mask m, int bytes) const { return m & lane_ ? m_.vectors(c_, bytes) : 1.0; }
  double distinct(const Access& a) const;
  double distinct_loads(const Access& a) const;
  bool is_staged(const Access& a) const { return CostModel::is_staged(c_, a.operand); }
  bool is_removed(const CostModel::Alu& a) const;
  bool is_inner(Mask m) const { return inner_ >= 0 && m >> inner_ & 1; }
  bool has_lane(size_t axis) const { return lane_ >> axis & 1; }
  // The terms, in the order of the sums they add to.
  void count_body();
  void count_executions();
  void issue();
  void reduce(const Reduce& r);
  void latency(const Reduce& r, double chains, double per);
  double live_registers(const Reduce& r, double accumulators, double chains, double per) const;
  double operand_registers(const Reduce& r, double each, double accumulators, double per) const;
  struct MaskCost {
    double registers = 0, branches = 0;
  };
  MaskCost masks_in_reduce(Mask axes) const;
  void read_scratch(size_t o);
  void read_window(size_t o, double loads);
  void access(const Access& a);
  bool streams_from_memory(const Access& a) const;
  void clamped_rows(const Access& a, double each);
  double lane_access(const Access& a) const;
  double vector_access(const Access& a, int64_t stride, double w) const;
  double strided_vector(const Access& a, int64_t stride) const;
  double masked_vector(const Access& a, int64_t stride, double w, double each) const;
  double tail(const Access& a, bool shuffled, double w, double each) const;
  bool is_aligned(const Access& a) const;
  bool is_interleaved(const Access& a, int64_t stride) const;
  double scalar_access(const Access& a) const;
  void loops();
  void streams();
  double overlapping(double moving) const { return std::max({compute_ + chains_, memory_, near_, moving}); }
  double shared_issue() const;
  double waits() const;
  double total(double moving) const;

  const CostModel& m_;
  const Candidate& c_;
  const MachineRates& rates_;
  const size_t axes_;
  const Mask lane_;
  Mask unrolled_ = 0;
  int inner_ = -1;  // the innermost loop
  bool covered_ = false;
  std::array<double, 64> trips_;
  std::array<double, 2 * kFewDomains> few_;
  std::vector<double> many_;
  double *instances_, *executions_;
  // Cycles by what they wait for.
  double body_ = 0;                  // instructions of an iteration
  double after_ = 0;                 // instructions after the loops over terms, which each tile runs once
  double compute_ = 0, chains_ = 0;  // arithmetic: issue, and latency beyond it
  double memory_ = 0, near_ = 0;     // loads and stores: issue, and bytes from the second level
  double strided_ = 0;               // strided vectors of what streams from memory: nothing overlaps with them
  double spills_ = 0;                // registers that are not there
  double loops_ = 0, exits_ = 0;     // iterations, and ends of short loops
  double filling_ = 0;               // scratch memory
  double moving_ = 0;                // between caches, and from memory
  double spread_ = 1;                // factor: rows side by side
  bool brief_ = true;                // all reductions are short
  bool products_ = false;
};

Evaluation::Evaluation(const CostModel& model, const Candidate& candidate)
    : m_(model), c_(candidate), rates_(model.rates), axes_(model.size.size()), lane_(CostModel::lane_mask(candidate)) {
  const size_t domains = m_.domains.size();
  if (domains > kFewDomains) many_.resize(2 * domains);
  instances_ = domains > kFewDomains ? many_.data() : few_.data();
  executions_ = instances_ + domains;
  for (size_t i = 0; i < axes_; i++) {
    trips_[i] = m_.trips(c_, i);
    unrolled_ |= trips_[i] == 1 ? Mask{1} << i : 0;
  }
  for (size_t i : m_.nest(c_))
    if (trips_[i] > 1) inner_ = static_cast<int>(i);
  products_ = std::any_of(m_.reduces.begin(), m_.reduces.end(), [](const Reduce& r) { return r.mul; });
}

double Evaluation::instances(Mask m) const {
  double n = 1;
  for (; m; m &= m - 1) n *= static_cast<double>(c_.tile[static_cast<size_t>(std::countr_zero(m))]);
  return n;
}

double Evaluation::iterations(Mask m, Mask scope) const {
  double n = 1, outside = 1;
  for (size_t i : m_.nest(c_)) {
    if (scope >> i & 1) outside *= trips_[i];
    if (m >> i & 1 && trips_[i] > 1) n = outside;
  }
  return n;
}

/// Returns true where the op is not in the loop: a part of what is staged, or a mask that is known at compile time.
bool Evaluation::is_removed(const CostModel::Alu& a) const {
  if (CostModel::is_staged(c_, a.operand) || CostModel::is_window(c_, a.window)) return true;
  return a.predicate_axes && !(a.predicate_axes & lane_) && (a.predicate_axes & ~unrolled_) == 0;
}

/// Returns the loads of one iteration: unrolled steps along axes of one stride (y and ky) slide over each other.
double Evaluation::distinct(const Access& a) const {
  double n = 1;
  Mask done = 0;
  auto step = [&](size_t k) { return a.nonlinear >> k & 1 ? 0 : a.stride[k] * (has_lane(k) ? c_.lanes : 1); };
  for (size_t i = 0; i < axes_; i++) {
    if (!(a.mask >> i & 1) || c_.tile[i] == 1 || done >> i & 1) continue;
    const int64_t own = step(i);
    int64_t extent = c_.tile[i];
    for (size_t k = i + 1; k < axes_ && own && !a.store; k++)
      if (a.mask >> k & 1 && !(done >> k & 1) && std::abs(step(k)) == std::abs(own)) {
        extent += c_.tile[k] - 1;
        done |= Mask{1} << k;
      }
    n *= static_cast<double>(extent);
  }
  return n;
}

/// Returns the same where taps that are all unrolled share what they read with each other, else all instances.
double Evaluation::distinct_loads(const Access& a) const {
  return (a.mask & m_.reduce_axes & ~unrolled_) == 0 ? distinct(a) : instances_of(a.domain);
}

/// Counts the instructions of one iteration: what ops become, a polynomial or rounds of threefry.
void Evaluation::count_body() {
  for (size_t i = 0; i < m_.domains.size(); i++) instances_[i] = instances(m_.domains[i].mask);
  const Mask looped = m_.reduce_axes & ~unrolled_;
  for (const CostModel::Alu& a : m_.alu)
    if (!is_removed(a))
      (looped == 0 || a.mask & looped ? body_ : after_) += instances_of(a.domain) * std::max(1.0, a.cost);
  for (const Reduce& r : m_.reduces) body_ += instances_of(r.domain);
  for (size_t o = 0; o < m_.operands.size(); o++)
    if (c_.staged >> o & 1) body_ += instances_of(m_.operands[o].domain) + rates_.staged_operand;
  for (const Access& a : m_.accesses)
    if (!is_staged(a)) body_ += distinct_loads(a);
}

void Evaluation::count_executions() {
  for (size_t i = 0; i < m_.domains.size(); i++)
    executions_[i] = iterations(m_.domains[i].mask, m_.domains[i].scope) * instances_[i];
}

void Evaluation::issue() {
  for (const CostModel::Alu& a : m_.alu)
    if (!is_removed(a))
      compute_ += executions(a.domain) * (a.cost + (a.mask & lane_ ? 0 : a.scalar_penalty)) * vectors(a.mask, a.bytes) *
                  rates_.issue;
}

/// Adds what a reduction takes: its operations, their latency, accumulators in registers, their end.
void Evaluation::reduce(const Reduce& r) {
  const double runs = executions(r.domain), all = instances_of(r.domain);
  const double fold = rates_.fold_lanes * std::log2(static_cast<double>(c_.lanes));
  compute_ += runs * vectors(r.value | r.reduced, r.bytes) * rates_.issue * (r.mul ? 0 : 1);
  double trips = 1;
  for (size_t i = 0; i < axes_; i++)
    if (r.reduced >> i & 1) trips *= trips_[i];
  const Mask results = r.value & ~r.reduced;
  const double accumulators = instances(results);
  if (trips <= 1) {
    if (r.reduced & lane_) chains_ += iterations(results, r.scope) * accumulators * fold;
    return;
  }
  const double per = all / std::max(accumulators, 1.0), iterations = runs / all;
  const double chains = std::clamp(std::floor(rates_.full_chains / accumulators), 1.0, per);
  latency(r, chains, per);
  const double live = live_registers(r, accumulators, chains, per);
  const MaskCost masks = masks_in_reduce(r.value | r.reduced);
  const double usable = m_.registers > 16 ? m_.registers - rates_.spare_registers : m_.registers;
  if (live + masks.registers > usable)
    spills_ +=
        iterations * ((live + masks.registers - usable) * rates_.spill + masks.branches * rates_.branch_over_sums);
  // Setting up, combining chains and folding lanes.
  chains_ += iterations / trips *
             (accumulators * chains * rates_.combine_chain + (r.reduced & lane_ ? accumulators * fold : 0));
}

/// Adds the dependent operations per accumulator and iteration, as far as their issue does not hide them.
void Evaluation::latency(const Reduce& r, double chains, double per) {
  const double all = instances_of(r.domain);
  const double waits = rates_.latency * std::ceil(per / chains),
               issue = all * vectors(r.value | r.reduced, r.bytes) * rates_.issue;
  if (waits > issue) chains_ += iterations_of(r.domain) * (waits - issue);
}

/// Returns the registers of accumulators and operands, without those of masks.
double Evaluation::live_registers(const Reduce& r, double accumulators, double chains, double per) const {
  const double each =
      (r.value | r.reduced) & lane_ ? std::max(1.0, static_cast<double>(c_.lanes) * r.bytes / m_.vector_bytes) : 1;
  double live = accumulators * chains * each + operand_registers(r, each, accumulators, per);
  for (const Reduce& o : m_.reduces)  // sums of dot products run together
    if (&o != &r && o.dot && r.dot) live += instances(o.value & ~o.reduced) * (o.value & lane_ ? each : 1);
  return live;
}

double Evaluation::operand_registers(const Reduce& r, double each, double accumulators, double per) const {
  double sum = 0, most = 0;  // one operand, the largest, can stay in memory
  auto holds = [&](Mask mask, bool masked = false) {
    const double n = instances(mask & ~r.reduced) * (mask & lane_ ? each : 1);
    sum += n;
    most = std::max(most, masked ? 0 : n);  // single elements under masks are no operands in memory
  };
  const Mask axes = r.value | r.reduced;
  for (const Access& a : m_.accesses)
    if (!a.store && (a.mask & r.reduced) && !(a.mask & ~axes) && !is_staged(a))
      holds(a.mask, a.gated && !(a.mask & lane_));
  for (size_t o = 0; o < m_.operands.size(); o++) {
    if (c_.staged >> o & 1) holds(m_.operands[o].mask);
    if (c_.windows >> o & 1 && per > 1) holds(m_.operands[o].mask);  // each tap loads its own
  }
  // Loads that are moved up: the operands of the next step next to those of this one.
  const double next = rates_.hoists_loads && per > 1 && accumulators > 1 ? most : 0;
  return sum - most + rates_.temporaries + next;
}

/// Returns the registers of masks that are being made, and the loads with lanes a few elements apart: each is a branch
/// that the sums live across.
Evaluation::MaskCost Evaluation::masks_in_reduce(Mask axes) const {
  MaskCost cost;
  for (const Access& a : m_.accesses) {
    if (!(a.gate & lane_) || a.mask & ~axes || is_staged(a)) continue;
    const bool strided = std::any_of(c_.lane_axes.begin(), c_.lane_axes.end(), [&](int v) {
      return a.mask >> v & 1 && !(a.nonlinear >> v & 1) && std::abs(a.stride[static_cast<size_t>(v)]) > 1;
    });
    if (strided) {
      cost.registers = std::max(cost.registers, rates_.masks_strided + rates_.mask_per_strided * distinct_loads(a));
      cost.branches += distinct_loads(a);
    } else if (is_inner(a.gate)) cost.registers = std::max(cost.registers, rates_.masks_in_loop);
  }
  return cost;
}

/// Adds the loads of a staged operand.
void Evaluation::read_scratch(size_t o) {
  const Operand& p = m_.operands[o];
  const double loads = executions(p.domain);
  if (CostModel::is_window(c_, static_cast<int>(o))) return read_window(o, loads);
  memory_ += loads * rates_.load * vectors(p.mask, p.bytes);
  if (p.mask & lane_ && m_.scratch(p, c_, lane_) > m_.l1 * rates_.l1_usable)
    near_ += loads * c_.lanes * p.bytes / rates_.l2_bandwidth;  // panels come from the second level cache
}

void Evaluation::read_window(size_t o, double loads) {
  const Operand& p = m_.operands[o];
  // Taps are nowhere aligned: every vector of a line lies across two.
  memory_ += loads * (p.mask & lane_
                          ? vectors(p.mask, p.bytes) *
                                std::min(1.0, rates_.split_window_load + c_.lanes * p.bytes / (2 * MachineRates::kLine))
                          : rates_.load);
  if (covered_)
    near_ += loads / instances_of(p.domain) * m_.step_lines(o, c_) * MachineRates::kLine / rates_.l2_bandwidth;
  double steps = 1;
  for (size_t i = 0; i < axes_; i++)
    if (!m_.is_reduce[i]) steps *= trips_[i];
  if (p.mask & lane_ && m_.window(p, c_, lane_, m_.window_inner_axes(c_, lane_)) > m_.l1 * rates_.l1_usable)
    near_ += steps * m_.window(p, c_, lane_, 0) / rates_.l2_bandwidth;
}

/// Adds the loads or stores of an access.
void Evaluation::access(const Access& a) {
  const double copies = distinct_loads(a), runs = iterations_of(a.domain) * copies;
  clamped_rows(a, runs / copies);
  // Masks beyond the mask registers, where they are made outside of the innermost loop.
  if (a.gate && !is_inner(a.gate) && instances(a.gate) > rates_.mask_registers)
    spills_ += runs / copies * (instances(a.gate) - rates_.mask_registers);
  const double cycles = runs * (a.mask & lane_ ? lane_access(a) : scalar_access(a));
  memory_ += cycles;
  const bool strided = a.mask & lane_ && CostModel::lane_stride(a, c_) > rates_.shuffle_reach;
  if (products_ && strided && !a.store && streams_from_memory(a)) strided_ += cycles;
}

/// Returns true for a factor that is larger than the second level cache and read once: the matrix of a product with a
/// vector. Blocks of its rows keep fewer lines on their way than whole rows do.
bool Evaluation::streams_from_memory(const Access& a) const {
  double bytes = a.itemsize;
  for (size_t i = 0; i < axes_; i++)
    if (a.mask >> i & 1) bytes *= static_cast<double>(std::max<int64_t>(m_.size[i], 1));
    else if (trips_[i] > 1) return false;
  return bytes > m_.l2;
}

/// Adds the rows beyond the end, which are clamped to the last one: each has an address of its own.
void Evaluation::clamped_rows(const Access& a, double each) {
  for (size_t i = 0; i < axes_; i++) {
    if (!(a.mask >> i & 1) || has_lane(i) || c_.tile[i] <= 1 || !m_.size[i]) continue;
    const auto clamped =
        static_cast<double>(std::min(c_.tile[i], static_cast<int64_t>(trips_[i]) * c_.tile[i] - m_.size[i]));
    if (clamped > 0 && !a.store) spills_ += each * clamped * rates_.clamped_row;
  }
}

double Evaluation::scalar_access(const Access& a) const {
  if (a.store) return rates_.store;
  if (!a.gated || !is_inner(a.gate)) return rates_.load;
  // Branches; output axes share them.
  return rates_.scalar_gate +
         rates_.scalar_gate_each * (instances(a.gate | (a.mask & m_.reduce_axes)) - 1) / instances_of(a.domain);
}

double Evaluation::lane_access(const Access& a) const {
  const double w = m_.vectors(c_, a.itemsize);
  const int64_t stride = CostModel::lane_stride(a, c_);
  const bool shuffled = stride > 1 && stride <= rates_.shuffle_reach && !a.store;
  double each = vector_access(a, stride, w);
  if (a.gate & lane_) each = masked_vector(a, stride, w, each);
  each = tail(a, shuffled, w, each);
  // What lies between the lanes is for the neighbouring taps.
  for (size_t i = 0; i < axes_ && shuffled; i++)
    if (m_.is_reduce[i] && a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == 1 && c_.tile[i] > 1)
      each /= static_cast<double>(std::min(c_.tile[i], stride));
  return each;
}

/// Returns the cycles of a vector whose lanes are `stride` apart, `w` vector registers.
double Evaluation::vector_access(const Access& a, int64_t stride, double w) const {
  if (stride == 1)
    return (a.store ? w * rates_.store : rates_.load * w) *
           (is_aligned(a) ? 1 : 1 + std::min(1.0, c_.lanes * a.itemsize / MachineRates::kLine));
  if (stride == 0) return a.store ? w * rates_.store : rates_.load;
  if (stride > 0 && stride <= rates_.shuffle_reach && !a.store)
    return rates_.shuffled_load * static_cast<double>(stride) * w;  // neighbouring vectors and shuffles
  if (stride > 0 && stride <= rates_.shuffle_reach && is_interleaved(a, stride))
    return (rates_.interleaved_store + rates_.interleaved_store * static_cast<double>(stride)) * w;
  return strided_vector(a, stride);
}

/// Returns the cycles of one vector whose lanes stride over memory: columns that are adjacent in memory and unrolled
/// are a block, transposed in registers; else a gather or a scatter.
double Evaluation::strided_vector(const Access& a, int64_t stride) const {
  int64_t columns = 1;
  for (size_t i = 0; i < axes_; i++)
    if (a.mask >> i & 1 && !((a.gate | a.nonlinear) >> i & 1) && a.stride[i] == 1)
      columns = std::max(columns, c_.tile[i]);
  // Lanes whose lines all go to the same set of the first level cache leave it before they are full.
  const bool crowded = a.store && !m_.reduces.empty() && stride * a.itemsize % MachineRates::kPage == 0;
  if (stride > rates_.shuffle_reach && columns > 1)
    return m_.transposed_vector(a.itemsize, c_.lanes, columns, a.store) * (crowded ? rates_.crowded_scatter : 1);
  if (static_cast<double>(stride * a.itemsize) >= MachineRates::kLine)
    return c_.lanes * (a.store ? rates_.scatter_line : rates_.gather_line);
  return c_.lanes * (a.store ? rates_.scatter : rates_.gather) * (m_.gather ? 1 : rates_.emulated_gather);
}

double Evaluation::masked_vector(const Access& a, int64_t stride, double w, double each) const {
  if (stride > rates_.shuffle_reach) return std::max(each, c_.lanes * rates_.masked_gather);
  each += rates_.masked_load * w * static_cast<double>(std::max<int64_t>(stride, 1));
  return stride > 1 && !a.store ? each + rates_.masked_shuffle : each;
}

/// Adds the masks of the last vector of an axis.
double Evaluation::tail(const Access& a, bool shuffled, double w, double each) const {
  for (int v : c_.lane_axes) {
    const auto i = static_cast<size_t>(v);
    if (!(a.mask >> v & 1) || m_.size[i] % (c_.lanes * c_.tile[i]) == 0) continue;
    each += (trips_[i] > 1 ? rates_.tail_in_loop : rates_.tail_unrolled) * w;
    // The last part of an output axis begins earlier, without masks.
    const bool overlaps = !m_.is_reduce[i] && m_.size[i] >= c_.lanes * c_.tile[i];
    if (shuffled && trips_[i] > 1 && !overlaps) each = 2 * each + rates_.shuffled_tail;
  }
  return each;
}

/// Returns true when no vector of the access lies across two cache lines.
bool Evaluation::is_aligned(const Access& a) const {
  constexpr auto kLine = static_cast<int64_t>(MachineRates::kLine);
  bool ok = a.offset * a.itemsize % kLine == 0 && !a.nonlinear;
  for (size_t i = 0; i < axes_ && ok; i++)
    if (a.mask >> i & 1 && trips_[i] * static_cast<double>(c_.tile[i]) > 1)
      ok = a.stride[i] * (has_lane(i) ? c_.lanes : 1) * a.itemsize % kLine == 0;
  return ok;
}

/// Returns true when the unrolled columns fill the gaps between the lanes of a store.
bool Evaluation::is_interleaved(const Access& a, int64_t stride) const {
  int64_t columns = 1;
  for (size_t i = 0; i < axes_; i++)
    if (a.mask >> i & 1 && !(a.nonlinear >> i & 1) && a.stride[i] == columns && columns < stride) columns *= c_.tile[i];
  return columns == stride;
}

/// Counts iterations: each costs its counter and branch. A kernel's loops are those its innermost nodes are in.
void Evaluation::loops() {
  for (size_t k = 0; k < m_.reduces.size(); k++) {
    const Reduce& r = m_.reduces[k];
    if (std::any_of(m_.reduces.begin(), m_.reduces.begin() + static_cast<std::ptrdiff_t>(k),
                    [&](const Reduce& o) { return o.scope == r.scope; }))
      continue;
    const double iterations = iterations_of(r.domain);
    loops_ += iterations;
    // A few iterations altogether: their end is not foreseen, and nothing overlaps with what comes before and after.
    double all = 1, around = 1;
    for (size_t i = 0; i < axes_; i++)
      if (r.reduced >> i & 1) {
        all *= trips_[i];
        around *= static_cast<int>(i) == inner_ ? 1 : trips_[i];
      }
    brief_ &= all <= rates_.short_loop;
    if (all > 1 && all <= rates_.short_loop) exits_ += iterations / all * around * rates_.mispredict;
  }
  for (const Access& a : m_.accesses)
    if (a.store) loops_ += iterations_of(a.domain);
}

/// Finds the factor for rows next to each other: several passes over them keep more in the cache and follow more
/// streams.
void Evaluation::streams() {
  double streams = 1;
  for (const Access& a : m_.accesses) {
    double own = 1, total = a.itemsize;
    for (size_t i = 0; i < axes_; i++) {
      if (!(a.mask >> i & 1)) continue;
      total *= static_cast<double>(std::max<int64_t>(m_.size[i], 1));
      if (!m_.is_reduce[i] && std::abs(a.stride[i]) * a.itemsize >= MachineRates::kPage)
        own *= static_cast<double>(c_.tile[i]);
    }
    if (total > m_.l2 && a.store && !a.spilled) streams = std::max(streams, own);
  }
  spread_ = products_ || m_.reduces.empty() ? 1 : 1 + rates_.stream * (streams - 1);
  // Nothing but memory: rows of results are streams, too.
  if (products_ && brief_ && memory_ > compute_)
    for (const Access& a : m_.accesses)
      if (a.store)
        spread_ = std::max(spread_, 1 + rates_.stream_products * (instances_of(a.domain) - rates_.free_streams));
}

/// Returns what loads and arithmetic take from each other: both are issued.
double Evaluation::shared_issue() const {
  return (products_ ? rates_.shared_issue_products : rates_.shared_issue) * std::min(compute_, memory_);
}

/// Returns the factor for windows that the first level cache misses.
double Evaluation::waits() const {
  if (m_.lane_windows(c_, lane_) || covered_) return rates_.lane_window_wait;
  return c_.windows ? rates_.window_wait : 1;
}

/// Returns all terms together, with `moving` cycles for traffic between caches.
double Evaluation::total(double moving) const {
  return (overlapping(moving) + strided_ + spills_ + shared_issue() +
          (products_ ? rates_.loop_products : rates_.loop) * loops_ + (memory_ > compute_ ? exits_ : 0) +
          filling_ * (brief_ ? rates_.short_fill : 1)) *
         (1 + rates_.body_growth * body_) * spread_ * waits();
}

double Evaluation::cycles(double bound) {
  count_body();
  if (body_ > std::max(rates_.max_body, m_.unrolled_ops) || after_ > rates_.max_after_loop) return INFINITY;
  count_executions();
  issue();
  for (const Reduce& r : m_.reduces) reduce(r);
  covered_ = c_.windows && m_.cover(c_, lane_).usable;
  for (size_t o = 0; o < m_.operands.size(); o++)
    if (c_.staged >> o & 1) read_scratch(o);
  for (const Access& a : m_.accesses)
    if (!is_staged(a)) access(a);
  loops();
  streams();
  // The lower bound alone often exceeds the budget; what the caches do takes longest to find out.
  if (total(0) >= bound) return INFINITY;
  double waiting = 0;
  if (c_.staged) {
    const CostModel::PackCycles pack = m_.pack_cycles(c_, lane_);
    filling_ = pack.filling;
    waiting = pack.waiting;
  }
  if (total(waiting) >= bound) return INFINITY;
  const double moving = m_.traffic(c_, lane_, m_.blocks && !c_.staged) + waiting;
  if (total(moving) >= bound) return INFINITY;
  moving_ = std::max(moving, m_.refills(c_, lane_));
  return total(moving_);
}

CostAccount Evaluation::account() {
  if (!std::isfinite(cycles(INFINITY))) return {};
  return {.together = {{"arithmetic", compute_ + chains_},
                       {"loads and stores", memory_},
                       {"second level cache", near_},
                       {"memory", moving_}},
          .besides = {{"issue that both need", shared_issue()},
                      {"strided vectors from memory", strided_},
                      {"spilled registers", spills_},
                      {"loops", (products_ ? rates_.loop_products : rates_.loop) * loops_},
                      {"ends of short loops", memory_ > compute_ ? exits_ : 0},
                      {"filling panels", filling_ * (brief_ ? rates_.short_fill : 1)}},
          .factor = (1 + rates_.body_growth * body_) * spread_ * waits()};
}
}  // namespace

double CostModel::score(const Candidate& c, double bound) const { return Evaluation(*this, c).cycles(bound); }

CostAccount CostModel::account(const Candidate& c) const {
  CostAccount result = Evaluation(*this, c).account();
  if (!c.staged) result.together.push_back({"traffic in this order of loops", traffic(c, lane_mask(c), c.blocks > 1)});
  if (const double sums = accumulating(c); sums > 0) result.besides.push_back({"sums kept in memory", sums});
  return result;
}

int64_t CostModel::lane_stride(const Access& a, const Candidate& c) {
  int64_t stride = 0;
  for (int v : c.lane_axes)
    if (a.mask >> v & 1)
      stride = a.shared_lane_axes >> v & 1 ? 2 : a.nonlinear >> v & 1 ? -1 : a.stride[static_cast<size_t>(v)];
  return stride;
}

double CostModel::transposed_vector(int itemsize, int lanes, int64_t columns, bool store) const {
  const int64_t most = std::min<int64_t>(lanes, rates.transposed_rows);
  const auto b = static_cast<double>(std::bit_floor(static_cast<uint64_t>(std::min(columns, most))));
  const double w = std::max(1.0, lanes * itemsize / datapath());
  // Rows that are less than a line take as long as single elements of other lines do.
  const double part = std::max(0.0, 1 - b * itemsize / MachineRates::kLine),
               row = store ? rates.transposed_store + rates.partial_line_store * part
                           : rates.transposed_load + rates.partial_line_load * part;
  return (lanes * row + (lanes - b) * rates.shuffle + b * std::log2(b) * rates.shuffle * w) / b;
}

}  // namespace tg
