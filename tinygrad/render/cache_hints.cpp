/// \file Finding non-temporal stores, and loads that prefetch the next row.
#include "tinygrad/render/cache_hints.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"

namespace tg {
namespace {
constexpr int64_t kLongRow = 1024;  // bytes

/// An index as it is lowered: a sum of multiples of loops, an offset, and other summands.
struct LoweredIndex {
  AffineIndex sum;
  int64_t alignment = 0;  ///< the largest power of two that divides all other summands; 0: there are none

  explicit LoweredIndex(UOp index) { add(index, 1, true); }
  /// True when lane 0 is always at a multiple of n, a power of two.
  bool is_multiple_of(int64_t n) const {
    return sum.offset % n == 0 && alignment % n == 0 &&
           std::all_of(sum.terms.begin(), sum.terms.end(), [&](const auto& t) { return t.second % n == 0; });
  }

 private:
  /// `always`: false for a branch of a choice, where a last part overlaps the one before.
  void add(UOp index, int64_t factor, bool always) {
    std::vector<std::pair<UOp, int64_t>> choices;
    for_each_summand<SumOptions{.casts = true}>(index, factor, [&](UOp u, int128 coefficient) {
      const auto k = static_cast<int64_t>(coefficient);
      if (is_lane(u)) return;
      if (u.is(Ops::WHERE)) choices.emplace_back(u, k);
      else if (u.is(Ops::CONST) && always) sum.offset += k * static_cast<int64_t>(u.const_int());
      else if (u.is(Ops::CONST)) align(k * static_cast<int64_t>(u.const_int()));
      else if (u.is(Ops::RANGE) && always) sum.add(u, k);
      else align(k);
    });
    for (const auto& [choice, k] : choices) {
      add(choice.src(1), k, false);
      add(choice.src(2), k, false);
    }
  }
  void align(int64_t n) {
    alignment |= n;
    alignment &= -alignment;  // the lowest bit of all
  }
};
}  // namespace

/// A LOAD or STORE of a whole register, contiguous in memory.
struct CacheHints::Access {
  UOp op;
  int64_t slot;
  int loop;   ///< the innermost around it
  int bytes;  ///< of an element
  MemAccess memory;
  LoweredIndex index;
  int64_t along(UOp range) const { return index.sum.coefficient(range); }
};

/// Finds the loops, the slots that are read, and the accesses that hints are for.
void CacheHints::collect(std::vector<Access>* loads, std::vector<Access>* stores) {
  std::vector<int> nest{-1};
  for (const Inst& in : view_.insts()) {
    UOp u = in.u;
    if (u.is(Ops::RANGE) && !is_lane(u)) {
      loops_.push_back({u, nest.back()});
      nest.push_back(static_cast<int>(loops_.size()) - 1);
    } else if (u.is(Ops::END)) {
      for (UOp r : u.srcs().subspan(1))
        if (r.is(Ops::RANGE) && !is_lane(r)) nest.pop_back();
    } else if (u.in(Ops::LOAD | Ops::STORE)) {
      const MemAccess a = view_.access(u.src(0));
      if (!a.base.is(Ops::PARAM)) continue;
      const int64_t slot = a.base.arg<ParamArg>().slot;
      if (u.is(Ops::LOAD)) read_[static_cast<size_t>(slot)] = true;
      if (a.lanes == 1 || !a.affine || a.stride != 1) continue;
      (u.is(Ops::STORE) ? stores : loads)
          ->push_back({u, slot, nest.back(), a.base.dtype().itemsize(), a, LoweredIndex(a.index)});
    }
  }
}

/// True for a store of whole lines into memory that nobody reads and that no cache holds.
bool CacheHints::fills_lines(const Access& s, const std::vector<Access>& stores) const {
  const int64_t lanes = s.memory.lanes, bytes = lanes * s.bytes;
  const bool has_such_stores = target_.arch == "x86_64" || target_.has("x86_64");
  if (!has_such_stores || read_[static_cast<size_t>(s.slot)] || s.op.nsrc() > 2) return false;
  if (s.memory.size * s.bytes <= target_.l3_bytes || bytes < 16 || kLine % bytes || !s.index.is_multiple_of(lanes))
    return false;
  if (bytes == kLine) return true;
  // Registers shorter than a line: its other parts follow at once.
  const auto parts = std::count_if(stores.begin(), stores.end(), [&](const Access& o) {
    return o.op.nsrc() == 2 && o.slot == s.slot && o.loop == s.loop;
  });
  return s.loop >= 0 && s.along(range(s.loop)) == parts * lanes;
}

/// Returns the elements from a row to the next for a load of the second pass over rows, where the passes are loops one
/// after another; 0 for other loads, and for all but one load of a line.
int64_t CacheHints::next_row(const Access& p, const std::vector<Access>& loads) const {
  if (p.loop < 0 || parent(p.loop) < 0 || p.memory.size * p.bytes <= target_.l2_bytes) return 0;
  const UOp pass = range(p.loop), rows = range(parent(p.loop));
  const int64_t step = p.along(pass), next = p.along(rows),
                row = step * static_cast<int64_t>(vmax(pass.src(0))) * p.bytes;
  if (step <= 0 || next <= 0 || p.index.alignment || row < kLongRow || row > target_.l2_bytes / 4) return 0;
  if ((next + step) * p.bytes <= row) return 0;  // the last step of a row may end beyond it
  std::vector<int> before;                       // passes over the same rows
  for (const Access& q : loads) {
    if (q.op == p.op) break;
    if (q.slot != p.slot || q.loop < 0 || parent(q.loop) != parent(p.loop) || q.along(rows) != next) continue;
    if (q.loop != p.loop && !contains(before, q.loop)) before.push_back(q.loop);
    if (q.loop == p.loop && q.index.sum.offset == p.index.sum.offset) return 0;  // the same elements again
  }
  if (before.size() != 1) return 0;
  const bool later_in_line = p.index.sum.offset * p.bytes % kLine >= p.memory.lanes * p.bytes;
  return step * p.bytes % kLine == 0 && later_in_line ? 0 : next;
}

CacheHints::CacheHints(const ProgramView& view, const Target& target) : view_(view), target_(target) {
  hints_.resize(view.insts().size());
  slots_.assign(static_cast<size_t>(view.program().nbuffers), false);
  read_ = slots_;
  std::vector<Access> loads, stores;
  collect(&loads, &stores);
  for (const Access& s : stores) {
    if (!fills_lines(s, stores)) continue;
    hint(s.op).nontemporal = true;
    slots_[static_cast<size_t>(s.slot)] = true;
  }
  for (const Access& p : loads) {
    const int64_t next = next_row(p, loads);
    if (!next) continue;
    hint(p.op).distance = next;
    for (const Access& s : stores)
      if (s.loop > p.loop && parent(s.loop) == parent(p.loop) && !hint(s.op).nontemporal &&
          !read_[static_cast<size_t>(s.slot)] && s.bytes == p.bytes && s.along(range(parent(p.loop))) == next)
        hint(p.op).later_store = s.memory.base;
  }
}

bool CacheHints::any_nontemporal() const { return contains(slots_, true); }

}  // namespace tg
