/// \file Merging of ranges.
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
int64_t size_or_zero(UOp range) { return static_size(range).value_or(0); }

/// True when every expression uses two ranges as one: a * size + b with `size` that of b; `used`: some does so.
bool walk_as_one(const std::vector<AffineIndex>& forms, UOp a, UOp b, int64_t size, bool* used) {
  for (const AffineIndex& f : forms) {
    const int64_t inner = f.coefficient(b);
    if (f.coefficient(a) != inner * size) return false;
    *used |= inner != 0;
  }
  return true;
}

/// What merge_ranges knows of a kernel.
struct RangeUses {
  UOps ranges;
  std::vector<AffineIndex> forms;  ///< maximal integer expressions of ranges
  std::vector<UOps> lists;         ///< of END and REDUCE

  explicit RangeUses(UOp sink) {
    for (UOp u : sink.toposort()) {
      if (u.is(Ops::RANGE)) ranges.push_back(u);
      else add(u);
    }
  }
  /// True when END and REDUCE list both or neither.
  bool are_listed_together(UOp a, UOp b) const {
    return std::all_of(lists.begin(), lists.end(), [&](const UOps& l) { return contains(l, a) == contains(l, b); });
  }

 private:
  /// Notes the sources of a node that continue no sum.
  void add(UOp u) {
    const bool lists_ranges = u.in(Ops::END | Ops::REDUCE);
    if (lists_ranges) lists.push_back(UOps(u.srcs().begin() + range_start(u), u.srcs().end()));
    const bool gated = u.is(Ops::WHERE) && u.src(2).is_invalid();
    const bool sum = u.dtype().is_int() &&
                     (u.is(Ops::ADD) || gated || (u.is(Ops::MUL) && (u.src(1).is_const() || u.src(0).is_const())));
    const uint32_t ends = lists_ranges ? range_start(u) : u.nsrc();
    for (uint32_t i = 0; i < ends; i++) {
      const UOp s = u.src(i);
      if (!s.dtype().is_int() || (sum && !(u.is(Ops::WHERE) && i == 0)) || ranges_of(s).empty()) continue;
      if (s.in(Ops::RANGE | Ops::ADD | Ops::MUL | Ops::WHERE)) forms.emplace_back(s);
    }
  }
};

/// Ranges of a kernel that are merged step by step: each is alone, has absorbed others or is part of another.
class Merging {
 public:
  explicit Merging(const RangeUses& uses) : uses_(uses), parts_(uses.ranges.size()), gone_(uses.ranges.size(), false) {
    for (UOp r : uses.ranges) sizes_.push_back(size_or_zero(r));
  }
  /// Merges pairs until there is none left; false: there was none.
  bool run() {
    bool any = false;
    for (bool again = true; again;) {
      again = false;
      for (size_t a = 0; a < sizes_.size(); a++)
        for (size_t b = 0; b < sizes_.size() && !gone_[a]; b++)
          if (can_merge(a, b)) {
            sizes_[b] *= sizes_[a];
            gone_[a] = true;
            parts_[b].push_back(a);
            again = any = true;
          }
    }
    return any;
  }
  RangeMap images() const {
    RangeMap map;
    for (size_t b = 0; b < sizes_.size(); b++) {
      if (gone_[b] || parts_[b].empty()) continue;
      const UOp wide = UOp::range(UOp::constant(sizes_[b]), uses_.ranges[b].arg<RangeArg>());
      map[uses_.ranges[b]] = {wide, {wide}};
      std::vector<size_t> stack = parts_[b];
      while (!stack.empty()) {
        const size_t a = stack.back();
        stack.pop_back();
        map[uses_.ranges[a]] = {UOp::constant(int64_t{0}), {wide}};
        stack.insert(stack.end(), parts_[a].begin(), parts_[a].end());
      }
    }
    return map;
  }

 private:
  bool can_merge(size_t a, size_t b) const {
    const UOp x = uses_.ranges[a], y = uses_.ranges[b];
    if (a == b || gone_[b] || sizes_[a] <= 0 || sizes_[b] <= 0 || axis_type(x) != axis_type(y)) return false;
    bool used = false;
    if (!uses_.are_listed_together(x, y) || !walk_as_one(uses_.forms, x, y, sizes_[b], &used)) return false;
    return used || sizes_[a] * sizes_[b] <= INT32_MAX;
  }

  const RangeUses& uses_;
  std::vector<int64_t> sizes_;
  std::vector<std::vector<size_t>> parts_;  // ranges merged into this one
  std::vector<bool> gone_;
};

/// Returns the indices that reductions read at; nullopt when one of them is not affine in the ranges or its gate
/// depends on them, or reductions nest.
std::optional<std::vector<AffineIndex>> operand_indices(const UOps& order) {
  auto is_fixed = [](UOp u) { return ranges_of(u).empty(); };
  std::vector<AffineIndex> forms;
  for (UOp u : order) {
    if (!u.is(Ops::REDUCE)) continue;
    for (UOp v : u.src(0).toposort()) {
      if (v.is(Ops::REDUCE)) return std::nullopt;
      if (!v.is(Ops::INDEX)) continue;
      forms.emplace_back(v.src(1));
      const UOps& rest = forms.back().rest;
      if (!std::all_of(rest.begin(), rest.end(), is_fixed)) return std::nullopt;
      if (v.src(1).is(Ops::WHERE) && !is_fixed(v.src(1).src(0))) return std::nullopt;
    }
  }
  return forms;
}
}  // namespace

UOp replace_ranges(UOp sink, const RangeMap& map) {
  return map_ranges(sink, map, [](UOp u, const UOps& src) {
    return has_srcs(u, src) ? u : fold(u.op(), u.dtype(), src, u.arg(), u.tag());
  });
}

UOp merge_ranges(UOp sink) {
  const RangeUses uses(sink);
  Merging merging(uses);
  return merging.run() ? replace_ranges(sink, merging.images()) : sink;
}

UOp merge_operand_ranges(UOp sink) {
  const UOps order = sink.toposort();
  const std::optional<std::vector<AffineIndex>> forms = operand_indices(order);
  if (!forms || forms->empty()) return sink;
  UOps ranges, ends;
  for (UOp u : order) {
    if (is_range(u, AxisType::kLoop) && size_or_zero(u) > 0) ranges.push_back(u);
    if (u.is(Ops::END)) ends.push_back(u);
  }
  for (UOp a : ranges)
    for (UOp b : ranges) {
      bool used = false;
      if (a == b || !walk_as_one(*forms, a, b, size_or_zero(b), &used)) continue;
      const bool contiguous =
          std::any_of(forms->begin(), forms->end(), [&](const AffineIndex& f) { return f.coefficient(b) == 1; });
      const bool together = std::all_of(ends.begin(), ends.end(), [&](UOp end) {
        return contains(listed_ranges(end), a) == contains(listed_ranges(end), b);
      });
      if (!contiguous || !together) continue;
      const UOp n = UOp::constant(size_or_zero(b));
      const UOp wide = UOp::range(UOp::constant(size_or_zero(a) * size_or_zero(b)), b.arg<RangeArg>());
      const RangeMap map{{a, {wide / n, {wide}}}, {b, {wide % n, {wide}}}};
      return graph_rewrite(replace_ranges(sink, map), sym(), {.name = "merge operand ranges"});
    }
  return sink;
}

}  // namespace tg
