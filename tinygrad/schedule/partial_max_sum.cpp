/// \file The maximum of a long row and the sum of exponentials below it in one pass over memory.
///
/// The scheduler splits long reductions in parts. A softmax or logsumexp then reads its rows for the maxima of the
/// parts, and, once the maximum of the row is known, again for the sums. Here the kernel of the maxima also sums each
/// part below its own maximum, while the part is in the cache (Milakov and Gimelshein, "Online normalizer calculation
/// for softmax", 2018); exp(part's maximum - row's maximum) brings these partial sums to one scale.
#include "tinygrad/schedule/partial_max_sum.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/schedule/loop_match.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr double kPartInCache = 5.0 / 16;  // of the second level cache, that a part may take
constexpr int kSteps = 3;                  // between the maxima of parts and what a sum is shifted by
constexpr int32_t kFirstRange = 1 << 24;   // identifiers of ranges, beyond those of rangeify

using Renaming = std::vector<std::pair<UOp, UOp>>;

std::span<const UOp> reduced(UOp reduce) { return reduce.srcs().subspan(1); }
bool reads_state(UOp value, StateId state) {
  const UOps order = value.toposort();
  return std::any_of(order.begin(), order.end(), [&](UOp u) { return u.is(Ops::LOAD) && state_of(u) == state; });
}
/// Returns the coefficient of a range in an index that is a sum; -1: the index depends on it in another way.
int64_t stride_of(UOp index, UOp range) {
  int128 stride = 0;
  bool other = false;
  for_each_summand(index, 1, [&](UOp u, int128 k) {
    if (u == range) stride += k;
    else other |= depends_on(u, range);
  });
  return other ? -1 : static_cast<int64_t>(stride);
}

/// REDUCE(ADD, EXP2((x + shift) * k)), where the shift is the same for all terms.
struct ExpSum {
  UOp reduce{}, x{}, shift{}, k{};
};
bool match_exp_sum(UOp value, ExpSum& s) {
  if (!value.is(Ops::REDUCE) || value.arg<ReduceArg>().op != Ops::ADD || value.dtype() != dtypes::float32) return false;
  UOp power = value.src(0);
  if (!power.is(Ops::EXP2) || !power.src(0).is(Ops::MUL) || !power.src(0).src(0).is(Ops::ADD)) return false;
  UOp k = power.src(0).src(1), a = power.src(0).src(0).src(0), b = power.src(0).src(0).src(1);
  if (!k.is_const() || k.is_invalid() || !(k.const_float() > 0)) return false;
  auto is_fixed = [&](UOp u) { return !depends_on_any(u, reduced(value)); };
  if (is_fixed(a)) std::swap(a, b);
  s = {value, a, b, k};
  return is_fixed(b) && !is_fixed(a) && !has_op(a, Ops::REDUCE | Ops::SPECIAL) &&
         !has_op(b, Ops::REDUCE | Ops::SPECIAL);
}

class MaxSumFusion {
 public:
  MaxSumFusion(StepGraph& g, const ScheduleOptions& options) : g_(g), options_(options) {}

  void run() {
    for (StepId i = 0; i < g_.steps(); i++) {
      ExpSum sum;
      const KernelStep* k = g_.kernel(i);
      if (!k || !match_exp_sum(k->value, sum)) continue;
      const double bytes = volume_of(ranges_of(sum.reduce.src(0))) * 4, part = volume_of(reduced(sum.reduce)) * 4;
      if (bytes < options_.beyond_cache() || part > kPartInCache * static_cast<double>(options_.l2_bytes)) continue;
      for (StateId s = 0; s < g_.states(); s++)
        if (fuse(i, sum, s)) break;
    }
  }

 private:
  /// Fuses a sum with the maxima that are the contents of a state; false where they do not belong together.
  bool fuse(StepId sums, const ExpSum& sum, StateId state) {
    if (!is_partial_max(sums, state) || !is_computed_from(sum.shift, state) || !only_values_read(state)) return false;
    const auto rename = match_parts(sums, sum, state);
    if (!rename) return false;
    store_both(sums, sum, state, *rename);
    return true;
  }
  bool is_partial_max(StepId sums, StateId state) const {
    const BufferState& written = g_.state(state);
    if (written.writers.size() != 1 || g_.buffer(written.buffer).kind != ScheduleBuffer::kInternal) return false;
    const StepId maxima = written.writers[0];
    const KernelStep* k = g_.kernel(maxima);
    return k && maxima != sums && k->value.is(Ops::REDUCE) && k->value.arg<ReduceArg>().op == Ops::MAX &&
           k->value.dtype() == dtypes::float32 && g_.device_of_step(maxima) == g_.device_of_step(sums);
  }
  /// Returns how loops and ranges of the maxima are called in the sum, where both reduce the same values, part by part,
  /// contiguous in memory.
  std::optional<Renaming> match_parts(StepId sums, const ExpSum& sum, StateId state) const {
    const KernelStep &from = *g_.kernel(g_.state(state).writers[0]), &to = *g_.kernel(sums);
    const std::span<const UOp> own = reduced(from.value), theirs = reduced(sum.reduce);
    auto rename = match_loops(g_.read(state, to.index), from);
    if (!rename || own.size() != theirs.size() || from.loops.size() != to.loops.size()) return {};
    for (size_t i = 0; i < own.size(); i++) {
      if (own[i].src(0) != theirs[i].src(0)) return {};
      rename->push_back({own[i], theirs[i]});
    }
    if (simplify(from.value.src(0).substitute(*rename)) != simplify(sum.x) || !walks_memory(from.value)) return {};
    return rename;
  }
  /// Stores a maximum and a sum for each part in one buffer, and makes the other step scale the sums.
  void store_both(StepId sums, const ExpSum& sum, StateId state, const Renaming& rename) {
    const StepId maxima = g_.state(state).writers[0];
    UOp most = g_.kernel(maxima)->value, which = UOp::range(2, fresh_++),
        position = g_.kernel(maxima)->index * ConstValue(2);
    for (StepId i : std::vector<StepId>(g_.readers(state)))
      g_.edit_kernel(i).value = with_new_positions(g_.kernel(i)->value, state);
    Renaming again;
    UOps over;
    for (UOp r : reduced(most)) {
      over.push_back(UOp::range(r.src(0), RangeArg{{fresh_++}, r.arg<RangeArg>().type}));
      again.push_back({r, over.back()});
    }
    UOp zero = UOp::constant(0, most.dtype()), inf = UOp::constant(INFINITY, most.dtype());
    UOp base = (most.ne(inf) & most.ne(UOp::constant(-INFINITY, most.dtype()))).where(most, zero);
    UOp power = UOp::alu(Ops::EXP2, {(most.src(0).substitute(again) + base * ConstValue(-1.0)) * sum.k});
    UOp part = position.substitute(rename), top = g_.read(state, part), total = g_.read(state, part + ConstValue(1));
    g_.edit_kernel(sums).value =
        total * UOp::alu(Ops::EXP2, {(top.ne(inf).where(top, zero) + with_new_positions(sum.shift, state)) * sum.k});
    KernelStep& both = g_.edit_kernel(maxima);
    both.value = (which < ConstValue(1)).where(most, power.reduce(Ops::ADD, over));
    both.index = position + which;
    both.loops.push_back(which);
    const BufferId b = g_.state(state).buffer;
    g_.resize_buffer(b, g_.buffer(b).size * 2);
  }
  /// Returns true when a value is computed from the results of a state, with a few steps between them.
  bool is_computed_from(UOp value, StateId state) const {
    UOps values{value};
    for (int i = 0; i < kSteps && !values.empty(); i++) {
      UOps before;
      for (UOp v : values) {
        if (reads_state(v, state)) return true;
        for_each_load(v, [&](UOp u) {
          for (StepId w : g_.state(state_of(u)).writers)
            if (const KernelStep* k = g_.kernel(w)) before.push_back(k->value);
        });
      }
      values = std::move(before);
    }
    return false;
  }
  /// Returns true when nothing but values of kernels reads a state: no copy, no user's kernel, no index.
  bool only_values_read(StateId state) const {
    const auto reads = [&](UOp u) { return u && reads_state(u, state); };
    const std::vector<StepId>& readers = g_.readers(state);
    return std::none_of(g_.gathers().begin(), g_.gathers().end(), reads) &&
           std::all_of(readers.begin(), readers.end(),
                       [&](StepId i) { return g_.kernel(i) && !reads(g_.kernel(i)->index); });
  }
  static bool walks_memory(UOp most) {
    UOp last = most.src(most.nsrc() - 1);
    bool walks = true;
    for_each_load(most.src(0), [&](UOp u) { walks &= !depends_on(u, last) || stride_of(index_of(u), last) == 1; });
    return walks;
  }
  /// Returns `value` with its reads of a state at twice the index, where the maxima are now.
  static UOp with_new_positions(UOp value, StateId state) {
    Renaming map;
    for_each_load(value, [&](UOp u) {
      if (state_of(u) != state) return;
      map.push_back({u, with_first_src(u, u.src(0).src(0).index({index_of(u) * ConstValue(2)}))});
    });
    return map.empty() ? value : value.substitute(map);
  }

  StepGraph& g_;
  const ScheduleOptions& options_;
  int32_t fresh_ = kFirstRange;
};
}  // namespace

void fuse_partial_max_sum(StepGraph& g, const ScheduleOptions& options) { MaxSumFusion(g, options).run(); }

}  // namespace tg
