/// \file Gates: bounds that follow from a condition, and simplification of indices under it.
#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/rebuild.h"
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
int128 multiple_in(const AffineSum& x, const AffineSum& part) {
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
  const AffineSum part(expr);
  if (part.terms.size() < 2) return u.substitute({{expr, by}});
  MemoScope memo;
  memo.set(expr, by);
  // A sum is taken as a whole, so that the order of its terms does not matter.
  auto is_sum = [](UOp n) { return n.is(Ops::ADD) && n.dtype() == dtypes::weakint; };
  UOps bases, src;
  auto sources = [&](UOp n) -> std::span<const UOp> {
    if (!is_sum(n)) return n.srcs();
    bases.clear();
    for (const Term& t : AffineSum(n).terms) bases.push_back(t.base);
    return bases;
  };
  walk(
      u, [&](UOp n) { return memo.has(n); }, sources,
      [&](UOp n) {
        if (!is_sum(n)) {
          src.clear();
          for (UOp s : n.srcs()) src.push_back(memo.get(s));
          memo.set(n, same_or_with(n, src));
          return;
        }
        AffineSum l(n);
        const int128 k = multiple_in(l, part);
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
      });
  return memo.get(u);
}

UOps clauses_of(UOp gate) {
  UOps all = split_terms(gate, Ops::AND), out;
  for (UOp c : all) add_once(out, c);
  return out;
}
UOp conjunction(const UOps& clauses) { return join_terms(Ops::AND, clauses, dtypes::bool_); }

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

namespace {
/// An expression and bounds that hold of it wherever a gate does.
struct Known {
  UOp expr;
  Bounds b;
};
using StandIn = std::pair<UOp, UOp>;  // an expression, and the variable that replaces it

/// Returns the bounds of which a conjunction says more than its expressions themselves do. Contradictions, under which
/// nothing is executed, are dropped.
std::vector<Known> bounds_given(const UOps& clauses) {
  std::vector<Known> known;
  for (UOp clause : clauses) {
    const auto c = parse_clause(clause);
    if (!c || c->expr.is_const()) continue;
    auto it = std::find_if(known.begin(), known.end(), [&](const Known& k) { return k.expr == c->expr; });
    if (it == known.end()) it = known.insert(it, {c->expr, bounds_of(c->expr)});
    if (c->upper) it->b.hi = std::min(it->b.hi, c->bound);
    else it->b.lo = std::max(it->b.lo, c->bound);
  }
  std::erase_if(known, [](const Known& k) { return k.b.lo > k.b.hi || k.b == bounds_of(k.expr); });
  return known;
}

/// Returns whether a clause holds of an expression within the bounds, if these alone tell.
std::optional<bool> decided(const Clause& c, Bounds b) {
  if (c.upper ? b.lo > c.bound : b.hi < c.bound) return false;
  if (c.exact && (c.upper ? b.hi <= c.bound : b.lo >= c.bound)) return true;
  return {};
}

/// Simplifies u with variables of tighter bounds in the place of expressions.
UOp simplify_with(UOp u, std::span<const StandIn> standins) {
  UOp r = u;
  std::vector<StandIn> back;
  for (auto& [expr, standin] : standins)
    if (UOp s = replace_sum(r, expr, standin); s != r) {
      r = s;
      back.push_back({standin, expr});
    }
  if (r == u) return u;
  r = simplify(r);
  // An expression may contain another's stand-in.
  for (size_t i = back.size(); i-- > 0;) r = r.substitute({back[i]});
  return simplify(r);
}

/// x0 + x1 + ... >= 1 with nothing negative: some xi >= 1. Returns what u simplifies to in all of these cases; empty
/// where they differ.
UOp simplify_cases(UOp u, const UOps& parts) {
  UOp common;
  for (UOp p : parts) {
    if (vmax(p) < 1) continue;
    const StandIn s{p, stand_in(0, {1, vmax(p)})};
    const UOp r = simplify_with(u, {&s, 1});
    if (common && r != common) return {};
    common = r;
    if (r == u) break;
  }
  return common;
}
}  // namespace

UOp uop_given_valid(UOp valid, UOp u, bool try_simplex) {
  if (valid.is_const() || u.nsrc() == 0 || !contains_ops(u, kBoundSensitive)) return u;
  const UOps clauses = clauses_of(valid);
  if (contains(clauses, u)) return UOp::constant(true);
  std::vector<Known> known = bounds_given(clauses);
  // A clause about the same expression is decided by the bounds alone.
  if (const auto c = parse_clause(u)) {
    auto same = [&](const Known& k) { return k.expr == c->expr; };
    if (const auto k = std::find_if(known.begin(), known.end(), same); k != known.end()) {
      if (const auto holds = decided(*c, k->b)) return UOp::constant(*holds);
      if (c->exact) known.erase(k);
    }
  }
  if (known.empty()) return u;
  // Larger expressions first: they contain the smaller ones, which then get a turn of their own.
  std::stable_sort(known.begin(), known.end(), [](const Known& a, const Known& b) {
    return split_add_terms(a.expr).size() > split_add_terms(b.expr).size();
  });
  std::vector<StandIn> standins;
  for (const Known& k : known) standins.push_back({k.expr, stand_in(static_cast<int>(standins.size()), k.b)});
  u = simplify_with(u, standins);
  if (standins.size() > 1)
    for (auto& s : standins) u = simplify_with(u, {&s, 1});
  if (!try_simplex) return u;
  auto nonnegative = [](UOp p) { return p.in(groups::kIrreducible) && vmin(p) >= 0; };
  for (const Known& k : known) {
    if (!k.expr.is(Ops::ADD) || k.b.lo != 1) continue;
    const UOps parts = split_add_terms(k.expr);
    if (!std::all_of(parts.begin(), parts.end(), nonnegative)) continue;
    if (const UOp r = simplify_cases(u, parts)) u = r;
  }
  return u;
}

Bounds bounds_within(UOp u, UOp expr, Bounds b) { return bounds_of(simplify(replace_sum(u, expr, stand_in(0, b)))); }

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

}  // namespace tg
