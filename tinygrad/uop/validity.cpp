/// \file Gates: what a condition says about bounds, and what that makes of an index.
#include <algorithm>

#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using namespace upat;

/// True when a node the predicate likes is reachable without passing a memory access. Gives up (false) beyond `limit` nodes.
template <class F> bool any_reachable(UOp u, F&& wanted, size_t limit = 512) {
  MemoScope seen;
  UOps stack{u};
  for (size_t visited = 0; !stack.empty(); ) {
    UOp n = stack.back();
    stack.pop_back();
    if (seen.has(n)) continue;
    if (wanted(n)) return true;
    if (++visited > limit) return false;
    seen.mark(n);
    for (UOp s : n.srcs()) stack.push_back(s);
  }
  return false;
}
bool contains(UOp u, UOp part) { return any_reachable(u, [&](UOp n) { return n == part; }); }
bool contains_ops(UOp u, OpSet ops) { return any_reachable(u, [&](UOp n) { return ops.has(n.op()); }); }

/// Ops that tighter bounds can simplify; a sum of products has none.
constexpr OpSet kBoundSensitive = Ops::FLOORDIV | Ops::FLOORMOD | Ops::CMPLT | Ops::CMPNE | Ops::MAX | Ops::WHERE | Ops::CDIV | Ops::CMOD | Ops::CAST;

UOp stand_in(int index, Bounds b) {
  return UOp::variable(str("given", index), static_cast<int64_t>(std::max<int128>(b.lo, INT64_MIN)), static_cast<int64_t>(std::min<int128>(b.hi, INT64_MAX)));
}
UOp with_bounds(UOp u, UOp expr, UOp standin) {
  UOp r = u.substitute({{expr, standin}});
  return r == u ? u : simplify(simplify(r).substitute({{standin, expr}}));
}

UOps clauses_of(UOp gate) {
  UOps all = split_terms(gate, Ops::AND), out;
  for (UOp c : all) if (std::find(out.begin(), out.end(), c) == out.end()) out.push_back(c);
  return out;
}
UOp conjunction(const UOps& clauses) { return join_terms(Ops::AND, clauses, dtypes::bool_); }

/// Elements of the storage an INDEX reads, -1 when it is not a literal.
int128 size_of(UOp index) {
  UOp p = index.src(0);
  while (p.is(Ops::AFTER)) p = p.src(0);
  if (index.nsrc() != 2 || !p.in(groups::kDefines) || p.nsrc() == 0) return -1;
  int128 n = 1;
  for (UOp d : p.src(0).srcs()) { if (!d.is_const()) return -1; n *= d.const_int(); }
  return n;
}

/// WHERE(valid, LOAD(INDEX(p, WHERE(gate, i, Invalid))), zero); see pm_load_validity.
UOp relax_gates(UOp where, UOp load) {
  UOp index = load.src(0);
  auto [gate, i] = split_gate(index.src(1));
  UOps outer = clauses_of(where.src(0)), inner = clauses_of(gate);
  auto has = [](const UOps& v, UOp c) { return std::find(v.begin(), v.end(), c) != v.end(); };
  // Inner clauses the outer condition repeats are only needed to stay inside the buffer.
  if (int128 size = size_of(index); size >= 0) {
    UOps kept = inner;
    for (UOp c : inner) {
      if (!has(outer, c)) continue;
      UOps without;
      for (UOp k : kept) if (k != c) without.push_back(k);
      Bounds b = bounds_of(without.empty() ? i : uop_given_valid(conjunction(without), i, false));
      if (b.lo >= 0 && b.hi < size) kept = without;
    }
    if (kept.size() != inner.size()) {
      UOp narrowed = index.with_srcs(UOps{index.src(0), i.valid(conjunction(kept))});
      UOps src(load.srcs().begin(), load.srcs().end());
      src[0] = narrowed;
      return UOp::alu(Ops::WHERE, {where.src(0), load.with_srcs(src), where.src(2)});
    }
  }
  // Outer clauses the gate repeats: the load gives 0 there already.
  UOps kept;
  for (UOp c : outer) if (!has(inner, c)) kept.push_back(c);
  if (kept.size() == outer.size()) return {};
  return kept.empty() ? load : UOp::alu(Ops::WHERE, {conjunction(kept), load, where.src(2)});
}
}  // namespace

std::optional<Clause> parse_clause(UOp v) {
  auto is_int_lt = [](UOp u) { return u.is(Ops::CMPLT) && u.src(0).dtype().is_int(); };
  if (v.is(Ops::CMPNE) && v.src(1).is_const_int(1) && is_int_lt(v.src(0))) {
    UOp lt = v.src(0);  // not x < c
    if (lt.src(0).is_const()) return Clause{lt.src(1), true, lt.src(0).const_int()};
    Bounds b = bounds_of(lt.src(1));
    if (b.lo > -kUnbounded) return Clause{lt.src(0), false, b.lo};
    return {};
  }
  if (!is_int_lt(v)) return {};
  if (v.src(0).is_const()) return Clause{v.src(1), false, v.src(0).const_int() + 1};
  Bounds b = bounds_of(v.src(1));
  if (b.hi >= kUnbounded) return {};
  return Clause{v.src(0), true, b.hi - 1};
}

std::pair<UOp, UOp> split_gate(UOp index) {
  if (index.is(Ops::WHERE) && index.src(2).is_invalid()) return {index.src(0), index.src(1)};
  return {UOp::constant(true), index};
}

UOp uop_given_valid(UOp valid, UOp u, bool try_simplex) {
  if (valid.is_const() || u.nsrc() == 0 || !contains_ops(u, kBoundSensitive)) return u;
  std::vector<std::pair<UOp, Bounds>> known;
  for (UOp clause : clauses_of(valid)) {
    auto c = parse_clause(clause);
    if (!c || c->expr.is_const()) continue;
    auto it = std::find_if(known.begin(), known.end(), [&](auto& k) { return k.first == c->expr; });
    if (it == known.end()) known.push_back({c->expr, bounds_of(c->expr)}), it = known.end() - 1;
    if (c->upper) it->second.hi = std::min(it->second.hi, c->bound);
    else it->second.lo = std::max(it->second.lo, c->bound);
  }
  std::vector<std::pair<UOp, UOp>> whole, back;
  for (size_t i = 0; i < known.size(); i++) {
    auto [expr, b] = known[i];
    if (b.lo > b.hi || b == bounds_of(expr)) continue;  // contradictory (never executed), or nothing new
    UOp fake = stand_in(static_cast<int>(i), b);
    if (contains(u, expr)) {
      whole.push_back({expr, fake}), back.push_back({fake, expr});
      u = with_bounds(u, expr, fake);
    }
    // x0 + x1 + ... >= 1 with nothing negative: some xi >= 1. What every one of these cases gives holds.
    if (!try_simplex || !expr.is(Ops::ADD) || b.lo != 1) continue;
    UOps parts = split_add_terms(expr);
    if (!std::all_of(parts.begin(), parts.end(), [](UOp p) { return p.in(groups::kIrreducible) && vmin(p) >= 0; })) continue;
    UOp common;
    for (UOp p : parts) {
      if (vmax(p) < 1) continue;
      UOp r = contains(u, p) ? with_bounds(u, p, stand_in(static_cast<int>(i), {1, vmax(p)})) : u;
      if (common && r != common) { common = UOp(); break; }
      common = r;
    }
    if (common) u = common;
  }
  if (whole.size() < 2) return u;
  UOp all = u.substitute(whole);
  return all == u ? u : simplify(simplify(all).substitute(back));
}

UOp simplify_valid(UOp valid) {
  UOps clauses = clauses_of(valid);
  if (contains_ops(valid, Ops::INDEX)) return {};
  // A clause whose expression occurs in others goes first: it is likely to simplify them.
  std::vector<std::pair<int, UOp>> ranked;
  for (UOp v : clauses) {
    auto c = parse_clause(v);
    int uses = 0;
    if (c) for (UOp other : clauses) uses += contains(other, c->expr);
    ranked.push_back({-uses, v});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](auto& a, auto& b) { return a.first < b.first; });
  UOps out;
  bool changed = clauses.size() != split_terms(valid, Ops::AND).size();
  for (auto& [rank, v] : ranked) {
    UOp s = out.empty() ? v : uop_given_valid(conjunction(out), v);
    changed |= s != v;
    if (s.is_const_int(1)) { changed = true; continue; }
    out.push_back(s);
  }
  return changed ? conjunction(out) : UOp();
}

const PatternMatcher<UOp>& pm_simplify_valid() {
  static const PatternMatcher<UOp> pm{
      rule(when(u = node<Ops::AND>(), [](UOp v) { return v.dtype().is_bool(); }), [](U v) { return simplify_valid(v); }),
      // An access inside x happens even where the gate is false: its own gate must not rely on this one.
      rule(where(a, i, inv), [](A gate, I x, Inv no) -> UOp {
        if (x.dtype() != dtypes::weakint || contains_ops(x, Ops::INDEX)) return {};
        UOp s = uop_given_valid(gate, x, false);
        return s == x ? UOp() : UOp::alu(Ops::WHERE, {gate, s, no});
      }),
  };
  return pm;
}

const PatternMatcher<UOp>& pm_load_validity() {
  static const PatternMatcher<UOp> pm{
      rule(op<Ops::WHERE>(a, x = op<Ops::LOAD>(op<Ops::INDEX>(y, z)), c0), [](A valid, X load, C0 zero) -> UOp {
        if (zero.const_float() != 0) return {};
        return relax_gates(UOp::alu(Ops::WHERE, {valid, load, zero}), load);
      }),
  };
  return pm;
}

}  // namespace tg
