/// \file Ends of loops that depend on a mask.
#include "tinygrad/codegen/expand/prune_masked_tiles.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr double kManyIterations = 16;  // from which a reduction is worth the test

/// True for values that are one for a whole tile: where its last part begins.
bool depends_on_loops_alone(UOp u) {
  const UOps& open = ranges_of(u);
  return u.in(groups::kElementwise) && std::all_of(open.begin(), open.end(), is_loop);
}
/// True for a padded range, whose rows beyond the end are the last one. It never falls where a range of the tile grows.
bool is_clamp(UOp u) {
  if (!u.is(Ops::WHERE) || !u.src(0).is(Ops::CMPLT) || u.src(0).src(0) != u.src(1) || !u.src(2).is_const() ||
      !u.src(0).src(1).is_const())
    return false;
  if (u.src(2).const_int() < u.src(0).src(1).const_int() - 1) return false;
  const AffineIndex f(u.src(1));
  return f.rest.empty() && std::all_of(f.terms.begin(), f.terms.end(), [](const auto& t) { return t.second >= 0; });
}

/// a - b as a sum of ranges and of values that are_known at the corners of a tile.
struct Difference {
  std::vector<std::pair<UOp, int64_t>> terms;
  int64_t offset = 0;
  bool known = true;  ///< false: a summand is of another kind

  Difference(UOp a, UOp b) {
    std::vector<std::pair<UOp, int64_t>> summands;
    for (const auto& [u, factor] : {std::pair{a, 1}, std::pair{b, -1}})
      for_each_summand<SumOptions{.casts = true}>(
          u, factor, [&](UOp s, int128 k) { summands.emplace_back(s, static_cast<int64_t>(k)); });
    for (size_t i = summands.size(); i-- > 0;) add(summands[i].first, summands[i].second);
  }

 private:
  void add(UOp u, int64_t k) {
    auto it = std::find_if(terms.begin(), terms.end(), [&](const auto& t) { return t.first == u; });
    if (u.is_const() && !u.is_invalid()) offset += k * static_cast<int64_t>(u.const_int());
    else if (u.is(Ops::RANGE) && it != terms.end()) it->second += k;
    else if (u.is(Ops::RANGE) || depends_on_loops_alone(u) || is_clamp(u)) terms.push_back({u, k});
    else known = false;
  }
};

/// Returns the least value of k * u in a tile, or the greatest one; empty: not known.
UOp at_corner(UOp u, int64_t k, bool greatest) {
  const bool last = (k < 0) != greatest;  // of the ranges of the tile, or the first
  std::vector<std::pair<UOp, UOp>> corner;
  for (UOp r : ranges_of(u)) {
    if (is_loop(r)) continue;
    if (!r.src(0).is_const()) return {};
    corner.push_back({r, last ? UOp::constant(r.src(0).const_value(), r.dtype()) + ConstValue(-1)
                              : UOp::constant(int64_t{0}, r.dtype())});
  }
  return fold_mul(u.substitute(corner), k);
}

/// Returns the condition on loops under which a < b, or its negation, may hold somewhere in the tile; empty: another
/// kind of comparison, or one that asks nothing of the loops.
UOp may_hold_in_tile(UOp a, UOp b, bool negated) {
  // The end of a - b that matters: the least value for a < b, the greatest for its negation.
  Difference d(a, b);
  if (!d.known) return {};
  UOp sum;
  for (const auto& [u, k] : d.terms) {
    if (k == 0) continue;
    if (!u.is(Ops::RANGE) || is_loop(u)) {
      const UOp term = at_corner(u, k, negated);
      if (!term) return {};
      sum = sum ? fold_add(sum, term) : term;
    } else if ((k < 0) != negated) {
      if (!static_size(u)) return {};
      d.offset += k * (*static_size(u) - 1);
    }
  }
  if (!sum) return {};
  return negated ? UOp::alu(Ops::CMPLT, {UOp::constant(-1 - d.offset), sum})
                 : UOp::alu(Ops::CMPLT, {sum, UOp::constant(-d.offset)});
}
/// Returns what must hold for `condition`, or its negation, to hold somewhere in the tile; empty: nothing is known.
UOp may_hold_in_tile(UOp condition, bool negated) {
  std::vector<std::pair<UOp, bool>> stack{{condition, negated}};
  UOp all;
  while (!stack.empty()) {
    const auto [u, no] = stack.back();
    stack.pop_back();
    UOp part;
    if (u.is(no ? Ops::OR : Ops::AND)) {
      stack.push_back({u.src(1), no});
      stack.push_back({u.src(0), no});
    } else if (u.is(Ops::CMPNE) && u.src(1).is_const() && u.dtype() == u.src(0).dtype() && u.src(1).const_int()) {
      stack.push_back({u.src(0), !no});
    } else if (u.is(Ops::CMPLT) && u.src(0).dtype().is_int()) {
      part = may_hold_in_tile(u.src(0), u.src(1), no);
    }
    if (part) all = all ? all & part : part;
  }
  return all;
}

/// Who uses the nodes of a kernel, and how many reduces each range has.
struct Uses {
  explicit Uses(const UOps& order) {
    for (UOp u : order) {
      for (UOp s : u.srcs()) users[s].push_back(u);
      if (u.is(Ops::REDUCE))
        for (UOp r : listed_ranges(u)) reduces[r]++;
    }
  }
  /// Returns the outermost loop of a reduce that shares none and is long enough; empty otherwise.
  UOp skippable_loop(UOp reduce) {
    UOp outermost;
    double trips = 1;
    for (UOp r : listed_ranges(reduce)) {
      if (!is_loop(r)) continue;
      if (!r.src(0).is_const() || reduces[r] != 1) return {};
      trips *= static_cast<double>(vmax(r.src(0)));
      if (!outermost || nests_before(r, outermost)) outermost = r;
    }
    return trips < kManyIterations ? UOp() : outermost;
  }
  /// Returns the condition under which the result of a reduce is used somewhere in the tile; empty: not known.
  UOp used_in_tile(UOp reduce) {
    UOp value = reduce;
    for (;;) {  // up to the choice between the result and something else
      const UOps& above = users[value];
      if (above.size() != 1 || !above[0].in(groups::kElementwise)) return {};
      if (above[0].is(Ops::WHERE)) break;
      value = above[0];
    }
    const UOp choice = users[value][0];
    if (choice.src(0) == value || choice.src(1) == choice.src(2)) return {};
    return may_hold_in_tile(choice.src(0), choice.src(2) == value);
  }

  std::unordered_map<UOp, UOps> users;
  std::unordered_map<UOp, int> reduces;
};
}  // namespace

UOp prune_masked_tiles(UOp sink) {
  const UOps order = sink.toposort();
  Uses uses(order);
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp reduce : order) {
    const UOp loop = reduce.is(Ops::REDUCE) ? uses.skippable_loop(reduce) : UOp();
    const UOp used = loop ? uses.used_in_tile(reduce) : UOp();
    if (!used || !contains_all(ranges_of(reduce), ranges_of(used))) continue;
    const UOp end = UOp::alu(Ops::WHERE, {used, loop.src(0), UOp::constant(int64_t{0})});
    map.push_back({loop, UOp::make(Ops::RANGE, loop.dtype(), {end}, loop.arg(), loop.tag())});
  }
  return sink.substitute(map);
}

}  // namespace tg
