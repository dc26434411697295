/// \file Ends of loops that depend on a mask.
#include "tinygrad/codegen/skip.h"

#include <algorithm>
#include <unordered_map>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/expand.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr int64_t kLong = 16;  // iterations worth a question

/// One value for a whole tile: where its last part begins.
bool of_loops(UOp u) {
  const UOps& open = ranges_of(u);
  return u.in(groups::kElementwise) && std::all_of(open.begin(), open.end(), is_loop);
}
/// A padded range: rows beyond the end are the last one. It never falls where a range of the tile grows.
bool is_clamp(UOp u) {
  if (!u.is(Ops::WHERE) || !u.src(0).is(Ops::CMPLT) || u.src(0).src(0) != u.src(1) || !u.src(2).is_const() ||
      !u.src(0).src(1).is_const())
    return false;
  if (u.src(2).const_int() < u.src(0).src(1).const_int() - 1) return false;
  const LinearForm f = linear_form(u.src(1));
  return f.rest.empty() && std::all_of(f.terms.begin(), f.terms.end(), [](const auto& t) { return t.second >= 0; });
}

/// a < b, or its contrary, somewhere in the tile; empty: not a comparison of that kind, or one that asks nothing of the
/// loops.
UOp somewhere(UOp a, UOp b, bool contrary) {
  std::vector<std::pair<UOp, int64_t>> stack{{a, 1}, {b, -1}}, terms;
  int64_t offset = 0;
  while (!stack.empty()) {
    auto [u, k] = stack.back();
    stack.pop_back();
    if (u.is_const() && !u.is_invalid()) offset += k * static_cast<int64_t>(u.const_int());
    else if (u.is(Ops::ADD)) {
      stack.push_back({u.src(0), k});
      stack.push_back({u.src(1), k});
    } else if (u.is(Ops::MUL) && u.src(1).is_const())
      stack.push_back({u.src(0), k * static_cast<int64_t>(u.src(1).const_int())});
    else if (u.is(Ops::CAST) && u.src(0).dtype().is_int() && u.dtype().is_int()) stack.push_back({u.src(0), k});
    else if (u.is(Ops::RANGE)) {
      auto it = std::find_if(terms.begin(), terms.end(), [&](const auto& t) { return t.first == u; });
      if (it == terms.end()) terms.push_back({u, k});
      else it->second += k;
    } else if (of_loops(u) || is_clamp(u)) {
      terms.push_back({u, k});
    } else {
      return {};
    }
  }
  // The end of a - b that matters: the least value for a < b, the greatest for its contrary.
  UOp sum;
  for (const auto& [r, k] : terms) {
    if (k == 0) continue;
    if (!r.is(Ops::RANGE) || is_loop(r)) {
      std::vector<std::pair<UOp, UOp>> corner;
      for (UOp inner : ranges_of(r))
        if (!is_loop(inner)) {
          if (!inner.src(0).is_const()) return {};
          corner.push_back({inner, (k < 0) != contrary
                                       ? UOp::constant(inner.src(0).const_value(), inner.dtype()) + ConstValue(-1)
                                       : UOp::constant(int64_t{0}, inner.dtype())});
        }
      UOp t = fold_mul(r.substitute(corner), k);
      sum = sum ? fold_add(sum, t) : t;
    } else if ((k < 0) != contrary) {
      if (!r.src(0).is_const()) return {};
      offset += k * (static_cast<int64_t>(r.src(0).const_int()) - 1);
    }
  }
  if (!sum) return {};
  return contrary ? UOp::alu(Ops::CMPLT, {UOp::constant(-1 - offset), sum})
                  : UOp::alu(Ops::CMPLT, {sum, UOp::constant(-offset)});
}
/// What must hold for `condition`, or its contrary, to hold somewhere in the tile; empty: nothing is known.
UOp somewhere(UOp condition, bool contrary) {
  std::vector<std::pair<UOp, bool>> stack{{condition, contrary}};
  UOp all;
  while (!stack.empty()) {
    auto [u, no] = stack.back();
    stack.pop_back();
    UOp part;
    if (u.is(no ? Ops::OR : Ops::AND)) {
      stack.push_back({u.src(1), no});
      stack.push_back({u.src(0), no});
    } else if (u.is(Ops::CMPNE) && u.src(1).is_const() && u.dtype() == u.src(0).dtype() && u.src(1).const_int())
      stack.push_back({u.src(0), !no});
    else if (u.is(Ops::CMPLT) && u.src(0).dtype().is_int()) part = somewhere(u.src(0), u.src(1), no);
    if (part) all = all ? all & part : part;
  }
  return all;
}
}  // namespace

UOp skip_masked(UOp sink) {
  const UOps order = sink.toposort();
  std::unordered_map<UOp, UOps> users;
  std::unordered_map<UOp, int> reduced;  // by range: reduces over it
  for (UOp u : order) {
    for (UOp s : u.srcs()) users[s].push_back(u);
    if (u.is(Ops::REDUCE))
      for (size_t i = range_start(u); i < u.nsrc(); i++) reduced[u.src(i)]++;
  }
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp reduce : order) {
    if (!reduce.is(Ops::REDUCE)) continue;
    UOp loop, value = reduce, up;
    double trips = 1;
    bool alone = true;
    for (size_t i = range_start(reduce); i < reduce.nsrc(); i++) {
      UOp r = reduce.src(i);
      if (!is_loop(r)) continue;
      alone &= r.src(0).is_const() && reduced[r] == 1;
      trips *= static_cast<double>(vmax(r.src(0)));
      if (!loop || nests_before(r, loop)) loop = r;
    }
    if (!loop || !alone || trips < kLong) continue;
    // Up to the choice between the result and something else.
    for (;;) {
      const UOps& above = users[value];
      if (above.size() != 1 || !above[0].in(groups::kElementwise)) break;
      up = above[0];
      if (up.is(Ops::WHERE)) break;
      value = up;
      up = UOp();
    }
    if (!up || !up.is(Ops::WHERE) || up.src(0) == value || up.src(1) == up.src(2)) continue;
    UOp open = somewhere(up.src(0), up.src(2) == value);
    if (!open) continue;
    const UOps &around = ranges_of(reduce), &asked = ranges_of(open);
    if (!std::all_of(asked.begin(), asked.end(),
                     [&](UOp r) { return std::find(around.begin(), around.end(), r) != around.end(); }))
      continue;
    UOp end = UOp::alu(Ops::WHERE, {open, loop.src(0), UOp::constant(int64_t{0})});
    map.push_back({loop, UOp::make(Ops::RANGE, loop.dtype(), {end}, loop.arg(), loop.tag())});
  }
  return sink.substitute(map);
}

}  // namespace tg
