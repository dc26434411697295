/// \file Chains of reductions over the same rows become one kernel: softmax, layernorm, their gradients.
///
/// A kernel that reduces every row of a large tensor and one that reads both the result and the rows again pass over
/// memory twice. When a row stays in the cache between the two, one kernel that does both for a row at a time passes
/// over it once. The reduction is computed in the loop of the rows, once for a row, so nothing is computed twice.
#include "tinygrad/schedule/fuse_rows.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/schedule/loop_match.h"
#include "tinygrad/target/device_traits.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
constexpr double kRows = 64;   // fewer give the threads too little to share
constexpr double kLong = 64;   // elements of a row from which its loop hides what is around it
constexpr int64_t kLine = 64;  // bytes of a cache line
constexpr int64_t kWays = 16;  // of the second level cache
constexpr double kLeastGroupRow = 32, kMostGroupRow = 32 << 10;  // elements of a row that a group of threads holds
constexpr int kReduces = 6;                                      // in one kernel
constexpr double kSimilar = 2.5;  // ratio of loop lengths up to which one loop of rows fits both

/// Returns the smallest stride, in bytes, between elements of a load along the ranges of `reduce`; 0: none is affine.
int64_t stride_along(UOp load, UOp reduce) {
  int64_t stride = 0;
  for (const auto& [r, k] : range_terms(index_of(load)).value_or(std::vector<std::pair<UOp, int64_t>>{}))
    if (contains(reduce.srcs().subspan(1), r)) stride = stride ? std::min(stride, std::abs(k)) : std::abs(k);
  return stride * load.dtype().itemsize();
}

/// Returns true when the lines of a row that strides over memory fall on too few sets of the cache: columns of a power
/// of two.
bool has_set_conflicts(const KernelStep& s, double length, int64_t l2_bytes) {
  const int64_t way = l2_bytes / kWays;  // bytes after which addresses share a set
  bool conflicts = false;
  for (UOp u : s.value.toposort()) {
    if (!u.is(Ops::REDUCE)) continue;
    for_each_load(u.src(0), [&](UOp load) {
      const int64_t stride = stride_along(load, u);
      conflicts |= stride >= kLine && length > static_cast<double>(kWays * (way / std::gcd(stride, way)));
    });
  }
  return conflicts;
}

/// The reads of a kernel and its loops.
struct KernelFacts {
  std::unordered_map<StateId, double> bytes;  // the most points of a load's index times the size of an element
  std::unordered_map<StateId, UOps> loads;
  double longest = 1;  // points of the largest loop nest
  int reduces = 0;
  bool gathers = false;
};
KernelFacts facts_of(const KernelStep& s) {
  KernelFacts f;
  f.longest = volume_of(s.loops);
  for (UOp root : {s.index, s.value})
    for (UOp u : root.toposort()) {
      f.gathers |= u.is(Ops::SPECIAL);
      if (u.is(Ops::REDUCE)) {
        f.reduces++;
        f.longest = std::max(f.longest, volume_of(ranges_of(u.src(0))));
      }
      if (!u.is(Ops::LOAD)) continue;
      UOps& known = f.loads[state_of(u)];
      add_once(known, u);
      double& bytes = f.bytes[state_of(u)];
      bytes = std::max(bytes, volume_of(ranges_of(index_of(u))) * u.dtype().itemsize());
    }
  return f;
}

class RowFusion {
 public:
  RowFusion(StepGraph& g, const ScheduleOptions& options) : g_(g), options_(options) {}

  void run() {
    std::vector<StepId> candidates;
    for (StepId i = 0; i < g_.steps(); i++)
      if (reduces_long_rows(i)) candidates.push_back(i);
    for (bool changed = !candidates.empty(); changed;) {
      changed = false;
      for (StepId producer : candidates) changed |= fuse(producer);
    }
  }

 private:
  bool reduces_long_rows(StepId i) const {
    const KernelStep* k = g_.kernel(i);
    if (!k || k->sequential_loops || g_.step(i).buffer < 0 ||
        g_.buffer(g_.step(i).buffer).kind != ScheduleBuffer::kInternal)
      return false;
    const DeviceTraits traits = device_traits(g_.device_of_step(i));
    const double rows = volume_of(k->loops);
    const UOps order = k->value.toposort();
    if (traits.row_groups) return reduces_rows_of_groups(order, rows);
    if (!traits.row_kernels || rows < kRows) return false;
    return std::any_of(order.begin(), order.end(), [&](UOp u) {
      return u.is(Ops::REDUCE) && volume_of(ranges_of(u.src(0))) >= std::max(rows * kLong, options_.beyond_cache() / 8);
    });
  }
  /// Returns true for reduces of rows that a group of threads can hold.
  static bool reduces_rows_of_groups(const UOps& order, double rows) {
    bool found = false;
    for (UOp u : order) {
      if (u.is(Ops::RANGE) && !u.src(0).is_const()) return false;
      if (!u.is(Ops::REDUCE)) continue;
      const double length = volume_of(ranges_of(u.src(0))) / rows;
      if (length < kLeastGroupRow || length > kMostGroupRow) return false;
      found = true;
    }
    return found;
  }
  const KernelFacts& facts(StepId i) {
    auto [it, fresh] = facts_.try_emplace(i);
    if (fresh) it->second = facts_of(*g_.kernel(i));
    return it->second;
  }

  /// Moves a step into the only one that reads its result; false where that is impossible or does not pay.
  bool fuse(StepId producer) {
    if (!g_.kernel(producer)) return false;
    const StateId state = g_.written(producer);
    if (state < 0 || g_.readers(state).size() != 1) return false;
    const StepId consumer = g_.readers(state)[0];
    const KernelStep* to = g_.kernel(consumer);
    if (!to || to->sequential_loops || consumer == producer) return false;
    if (!fits_in_one_kernel(producer, consumer) || !pays(producer, consumer)) return false;
    UOp value = written_out(producer, consumer);
    if (!value) return false;
    g_.inline_into({&producer, 1}, consumer, value);
    g_.erase(producer);
    facts_.erase(consumer);
    return true;
  }
  bool fits_in_one_kernel(StepId producer, StepId consumer) {
    const KernelFacts &p = facts(producer), &c = facts(consumer);
    if (p.gathers || c.gathers || g_.device_of_step(producer) != g_.device_of_step(consumer)) return false;
    const auto most = static_cast<size_t>(std::min<int64_t>(options_.max_buffers, 24));
    if (p.reduces + c.reduces > kReduces || p.bytes.size() + c.bytes.size() > most) return false;
    const bool overwrites = std::any_of(p.bytes.begin(), p.bytes.end(), [&](const auto& read) {
      return g_.state(read.first).buffer == g_.step(consumer).buffer;
    });
    return !overwrites && c.longest <= kSimilar * p.longest && c.longest >= p.longest / kSimilar;
  }
  /// Returns true where they share a large tensor, and a row of everything they read stays in the cache.
  bool pays(StepId producer, StepId consumer) {
    const KernelFacts &p = facts(producer), &c = facts(consumer);
    const KernelStep& from = *g_.kernel(producer);
    const double rows = volume_of(from.loops), length = p.longest / rows;
    double shared = 0, row = 0;
    for (const auto& [state, bytes] : c.bytes) {
      if (bytes < rows * length) continue;
      if (auto it = p.bytes.find(state); it != p.bytes.end()) shared += std::min(bytes, it->second);
      row += bytes / rows;
    }
    if (device_traits(g_.device_of_step(producer)).row_groups) return shared > 0;
    return shared >= options_.beyond_cache() && row <= options_.row_in_cache() &&
           !has_set_conflicts(from, length, options_.l2_bytes);
  }
  /// Returns the consumer's value with the producer's in place of every load of it; empty unless all loads are at the
  /// row of the consumer's own loops.
  UOp written_out(StepId producer, StepId consumer) {
    const KernelStep &from = *g_.kernel(producer), &to = *g_.kernel(consumer);
    std::vector<std::pair<UOp, UOp>> replaced;
    for (UOp load : facts(consumer).loads.at(g_.written(producer))) {
      const auto loops = match_loops(load, from);
      if (!loops ||
          !std::all_of(loops->begin(), loops->end(), [&](const auto& r) { return contains(to.loops, r.second); }))
        return {};
      replaced.push_back({load, from.value.substitute(*loops)});
    }
    return to.value.substitute(replaced);
  }

  StepGraph& g_;
  const ScheduleOptions& options_;
  std::unordered_map<StepId, KernelFacts> facts_;
};
}  // namespace

void fuse_rows(StepGraph& g, const ScheduleOptions& options) { RowFusion(g, options).run(); }

}  // namespace tg
