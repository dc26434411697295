/// \file The maximum of a long row and the sum of exponentials below it in one pass over memory.
///
/// The scheduler splits long reductions in parts. A softmax or logsumexp then reads its rows for the maxima of the
/// parts, and, once the maximum of the row is known, again for the sums. Here the kernel of the maxima also sums each
/// part below its own maximum, while the part is in the cache (Milakov and Gimelshein, "Online normalizer calculation
/// for softmax", 2018); exp(part's maximum - row's maximum) brings the few sums to one scale.
#include <algorithm>
#include <cmath>

#include "tinygrad/schedule/passes.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr double kBeyondCache = 2 << 20;  // bytes read twice from which it pays
constexpr double kPartInCache = 320 << 10;
constexpr int kSteps = 3;                 // between the maxima of parts and what is taken off in a sum
constexpr int32_t kFirstRange = 1 << 24;  // identifiers of ranges, beyond those of rangeify

std::span<const UOp> reduced(UOp reduce) { return reduce.srcs().subspan(1); }
bool has(UOp value, OpSet ops) {
  const UOps order = value.toposort();
  return std::any_of(order.begin(), order.end(), [&](UOp u) { return u.in(ops); });
}
bool reads(UOp value, int32_t state) {
  const UOps order = value.toposort();
  return std::any_of(order.begin(), order.end(), [&](UOp u) { return u.is(Ops::LOAD) && state_of(u) == state; });
}
/// The coefficient of a range in an index that is a sum; -1: it is more than that.
int64_t step_of(UOp index, UOp range) {
  int64_t step = 0;
  std::vector<std::pair<UOp, int64_t>> stack{{index, 1}};
  while (!stack.empty()) {
    auto [u, k] = stack.back();
    stack.pop_back();
    if (u == range) step += k;
    else if (u.is(Ops::ADD)) {
      stack.push_back({u.src(1), k});
      stack.push_back({u.src(0), k});
    } else if (u.is(Ops::MUL) && u.src(1).is_const())
      stack.push_back({u.src(0), k * static_cast<int64_t>(u.src(1).const_int())});
    else if (depends_on(u, range)) return -1;
  }
  return step;
}

/// REDUCE(ADD, EXP2((x + shift) * k)), where the shift is the same for all that is summed.
struct Sum {
  UOp x, shift, k;
};
bool match(UOp value, Sum& s) {
  if (!value.is(Ops::REDUCE) || value.arg<ReduceArg>().op != Ops::ADD || value.dtype() != dtypes::float32) return false;
  UOp power = value.src(0);
  if (!power.is(Ops::EXP2) || !power.src(0).is(Ops::MUL) || !power.src(0).src(0).is(Ops::ADD)) return false;
  s.k = power.src(0).src(1);
  if (!s.k.is_const() || s.k.is_invalid() || !(s.k.const_float() > 0)) return false;
  UOp a = power.src(0).src(0).src(0), b = power.src(0).src(0).src(1);
  auto fixed = [&](UOp u) {
    return std::none_of(reduced(value).begin(), reduced(value).end(), [&](UOp r) { return depends_on(u, r); });
  };
  if (fixed(a)) std::swap(a, b);
  s.x = a;
  s.shift = b;
  return fixed(b) && !fixed(a) && !has(a, Ops::REDUCE | Ops::SPECIAL) && !has(b, Ops::REDUCE | Ops::SPECIAL);
}

class Pairs {
 public:
  Pairs(Lowered& l, std::vector<ScheduleBuffer>& buffers) : l_(l), buffers_(buffers) {}

  void run() {
    for (size_t i = 0; i < l_.steps.size(); i++) {
      Sum sum;
      if (const Step& s = l_.steps[i]; !s.value || s.copy || s.given || !match(s.value, sum)) continue;
      if (volume_of(ranges_of(l_.steps[i].value.src(0))) * 4 < kBeyondCache ||
          volume_of(reduced(l_.steps[i].value)) * 4 > kPartInCache)
        continue;
      for (size_t k = 0; k < l_.states.size(); k++)
        if (pair(l_.steps[i], sum, static_cast<int32_t>(k))) break;
    }
  }

 private:
  bool pair(Step& sums, const Sum& sum, int32_t state) {
    const BufferState& written = nth(l_.states, state);
    if (written.writers.size() != 1 || nth(buffers_, written.buffer).kind != ScheduleBuffer::kInternal) return false;
    Step& maxima = nth(l_.steps, written.writers[0]);
    UOp most = maxima.value;
    if (&maxima == &sums || !most || maxima.copy || maxima.given || !most.is(Ops::REDUCE) ||
        most.arg<ReduceArg>().op != Ops::MAX)
      return false;
    if (most.dtype() != dtypes::float32 || nth(buffers_, maxima.buffer).device != nth(buffers_, sums.buffer).device)
      return false;
    if (!computed_from(sum.shift, state) || !only_steps_read(state)) return false;
    // The same values, part by part, side by side in memory.
    const std::span<const UOp> own = reduced(most), theirs = reduced(sums.value);
    UOp buffer = buffer_param(nth(buffers_, maxima.buffer), maxima.buffer, state);
    auto rename = renamed_at(buffer.index({sums.index}).load(), maxima);
    if (!rename || own.size() != theirs.size() || maxima.ranges.size() != sums.ranges.size()) return false;
    for (size_t i = 0; i < own.size(); i++) {
      if (own[i].src(0) != theirs[i].src(0)) return false;
      rename->push_back({own[i], theirs[i]});
    }
    if (simplify(most.src(0).substitute(*rename)) != simplify(sum.x) || !walks_memory(most)) return false;

    // Both in one buffer, a maximum and a sum for each part.
    UOp which = UOp::range(2, fresh_++), place = maxima.index * ConstValue(2);
    rewrite_readers(state);
    std::vector<std::pair<UOp, UOp>> again;
    UOps over;
    for (UOp r : own) {
      over.push_back(UOp::range(r.src(0), RangeArg{{fresh_++}, r.arg<RangeArg>().type}));
      again.push_back({r, over.back()});
    }
    UOp zero = UOp::constant(0, most.dtype()), inf = UOp::constant(INFINITY, most.dtype());
    UOp base = (most.ne(inf) & most.ne(UOp::constant(-INFINITY, most.dtype()))).where(most, zero);
    UOp power = UOp::alu(Ops::EXP2, {(most.src(0).substitute(again) + base * ConstValue(-1.0)) * sum.k});
    UOp part = place.substitute(*rename), top = buffer.index({part}).load(),
        total = buffer.index({part + ConstValue(1)}).load();
    sums.value =
        total * UOp::alu(Ops::EXP2, {(top.ne(inf).where(top, zero) + with_new_places(sum.shift, state)) * sum.k});
    maxima.value = (which < ConstValue(1)).where(most, power.reduce(Ops::ADD, over));
    maxima.index = place + which;
    maxima.ranges.push_back(which);
    nth(buffers_, maxima.buffer).size *= 2;
    return true;
  }
  /// True when a value is computed from the results of a state, with a few steps between them.
  bool computed_from(UOp value, int32_t state) const {
    std::vector<UOp> values{value};
    for (int i = 0; i < kSteps && !values.empty(); i++) {
      std::vector<UOp> before;
      for (UOp v : values)
        for (UOp u : v.toposort()) {
          if (!u.is(Ops::LOAD)) continue;
          if (state_of(u) == state) return true;
          for (int32_t w : nth(l_.states, state_of(u)).writers)
            if (const Step& s = nth(l_.steps, w); s.value) before.push_back(s.value);
        }
      values = std::move(before);
    }
    return false;
  }
  bool only_steps_read(int32_t state) const {
    for (const Step& s : l_.steps)
      if (std::find(s.reads.begin(), s.reads.end(), state) != s.reads.end() || (s.value && reads(s.index, state)))
        return false;
    return std::none_of(l_.gathers.begin(), l_.gathers.end(), [&](UOp g) { return g && reads(g, state); });
  }
  static bool walks_memory(UOp most) {
    UOp last = most.src(most.nsrc() - 1);
    for (UOp u : most.src(0).toposort())
      if (u.is(Ops::LOAD) && depends_on(u, last) && step_of(u.src(0).src(1), last) != 1) return false;
    return true;
  }
  void rewrite_readers(int32_t state) {
    for (Step& s : l_.steps)
      if (s.value) s.value = with_new_places(s.value, state);
  }
  /// `value` with what it reads of a state where it is now: at twice the place.
  static UOp with_new_places(UOp value, int32_t state) {
    std::vector<std::pair<UOp, UOp>> map;
    for (UOp u : value.toposort()) {
      if (!u.is(Ops::LOAD) || state_of(u) != state) continue;
      UOps src(u.srcs().begin(), u.srcs().end());
      src[0] = src[0].src(0).index({src[0].src(1) * ConstValue(2)});
      map.push_back({u, u.with_srcs(src)});
    }
    return map.empty() ? value : value.substitute(map);
  }

  Lowered& l_;
  std::vector<ScheduleBuffer>& buffers_;
  int32_t fresh_ = kFirstRange;
};
}  // namespace

void pair_maxima(Lowered& l, std::vector<ScheduleBuffer>& buffers) { Pairs(l, buffers).run(); }

}  // namespace tg
