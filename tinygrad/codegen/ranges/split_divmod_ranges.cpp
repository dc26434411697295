/// \file Splitting of ranges that indices use through division and remainder. The parts of a range are its factors: r
/// of 64 used as r / 8 and r % 8 becomes a * 8 + b.
#include <map>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/memory_ops.h"

namespace tg {
namespace {
constexpr int64_t kNear = 4;          ///< lanes that share an element, or lie so far apart
constexpr int64_t kFactorLanes = 16;  ///< factors that are a multiple of this are as good for lanes as the whole range

int64_t size_or_zero(UOp range) { return static_size(range).value_or(0); }
bool is_divided_by_literal(UOp u) {
  return u.in(Ops::FLOORDIV | Ops::FLOORMOD) && u.src(1).is_const() && u.dtype().is_weak();
}
int64_t divisor(UOp u) { return static_cast<int64_t>(u.src(1).const_int()); }

/// Finds where the ranges of a kernel are cut.
class Cuts {
 public:
  explicit Cuts(const UOps& order) {
    for (UOp u : order) find_phases(u);
    for (UOp u : order) find_cuts(u);
    for (UOp u : order)
      if (u.is(Ops::REDUCE)) keep_contiguous_operands(u);
    keep_contiguous_results(order);
  }
  bool empty() const { return cuts_.empty(); }
  /// Returns the strides of the factors of a range, ascending from 1 to its size; empty: it stays whole. A range that
  /// ends within a step of the largest cut is rounded up to whole steps, and has the factors of that step alone.
  std::vector<int64_t> strides(UOp r, bool* ends_within_step) const {
    auto it = cuts_.find(r.id());
    if (it == cuts_.end()) return {};
    std::vector<int64_t> cuts = it->second, chain{1};
    std::sort(cuts.begin(), cuts.end());
    const int64_t size = size_or_zero(r);
    const auto within = std::find_if(cuts.begin(), cuts.end(), [&](int64_t c) { return size % c != 0; });
    *ends_within_step = within != cuts.end();
    if (*ends_within_step) cuts = {*within};
    for (int64_t c : cuts)
      if (c > chain.back() && c % chain.back() == 0) chain.push_back(c);
    chain.push_back(round_up(size, chain.back()));
    return chain;
  }

 private:
  /// Notes output ranges whose remainder by a small number decides what is read.
  void find_phases(UOp u) {
    if (!u.is(Ops::FLOORMOD) || !is_divided_by_literal(u) || divisor(u) > kNear) return;
    for (const auto& [r, k] : AffineIndex(u.src(0)).terms)
      if (is_range(r, AxisType::kLoop)) phases_.emplace_back(r.id(), divisor(u));
  }
  bool has_phases(UOp r, int64_t c) const { return contains(phases_, std::pair{r.id(), c}); }

  /// A range with phases may end within the last step.
  bool can_cut(UOp r, int64_t c) const { return size_or_zero(r) > c && (size_or_zero(r) % c == 0 || has_phases(r, c)); }

  void find_cuts(UOp u) {
    if (!is_divided_by_literal(u)) return;
    int64_t c = divisor(u);
    UOp x = u.src(0);
    if (x.is(Ops::FLOORDIV) && x.src(1).is_const()) {
      c *= divisor(x);
      x = x.src(0);
    } else if (x.is(Ops::FLOORMOD) && x.src(1).is_const() && x.src(1).const_int() % c == 0) {
      x = x.src(0);
    }
    if (x.is(Ops::RANGE) && c > 1 && can_cut(x, c)) cuts_[x.id()].push_back(c);
    // (r - k + 1) / 2, the gradient of a strided read: with r = 2 a + b that is a + (b - k + 1) / 2, contiguous along
    // a.
    if (!x.is(Ops::ADD) || c < 2 || c > kNear) return;
    for (const auto& [r, k] : AffineIndex(x).terms)
      if ((k == 1 || k == -1) && is_range(r, AxisType::kLoop) && can_cut(r, c)) cuts_[r.id()].push_back(c);
  }

  /// A range that an operand of a reduction is contiguous along stays whole: that access is made in the innermost loop,
  /// those with the factors are not. Factors of whole registers cost it nothing when it is reduced itself, and phases
  /// of a stride are lanes of one phase each, a few elements apart.
  void keep_contiguous_operands(UOp reduce) {
    for (UOp v : reduce.src(0).toposort()) {
      if (!is_load(v)) continue;
      for (const auto& [r, k] : AffineIndex(MemRef{v}.index()).terms) {
        auto it = cuts_.find(r.id());
        if (it == cuts_.end() || (k != 1 && k != -1)) continue;
        const bool reduced = is_range(r, AxisType::kReduce);
        std::erase_if(it->second, [&, range = r](int64_t cut) {
          return reduced ? cut % kFactorLanes != 0 : !has_phases(range, cut);
        });
        if (it->second.empty()) cuts_.erase(it);
      }
    }
  }

  /// Without a reduction, a range that the stored value is contiguous along stays whole where only r / c is read, for a
  /// small c: neighbouring lanes share elements, and factors would store with a stride of c.
  void keep_contiguous_results(const UOps& order) {
    std::vector<uint32_t> contiguous, divided;
    for (UOp u : order) {
      if (u.is(Ops::REDUCE)) return;
      if (is_store(u))
        for (const auto& [r, k] : AffineIndex(MemRef{u}.index()).terms)
          if (k == 1) contiguous.push_back(r.id());
      const bool shares =
          u.is(Ops::FLOORDIV) && u.src(0).is(Ops::RANGE) && u.src(1).is_const() && u.src(1).const_int() <= kNear;
      if (!u.in(Ops::FLOORMOD | Ops::FLOORDIV) || shares) continue;
      for (UOp r : ranges_of(u)) divided.push_back(r.id());
    }
    for (uint32_t r : contiguous)
      if (!contains(divided, r)) cuts_.erase(r);
  }

  std::map<uint32_t, std::vector<int64_t>> cuts_;     // by range
  std::vector<std::pair<uint32_t, int64_t>> phases_;  // range, divisor
};

/// Gates the index of every access that depends on a range which may be beyond its end: `ends` has the factors with
/// what must hold.
UOp gate_ends(UOp sink, const std::vector<std::pair<UOp, UOp>>& ends) {
  return rebuild(sink, [&](UOp v) {
    if (!v.is(Ops::INDEX)) return v;
    UOp gate, index = v.src(1);
    for (const auto& [factor, inside] : ends)
      if (depends_on(index, factor)) gate = gate ? gate & inside : inside;
    if (!gate) return v;
    if (index.is(Ops::WHERE) && index.src(2).is_invalid()) {
      gate = index.src(0) & gate;
      index = index.src(1);
    }
    return UOp::make(Ops::INDEX, v.dtype(), {v.src(0), index.valid(gate)});
  });
}
}  // namespace

UOp split_divmod_ranges(UOp sink) {
  const UOps order = sink.toposort();
  const Cuts cuts(order);
  if (cuts.empty()) return sink;
  RangeMap map;
  std::vector<std::pair<UOp, UOp>> ends;
  for (UOp r : order) {
    bool ends_within_step = false;
    const std::vector<int64_t> strides = r.is(Ops::RANGE) ? cuts.strides(r, &ends_within_step) : std::vector<int64_t>{};
    if (strides.empty()) continue;
    UOp sum;
    UOps factors;
    for (size_t i = strides.size() - 1; i-- > 0;) {
      RangeArg arg = r.arg<RangeArg>();
      arg.id.push_back(static_cast<int32_t>(strides.size() - i));
      const UOp factor = UOp::range(UOp::constant(strides[i + 1] / strides[i]), arg),
                term = fold_mul(factor, strides[i]);
      sum = sum ? fold_add(sum, term) : term;
      factors.push_back(factor);
    }
    map[r] = {sum, factors};
    if (ends_within_step) ends.emplace_back(factors.back(), sum < ConstValue(size_or_zero(r)));
  }
  sink = replace_ranges(sink, map);
  return ends.empty() ? sink : gate_ends(sink, ends);
}

}  // namespace tg
