/// \file Merging and splitting of ranges before optimisation.
#include <algorithm>
#include <map>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/expand.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/codegen/opt.h"
#include "tinygrad/codegen/rebuild.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
bool is_zero(UOp u) { return u.is_const() && !u.is_invalid() && u.const_float() == 0; }
int64_t size_of(UOp range) { return range.src(0).is_const() ? static_cast<int64_t>(range.src(0).const_int()) : 0; }

constexpr int64_t kNear = 4;         ///< lanes that share an element, or lie so far apart
constexpr int64_t kDigitLanes = 16;  ///< digits that are a multiple of this are as good for lanes as the whole range

/// Replaces ranges by expressions, and in the lists of END and REDUCE by the ranges `parts` names.
UOp replace_ranges(UOp sink, const std::map<uint32_t, std::pair<UOp, UOps>>& map) {
  MemoScope memo;
  UOps src;
  for (UOp u : sink.toposort()) {
    if (auto it = map.find(u.id()); it != map.end()) {
      memo.set(u, it->second.first);
      continue;
    }
    src.clear();
    bool changed = false;
    const uint32_t ends = u.in(Ops::END | Ops::REDUCE) ? range_start(u) : u.nsrc();
    for (uint32_t i = 0; i < u.nsrc(); i++) {
      auto it = map.find(u.src(i).id());
      if (i >= ends && it != map.end()) {
        src.insert(src.end(), it->second.second.begin(), it->second.second.end());
        changed = true;
      } else {
        src.push_back(memo.get(u.src(i)));
        changed |= src.back() != u.src(i);
      }
    }
    if (u.in(Ops::END | Ops::REDUCE)) {
      // A merged pair names one range twice.
      UOps once(src.begin(), src.begin() + ends);
      for (size_t i = ends; i < src.size(); i++)
        if (std::find(once.begin() + ends, once.end(), src[i]) == once.end()) once.push_back(src[i]);
      memo.set(u, changed ? UOp::make(u.op(), u.dtype(), once, u.arg(), u.tag()) : u);
    } else {
      memo.set(u, changed ? fold(u.op(), u.dtype(), src, u.arg(), u.tag()) : u);
    }
  }
  return memo.get(sink);
}

/// r used as r / c and r % c: r becomes the sum of its digits.
UOp split_digits(UOp sink) {
  std::map<uint32_t, std::vector<int64_t>> radix;
  std::vector<std::pair<uint32_t, int64_t>>
      phases;  // output ranges whose remainder by a small number decides what is read
  UOps order = sink.toposort();
  for (UOp u : order) {
    if (!u.is(Ops::FLOORMOD) || !u.src(1).is_const() || !u.dtype().is_weak() || u.src(1).const_int() > kNear) continue;
    for (const auto& [r, k] : linear_form(u.src(0)).terms)
      if (r.arg<RangeArg>().type == AxisType::kLoop)
        phases.emplace_back(r.id(), static_cast<int64_t>(u.src(1).const_int()));
  }
  auto phase = [&](UOp r, int64_t c) {
    return std::find(phases.begin(), phases.end(), std::pair{r.id(), c}) != phases.end();
  };
  // A range with phases may end within the last step.
  auto splits = [&](UOp r, int64_t c) { return size_of(r) > c && (size_of(r) % c == 0 || phase(r, c)); };
  for (UOp u : order) {
    if (!u.in(Ops::FLOORDIV | Ops::FLOORMOD) || !u.src(1).is_const() || !u.dtype().is_weak()) continue;
    auto c = static_cast<int64_t>(u.src(1).const_int());
    UOp x = u.src(0);
    if (x.is(Ops::FLOORDIV) && x.src(1).is_const()) {
      c *= static_cast<int64_t>(x.src(1).const_int());
      x = x.src(0);
    } else if (x.is(Ops::FLOORMOD) && x.src(1).is_const() && x.src(1).const_int() % c == 0) x = x.src(0);
    if (x.is(Ops::RANGE) && c > 1 && splits(x, c)) radix[x.id()].push_back(c);
    // (r - k + 1) / 2, the gradient of what was read in steps of two: with r = 2 a + b that is a + (b - k + 1) / 2,
    // steps of one along a.
    if (!x.is(Ops::ADD) || c < 2 || c > kNear) continue;
    for (const auto& [r, k] : linear_form(x).terms)
      if ((k == 1 || k == -1) && r.arg<RangeArg>().type == AxisType::kLoop && splits(r, c)) radix[r.id()].push_back(c);
  }
  // A range that walks an operand of a reduction contiguously stays whole: that access is made in the innermost loop,
  // the ones with digits are not. Digits of whole registers cost it nothing when it is reduced itself, and phases of a
  // stride are lanes of one phase each, a few elements apart.
  for (UOp u : order) {
    if (!u.is(Ops::REDUCE)) continue;
    for (UOp v : u.src(0).toposort()) {
      if (!v.is(Ops::LOAD) || !v.src(0).is(Ops::INDEX)) continue;
      for (const auto& [r, c] : linear_form(v.src(0).src(1)).terms)
        if (auto it = radix.find(r.id()); it != radix.end() && (c == 1 || c == -1)) {
          const bool reduced = r.arg<RangeArg>().type == AxisType::kReduce;
          std::erase_if(it->second,
                        [&, r = r](int64_t cut) { return reduced ? cut % kDigitLanes != 0 : !phase(r, cut); });
          if (it->second.empty()) radix.erase(it);
        }
    }
  }
  // Without a reduction, a range that what is stored goes along stays whole where only r / c is read, for a small c:
  // neighbouring lanes share elements, and digits would store in steps of c.
  std::vector<uint32_t> along, taken_apart;
  bool reduces = false;
  for (UOp u : order) {
    reduces |= u.is(Ops::REDUCE);
    if (u.is(Ops::STORE) && u.src(0).is(Ops::INDEX))
      for (const auto& [r, c] : linear_form(u.src(0).src(1)).terms)
        if (c == 1) along.push_back(r.id());
    if (!u.in(Ops::FLOORMOD | Ops::FLOORDIV) ||
        (u.is(Ops::FLOORDIV) && u.src(0).is(Ops::RANGE) && u.src(1).is_const() && u.src(1).const_int() <= kNear))
      continue;
    for (UOp r : ranges_of(u)) taken_apart.push_back(r.id());
  }
  if (!reduces)
    for (uint32_t r : along)
      if (std::find(taken_apart.begin(), taken_apart.end(), r) == taken_apart.end()) radix.erase(r);
  if (radix.empty()) return sink;
  std::map<uint32_t, std::pair<UOp, UOps>> map;
  std::vector<std::pair<UOp, UOp>> ends;  // what says where a range that ends within a step is not beyond its end
  for (UOp r : order) {
    if (!r.is(Ops::RANGE) || !radix.count(r.id())) continue;
    std::vector<int64_t> cuts = radix[r.id()], chain{1};
    std::sort(cuts.begin(), cuts.end());
    // Digits of a range that ends within a step: those of the step alone.
    const auto within = std::find_if(cuts.begin(), cuts.end(), [&](int64_t c) { return size_of(r) % c != 0; });
    const bool rest = within != cuts.end();
    if (rest) cuts = {*within};
    for (int64_t c : cuts)
      if (c > chain.back() && c % chain.back() == 0) chain.push_back(c);
    chain.push_back((size_of(r) + chain.back() - 1) / chain.back() * chain.back());
    UOp sum;
    UOps parts;
    for (size_t i = chain.size() - 1; i-- > 0;) {
      RangeArg arg = r.arg<RangeArg>();
      arg.id.push_back(static_cast<int32_t>(chain.size() - i));
      UOp digit = UOp::range(UOp::constant(chain[i + 1] / chain[i]), arg);
      UOp term = fold_mul(digit, chain[i]);
      sum = sum ? fold_add(sum, term) : term;
      parts.push_back(digit);
    }
    map[r.id()] = {sum, parts};
    if (rest) ends.emplace_back(parts.back(), sum < ConstValue(size_of(r)));
  }
  sink = replace_ranges(sink, map);
  if (ends.empty()) return sink;
  return rebuild(sink, [&](UOp v) {
    if (!v.is(Ops::INDEX)) return v;
    UOp gate;
    for (const auto& [digit, inside] : ends)
      if (depends_on(v.src(1), digit)) gate = gate ? gate & inside : inside;
    if (!gate) return v;
    UOp index = v.src(1);
    if (index.is(Ops::WHERE) && index.src(2).is_invalid()) {
      gate = index.src(0) & gate;
      index = index.src(1);
    }
    return UOp::make(Ops::INDEX, v.dtype(), {v.src(0), index.valid(gate)});
  });
}

/// Merges output ranges (a, b) that every operand of a reduction walks as a * size(b) + b, one of them in steps of one,
/// though what is stored does not: a long contiguous range in the innermost loop is worth a store through x / c and x %
/// c.
UOp merge_inside_reduces(UOp sink) {
  UOps order = sink.toposort(), ranges;
  std::vector<LinearForm> forms;
  for (UOp u : order) {
    if (u.is(Ops::RANGE) && u.arg<RangeArg>().type == AxisType::kLoop && size_of(u) > 0) ranges.push_back(u);
    if (!u.is(Ops::REDUCE)) continue;
    for (UOp v : u.src(0).toposort()) {
      if (v.is(Ops::REDUCE)) return sink;
      if (!v.is(Ops::INDEX)) continue;
      forms.push_back(linear_form(v.src(1)));
      for (UOp x : forms.back().rest)
        if (!ranges_of(x).empty()) return sink;
      if (v.src(1).is(Ops::WHERE) && !ranges_of(v.src(1).src(0)).empty()) return sink;
    }
  }
  if (forms.empty()) return sink;
  for (UOp a : ranges)
    for (UOp b : ranges) {
      if (a == b) continue;
      bool ok = true, unit = false;
      for (const LinearForm& f : forms) {
        int64_t x = f.coefficient(a), y = f.coefficient(b);
        ok &= x == y * size_of(b);
        unit |= y == 1;
      }
      for (UOp u : order) {
        if (!u.is(Ops::END)) continue;
        auto has = [&](UOp r) { return std::find(u.srcs().begin() + 1, u.srcs().end(), r) != u.srcs().end(); };
        ok &= has(a) == has(b);
      }
      if (!ok || !unit) continue;
      UOp wide = UOp::range(UOp::constant(size_of(a) * size_of(b)), b.arg<RangeArg>()), n = UOp::constant(size_of(b));
      std::map<uint32_t, std::pair<UOp, UOps>> map;
      map[a.id()] = {wide / n, {wide}};
      map[b.id()] = {wide % n, {wide}};
      return graph_rewrite(replace_ranges(sink, map), sym(), {.name = "merge inside reduces"});
    }
  return sink;
}

}  // namespace

UOp merge_ranges(UOp sink) {
  UOps order = sink.toposort(), ranges;
  std::vector<LinearForm> forms;
  std::vector<UOps> owners;
  for (UOp u : order) {
    if (u.is(Ops::RANGE)) {
      ranges.push_back(u);
      continue;
    }
    if (u.in(Ops::END | Ops::REDUCE)) owners.push_back(UOps(u.srcs().begin() + range_start(u), u.srcs().end()));
    // Maximal integer expressions: sources that continue no sum.
    const bool sum =
        u.dtype().is_int() && (u.is(Ops::ADD) || (u.is(Ops::MUL) && (u.src(1).is_const() || u.src(0).is_const())) ||
                               (u.is(Ops::WHERE) && u.src(2).is_invalid()));
    const uint32_t ends = u.in(Ops::END | Ops::REDUCE) ? range_start(u) : u.nsrc();
    for (uint32_t i = 0; i < ends; i++) {
      UOp s = u.src(i);
      if (!s.dtype().is_int() || (sum && !(u.is(Ops::WHERE) && i == 0)) || ranges_of(s).empty()) continue;
      if (s.is(Ops::RANGE) || s.in(Ops::ADD | Ops::MUL | Ops::WHERE)) forms.push_back(linear_form(s));
    }
  }
  std::map<uint32_t, std::pair<UOp, UOps>> map;
  std::vector<int64_t> size(ranges.size());
  std::vector<bool> gone(ranges.size(), false);
  for (size_t i = 0; i < ranges.size(); i++) size[i] = size_of(ranges[i]);
  std::vector<std::vector<size_t>> members(ranges.size());  // ranges merged into this one
  bool again = true, any = false;
  while (again) {
    again = false;
    for (size_t a = 0; a < ranges.size(); a++)
      for (size_t b = 0; b < ranges.size() && !gone[a]; b++) {
        if (a == b || gone[b] || size[a] <= 0 || size[b] <= 0 ||
            ranges[a].arg<RangeArg>().type != ranges[b].arg<RangeArg>().type)
          continue;
        bool ok = true, used = false;
        for (const UOps& o : owners) {
          bool x = std::find(o.begin(), o.end(), ranges[a]) != o.end(),
               y = std::find(o.begin(), o.end(), ranges[b]) != o.end();
          ok &= x == y;
        }
        for (const LinearForm& f : forms) {
          if (!ok) break;
          int64_t x = f.coefficient(ranges[a]), y = f.coefficient(ranges[b]);
          ok &= x == y * size[b];
          used |= y != 0;
        }
        if (!ok || (!used && size[a] * size[b] > INT32_MAX)) continue;
        size[b] *= size[a];
        gone[a] = true;
        again = any = true;
        members[b].push_back(a);
      }
  }
  if (!any) return sink;
  for (size_t b = 0; b < ranges.size(); b++) {
    if (gone[b] || members[b].empty()) continue;
    UOp wide = UOp::range(UOp::constant(size[b]), ranges[b].arg<RangeArg>());
    std::vector<size_t> stack = members[b];
    map[ranges[b].id()] = {wide, {wide}};
    while (!stack.empty()) {
      size_t a = stack.back();
      stack.pop_back();
      map[ranges[a].id()] = {UOp::constant(int64_t{0}), {wide}};
      stack.insert(stack.end(), members[a].begin(), members[a].end());
    }
  }
  return replace_ranges(sink, map);
}

namespace {
/// A sum of sums is one sum: REDUCE(WHERE(g, REDUCE(v, inner), 0), outer) -> REDUCE(WHERE(g, v, 0), outer, inner),
/// where nothing else uses the inner one.
UOp flatten_sums(UOp sink) {
  UOps order = sink.toposort();
  std::vector<uint32_t> uses;
  for (UOp u : order)
    for (UOp s : u.srcs()) {
      if (s.id() >= uses.size()) uses.resize(s.id() + s.id() / 2 + 64);
      uses[s.id()]++;
    }
  MemoScope memo;
  UOps src;
  for (UOp u : order) {
    src.clear();
    bool changed = false;
    for (UOp s : u.srcs()) {
      src.push_back(memo.get(s));
      changed |= src.back() != s;
    }
    UOp v = changed ? u.with_srcs(src) : u;
    if (u.is(Ops::REDUCE)) {
      const bool masked = u.src(0).is(Ops::WHERE) && is_zero(u.src(0).src(2)) && u.arg<ReduceArg>().op == Ops::ADD;
      UOp before = masked ? u.src(0).src(1) : u.src(0), inner = masked ? v.src(0).src(1) : v.src(0);
      const bool alone = uses[before.id()] == 1 && uses[u.src(0).id()] == 1;
      if (alone && inner.is(Ops::REDUCE) && inner.arg<ReduceArg>().op == u.arg<ReduceArg>().op &&
          inner.dtype() == u.dtype()) {
        UOps s{masked ? UOp::alu(Ops::WHERE, {v.src(0).src(0), inner.src(0), v.src(0).src(2)}) : inner.src(0)};
        s.insert(s.end(), v.srcs().begin() + 1, v.srcs().end());
        bool distinct = true;
        for (size_t i = 1; i < inner.nsrc(); i++) {
          distinct &= std::find(s.begin() + 1, s.end(), inner.src(i)) == s.end();
          s.push_back(inner.src(i));
        }
        if (distinct) v = UOp::make(Ops::REDUCE, u.dtype(), s, u.arg(), u.tag());
      }
    }
    memo.set(u, v);
  }
  return memo.get(sink);
}
void clauses(UOp gate, UOps* out) {
  UOps stack{gate};
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (u.is(Ops::AND)) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
    } else out->push_back(u);
  }
}

/// WHERE(g, ... LOAD(INDEX(p, WHERE(g & h, i, Invalid))) ..., c): where g does not hold the value is not used, so the
/// load may do without g if i stays inside of the buffer. A weight read at an address that the lanes share would else
/// become a masked gather. Elsewhere both have one gate.
UOp relax_gates(UOp sink) {
  return rebuild(sink, [](UOp v) {
    if (v.is(Ops::WHERE) && !v.src(1).is_invalid() && !v.src(2).is_invalid() && !v.dtype().is_weak()) {
      UOps held, stack{v.src(1)};
      clauses(v.src(0), &held);
      std::vector<std::pair<UOp, UOp>> map;
      MemoScope seen;
      while (!stack.empty()) {
        UOp x = stack.back();
        stack.pop_back();
        if (seen.has(x)) continue;
        seen.mark(x);
        if (x.in(groups::kElementwise)) {
          stack.insert(stack.end(), x.srcs().begin(), x.srcs().end());
          continue;
        }
        if (!x.is(Ops::LOAD) || x.nsrc() != 1 || !x.src(0).is(Ops::INDEX)) continue;
        UOp index = x.src(0).src(1), param = x.src(0).src(0);
        if (!index.is(Ops::WHERE) || !index.src(2).is_invalid() || !param.is(Ops::PARAM)) continue;
        UOps all;
        UOp rest;
        clauses(index.src(0), &all);
        for (UOp c : all)
          if (std::find(held.begin(), held.end(), c) == held.end()) rest = rest ? rest & c : c;
        Bounds b = bounds_of(index.src(1));
        UOp size = param.src(0).src(0), now;
        if (size.is_const() && b.lo >= 0 && b.hi < size.const_int()) {
          now = rest ? index.src(1).valid(rest) : index.src(1);
        } else {
          // The same conditions in another order: one mask for both.
          if (!std::all_of(held.begin(), held.end(),
                           [&](UOp c) { return std::find(all.begin(), all.end(), c) != all.end(); }))
            continue;
          now = index.src(1).valid(rest ? v.src(0) & rest : v.src(0));
        }
        if (now != index) map.push_back({x, UOp::make(Ops::INDEX, x.dtype(), {param, now}).load()});
      }
      if (!map.empty()) {
        UOps s(v.srcs().begin(), v.srcs().end());
        s[1] = s[1].substitute(map);
        v = v.with_srcs(s);
      }
    }
    return v;
  });
}
}  // namespace

UOp simplify_ranges(UOp sink) {
  auto simple = [](UOp before, UOp after) {
    return before == after ? after : graph_rewrite(after, sym(), {.name = "simplify ranges"});
  };
  sink = simple(sink, flatten_sums(sink));
  sink = simple(sink, split_digits(sink));
  sink = simple(sink, merge_ranges(sink));
  for (UOp next; (next = merge_inside_reduces(sink)) != sink;) sink = next;
  return relax_gates(sink);
}

}  // namespace tg
