/// \file Gates: what a condition says about bounds, and what that makes of an index.
#include <algorithm>

#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using namespace upat;

/// True when a node the predicate likes is reachable without passing a memory access. Gives up (false) beyond `limit`
/// nodes.
template <class F> bool any_reachable(UOp u, F&& wanted, size_t limit = 512) {
  MemoScope seen;
  UOps stack{u};
  for (size_t visited = 0; !stack.empty();) {
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
bool contains(UOp u, UOp part) {
  return any_reachable(u, [&](UOp n) { return n == part; });
}
bool contains_ops(UOp u, OpSet ops) {
  return any_reachable(u, [&](UOp n) { return ops.has(n.op()); });
}

/// Ops that tighter bounds can simplify; a sum of products has none.
constexpr OpSet kBoundSensitive =
    Ops::FLOORDIV | Ops::FLOORMOD | Ops::CMPLT | Ops::CMPNE | Ops::MAX | Ops::WHERE | Ops::CDIV | Ops::CMOD | Ops::CAST;

UOp stand_in(int index, Bounds b) {
  return UOp::variable(str("given", index), static_cast<int64_t>(std::max<int128>(b.lo, INT64_MIN)),
                       static_cast<int64_t>(std::min<int128>(b.hi, INT64_MAX)));
}

/// k with all terms of k * part among the terms of x; 0: none.
int128 multiple_in(const Linear& x, const Linear& part) {
  int128 k = 0;
  size_t i = 0;  // both are in order
  for (const Term& p : part.terms) {
    while (i < x.terms.size() && x.terms[i].base != p.base) i++;
    if (i == x.terms.size() || x.terms[i].coef % p.coef) return 0;
    int128 q = x.terms[i].coef / p.coef;
    if (k && q != k) return 0;
    k = q;
  }
  return k;
}

/// u with `expr` replaced, also where a sum contains a multiple of it: 56*a + 56*b + c contains a + b.
UOp replace_sum(UOp u, UOp expr, UOp by) {
  if (!expr.is(Ops::ADD)) return u.substitute({{expr, by}});
  const Linear part(expr);
  if (part.terms.size() < 2) return u.substitute({{expr, by}});
  MemoScope memo;
  memo.set(expr, by);
  UOps stack{u}, src;
  while (!stack.empty()) {
    UOp n = stack.back();
    if (memo.has(n)) {
      stack.pop_back();
      continue;
    }
    if (n.is(Ops::ADD) && n.dtype() == dtypes::weakint) {
      // A sum is taken as a whole, so that the order of its terms does not matter.
      Linear l(n);
      int128 k = multiple_in(l, part);
      size_t before = stack.size();
      for (const Term& t : l.terms)
        if (!memo.has(t.base)) stack.push_back(t.base);
      if (stack.size() != before) continue;
      if (k) {
        l.add(part, -k);
        l.terms.push_back({by, k});
        l.normalize();
      }
      bool changed = k != 0;
      for (Term& t : l.terms)
        if (UOp m = memo.get(t.base); m && m != t.base) {
          t.base = m;
          changed = true;
        }
      if (changed) l.normalize();
      memo.set(n, changed ? l.build() : n);
      stack.pop_back();
      continue;
    }
    size_t before = stack.size();
    for (UOp s : n.srcs())
      if (!memo.has(s)) stack.push_back(s);
    if (stack.size() != before) continue;
    bool changed = false;
    src.clear();
    for (UOp s : n.srcs()) {
      src.push_back(memo.get(s));
      changed |= src.back() != s;
    }
    memo.set(n, changed ? n.with_srcs(src) : n);
    stack.pop_back();
  }
  return memo.get(u);
}

UOps clauses_of(UOp gate) {
  UOps all = split_terms(gate, Ops::AND), out;
  for (UOp c : all)
    if (std::find(out.begin(), out.end(), c) == out.end()) out.push_back(c);
  return out;
}
UOp conjunction(const UOps& clauses) { return join_terms(Ops::AND, clauses, dtypes::bool_); }

/// Elements of the storage an INDEX reads, -1 when it is not a literal.
int128 size_of(UOp index) {
  UOp p = index.src(0);
  while (p.is(Ops::AFTER)) p = p.src(0);
  if (index.nsrc() != 2 || !p.in(groups::kDefines) || p.nsrc() == 0) return -1;
  int128 n = 1;
  for (UOp d : p.src(0).srcs()) {
    if (!d.is_const()) return -1;
    n *= d.const_int();
  }
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
      for (UOp k : kept)
        if (k != c) without.push_back(k);
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
  for (UOp c : outer)
    if (!has(inner, c)) kept.push_back(c);
  if (kept.size() == outer.size()) return {};
  return kept.empty() ? load : UOp::alu(Ops::WHERE, {conjunction(kept), load, where.src(2)});
}
}  // namespace

std::optional<Clause> parse_clause(UOp v) {
  auto is_int_lt = [](UOp u) { return u.is(Ops::CMPLT) && u.src(0).dtype().is_int(); };
  if (v.is(Ops::CMPNE) && v.src(1).is_const_int(1) && is_int_lt(v.src(0))) {
    UOp lt = v.src(0);  // not x < c
    if (lt.src(0).is_const()) return Clause{lt.src(1), true, lt.src(0).const_int(), true};
    Bounds b = bounds_of(lt.src(1));
    if (b.lo > -kUnbounded) return Clause{lt.src(0), false, b.lo, lt.src(1).is_const()};
    return {};
  }
  if (!is_int_lt(v)) return {};
  if (v.src(0).is_const()) return Clause{v.src(1), false, v.src(0).const_int() + 1, true};
  Bounds b = bounds_of(v.src(1));
  if (b.hi >= kUnbounded) return {};
  return Clause{v.src(0), true, b.hi - 1, v.src(1).is_const()};
}

std::pair<UOp, UOp> split_gate(UOp index) {
  if (index.is(Ops::WHERE) && index.src(2).is_invalid()) return {index.src(0), index.src(1)};
  return {UOp::constant(true), index};
}

UOp uop_given_valid(UOp valid, UOp u, bool try_simplex) {
  if (valid.is_const() || u.nsrc() == 0 || !contains_ops(u, kBoundSensitive)) return u;
  struct Known {
    UOp expr;
    Bounds b;
  };
  std::vector<Known> known;
  for (UOp clause : clauses_of(valid)) {
    if (clause == u) return UOp::constant(true);
    auto c = parse_clause(clause);
    if (!c || c->expr.is_const()) continue;
    auto it = std::find_if(known.begin(), known.end(), [&](const Known& k) { return k.expr == c->expr; });
    if (it == known.end()) {
      known.push_back({c->expr, bounds_of(c->expr)});
      it = known.end() - 1;
    }
    if (c->upper) it->b.hi = std::min(it->b.hi, c->bound);
    else it->b.lo = std::max(it->b.lo, c->bound);
  }
  // Nothing new, or a contradiction (never executed).
  std::erase_if(known, [](const Known& k) { return k.b.lo > k.b.hi || k.b == bounds_of(k.expr); });
  // A clause about the same expression is decided by the bounds alone.
  if (auto c = parse_clause(u)) {
    for (const Known& k : known) {
      if (k.expr != c->expr) continue;
      if (c->upper ? k.b.lo > c->bound : k.b.hi < c->bound) return UOp::constant(false);
      if (!c->exact) break;
      if (c->upper ? k.b.hi <= c->bound : k.b.lo >= c->bound) return UOp::constant(true);
      std::erase_if(known, [&](const Known& o) { return o.expr == c->expr; });
      break;
    }
  }
  if (known.empty()) return u;
  // Larger expressions first: they contain the smaller ones, which then get a turn of their own.
  std::stable_sort(known.begin(), known.end(), [](const Known& a, const Known& b) {
    return split_add_terms(a.expr).size() > split_add_terms(b.expr).size();
  });
  auto simplified_with = [&](UOp v, std::span<const std::pair<UOp, UOp>> standins) {
    UOp r = v;
    std::vector<std::pair<UOp, UOp>> back;
    for (auto& [expr, standin] : standins)
      if (UOp s = replace_sum(r, expr, standin); s != r) {
        r = s;
        back.push_back({standin, expr});
      }
    if (r == v) return v;
    UOp simple = simplify(r);
    for (size_t i = back.size(); i-- > 0;)
      simple = simple.substitute({back[i]});  // an expression may contain another's stand-in
    return simplify(simple);
  };
  std::vector<std::pair<UOp, UOp>> standins;
  for (size_t i = 0; i < known.size(); i++)
    standins.push_back({known[i].expr, stand_in(static_cast<int>(i), known[i].b)});
  u = simplified_with(u, standins);
  if (standins.size() > 1)
    for (auto& s : standins) u = simplified_with(u, {&s, 1});
  if (!try_simplex) return u;
  // x0 + x1 + ... >= 1 with nothing negative: some xi >= 1. What every one of these cases gives holds.
  for (const Known& k : known) {
    if (!k.expr.is(Ops::ADD) || k.b.lo != 1) continue;
    UOps parts = split_add_terms(k.expr);
    if (!std::all_of(parts.begin(), parts.end(), [](UOp p) { return p.in(groups::kIrreducible) && vmin(p) >= 0; }))
      continue;
    UOp common;
    for (UOp p : parts) {
      if (vmax(p) < 1) continue;
      std::pair<UOp, UOp> s{p, stand_in(0, {1, vmax(p)})};
      UOp r = simplified_with(u, {&s, 1});
      if (common && r != common) {
        common = UOp();
        break;
      }
      common = r;
      if (r == u) break;
    }
    if (common) u = common;
  }
  return u;
}

UOp simplify_valid(UOp valid) {
  UOps clauses = clauses_of(valid);
  if (contains_ops(valid, Ops::INDEX)) return {};
  // A clause whose expression occurs in others goes first: it is likely to simplify them.
  std::vector<std::pair<int, UOp>> ranked;
  for (UOp v : clauses) {
    auto c = parse_clause(v);
    int uses = 0;
    if (c)
      for (UOp other : clauses) uses += contains(other, c->expr);
    ranked.push_back({-uses, v});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](auto& a, auto& b) { return a.first < b.first; });
  UOps out;
  bool changed = clauses.size() != split_terms(valid, Ops::AND).size();
  for (auto& [rank, v] : ranked) {
    UOp s = out.empty() ? v : uop_given_valid(conjunction(out), v);
    changed |= s != v;
    if (s.is_const_int(1)) {
      changed = true;
      continue;
    }
    out.push_back(s);
  }
  return changed ? conjunction(out) : UOp();
}

const PatternMatcher<UOp>& pm_simplify_valid() {
  // clang-format off
  static const PatternMatcher<UOp> pm{
      rule(when(u = node<Ops::AND>(), [](UOp v) { return v.dtype().is_bool(); }),
           [](U v) { return simplify_valid(v); }),
      // An access inside x happens even where the gate is false: its own gate must not rely on this one.
      rule(where(a, i, inv), [](A gate, I x, Inv no) -> UOp {
        if (x.dtype() != dtypes::weakint || contains_ops(x, Ops::INDEX)) return {};
        UOp s = uop_given_valid(gate, x, false);
        return s == x ? UOp() : UOp::alu(Ops::WHERE, {gate, s, no});
      }),
  };
  // clang-format on
  return pm;
}

const PatternMatcher<UOp>& pm_load_validity() {
  // clang-format off
  static const PatternMatcher<UOp> pm{
      rule(op<Ops::WHERE>(a, x = op<Ops::LOAD>(op<Ops::INDEX>(y, z)), c0), [](A valid, X load, C0 zero) -> UOp {
        if (zero.const_float() != 0) return {};
        return relax_gates(UOp::alu(Ops::WHERE, {valid, load, zero}), load);
      }),
  };
  // clang-format on
  return pm;
}

}  // namespace tg
