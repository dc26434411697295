/// \file The tables of algebra; div and mod, and validity, have files of their own.
#include "tinygrad/uop/symbolic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/transcendental.h"

namespace tg {

// ---- integer structure ----
std::pair<UOp, int128> pop_const(UOp u, Ops o) {
  if (u.is(o) && u.src(1).is_const() && !u.src(1).is_invalid()) return {u.src(0), u.src(1).const_int()};
  return {u, o == Ops::MUL ? 1 : 0};
}
int128 const_factor(UOp u) {
  AffineSum l(u);
  int128 g = l.c;
  for (const Term& t : l.terms) g = gcd128(g, t.coef);
  return g < 0 ? -g : g;
}
std::optional<UOp> divides(UOp u, int128 v) {
  if (v == 1) return u;
  if (v == 0) return {};
  if (u.is_const()) return u.is_invalid() || u.const_int() % v ? std::optional<UOp>() : u.const_like(u.const_int() / v);
  AffineSum l(u);
  if (l.c % v) return {};
  for (Term& t : l.terms) {
    if (t.coef % v) return {};
    t.coef /= v;
  }
  l.c /= v;
  return l.build(u.dtype());
}
std::optional<UOp> divide_exact(UOp u, UOp v) {
  if (u == v) return u.const_like(1);
  if (v.is_const()) return divides(u, v.const_int());
  // Term by term: the factors of v must be among the factors of each.
  auto [by, by_const] = pop_const(v, Ops::MUL);
  UOps by_factors = split_terms(by, Ops::MUL);
  AffineSum l(u), out;
  if (l.c || by_const == 0) return {};
  for (const Term& t : l.terms) {
    if (t.coef % by_const) return {};
    UOps factors = split_terms(t.base, Ops::MUL);
    for (UOp f : by_factors) {
      auto it = std::find(factors.begin(), factors.end(), f);
      if (it == factors.end()) return {};
      factors.erase(it);
    }
    if (factors.empty()) out.c += t.coef / by_const;
    else out.terms.push_back({join_terms(Ops::MUL, factors, u.dtype()), t.coef / by_const});
  }
  out.normalize();
  return out.build(u.dtype());
}
UOp symbolic_gcd(std::span<const UOp> us) {
  int128 g = 0;
  bool first = true;
  UOps common;
  DType d = us[0].dtype();
  for (UOp u : us) {
    AffineSum l(u);
    g = gcd128(g, l.c);
    if (l.c) {
      common.clear();
      first = false;
    }
    for (const Term& t : l.terms) {
      g = gcd128(g, t.coef);
      UOps factors = split_terms(t.base, Ops::MUL);
      if (first) {
        common = std::move(factors);
        first = false;
        continue;
      }
      UOps both;
      for (UOp f : common)
        if (auto it = std::find(factors.begin(), factors.end(), f); it != factors.end()) {
          both.push_back(f);
          factors.erase(it);
        }
      common = std::move(both);
    }
  }
  UOp lit = UOp::constant(g, d);
  if (common.empty()) return lit;
  UOp r = join_terms(Ops::MUL, common, d);
  return g == 1 ? r : UOp::alu(Ops::MUL, {r, lit});
}

UOp simplify(UOp u) { return u.is_const() ? u : graph_rewrite(u, symbolic(), {.name = "simplify"}); }

namespace {
using namespace upat;

// ---- pieces of rules ----
constexpr auto is_weak = [](UOp u) { return u.dtype() == dtypes::weakint; };
bool is_number(UOp u) { return u.dtype().is_int() || u.dtype().is_bool(); }
bool is_plain_const(UOp u) { return IsConst::test(u); }
UOp bool_const(bool v) { return UOp::constant(v); }
UOp zero_like(UOp u) { return u.const_like(0); }
UOp weak(int128 v) { return UOp::constant(v, dtypes::weakint); }
UOp lt(UOp a, UOp b) { return UOp::alu(Ops::CMPLT, {a, b}); }

UOp fold_literals(UOp u) {
  if (is_left_to_target(u)) return {};
  ConstValue v[3];
  for (uint32_t k = 0; k < u.nsrc(); k++) v[k] = u.src(k).const_value();
  DType operand = u.src(u.nsrc() - 1).dtype();
  return UOp::constant(eval_alu(u.op(), u.dtype(), std::span<const ConstValue>(v, u.nsrc()), operand), u.dtype());
}
UOp alu2(Ops o, UOp p, UOp q) {
  return p.is_const() && q.is_const() ? fold_literals(UOp::alu(o, {p, q})) : UOp::alu(o, {p, q});
}

/// A literal to the right; weakint operands in structural order.
UOp order_operands(UOp u) {
  UOp p = u.src(0), q = u.src(1);
  if (q.is_const() || p == q || (is_weak(u) && u.in(Ops::ADD | Ops::MUL)))
    return {};  // sums and products have an order of their own
  bool swap = p.is_const() || (p.dtype() == dtypes::weakint && structural_less(q, p));
  return swap ? u.with_srcs(UOps{q, p}) : UOp();
}

// Sums and products of weakint in normal form. Sources are in normal form when this is asked, so one look at the last
// operand tells.
UOp normal_sum(UOp u) {
  UOp l = u.src(0), r = u.src(1);
  bool tail = l.is(Ops::ADD) && l.src(1).is_const();
  bool ok;
  if (r.is_const()) ok = !tail && !l.is_const();
  else if (r.is(Ops::ADD) || l.is_const() || tail) ok = false;
  else {
    UOp last = term_of(l.is(Ops::ADD) ? l.src(1) : l).base, next = term_of(r).base;
    ok = last != next && structural_less(last, next);
  }
  return ok ? UOp() : AffineSum(u).build();
}
UOp normal_product(UOp u) {
  UOp l = u.src(0), r = u.src(1);
  if (r.is_const()) {
    if (r.is_invalid()) return {};
    if (l.is(Ops::ADD)) {  // literals go into the sum
      AffineSum out;
      out.add(AffineSum(l), r.const_int());
      return out.build();
    }
    if (!(l.is(Ops::MUL) && l.src(1).is_const())) return {};
  } else {
    bool tail = l.is(Ops::MUL) && l.src(1).is_const();
    UOp last = l.is(Ops::MUL) ? l.src(1) : l;
    if (!r.is(Ops::MUL) && !tail && !l.is_const() && (last == r || structural_less(last, r))) return {};
  }
  int128 k = 1;
  UOps factors;
  for (UOp f : split_terms(u, Ops::MUL)) {
    if (is_plain_const(f)) k *= f.const_int();
    else factors.push_back(f);
  }
  if (k == 0 || factors.empty()) return weak(k);
  std::sort(factors.begin(), factors.end(), structural_less);
  UOp p = join_terms(Ops::MUL, factors, dtypes::weakint);
  return k == 1 ? p : UOp::alu(Ops::MUL, {p, weak(k)});
}

// ---- comparisons of weakint ----
/// sum < c.
UOp fold_less_than(UOp x, int128 c) {
  AffineSum l(x);
  if (l.terms.size() > 64) return {};
  if (l.c) {
    c -= l.c;
    l.c = 0;
    return lt(l.build(), weak(c));
  }
  if (l.terms.empty()) return {};
  if (l.terms.size() == 1) {
    const Term& t = l.terms[0];
    if (t.coef < 0) return lt(t.base, weak(floordiv(c, t.coef) + 1)).logical_not();  // -k*x < c: x > c/-k
    if (t.coef > 1) return lt(t.base, weak(ceildiv(c, t.coef)));
    if (x.is(Ops::FLOORDIV) && x.src(1).is_const() && x.src(1).const_int() > 0)
      return lt(x.src(0), weak(c * x.src(1).const_int()));
    return {};
  }
  // Positive coefficients of non-negative terms: the sum is less than 1 when every term is 0.
  if (c == 1 && std::any_of(l.terms.begin(), l.terms.end(), [](const Term& t) { return t.coef > 1; }) &&
      std::all_of(l.terms.begin(), l.terms.end(), [](const Term& t) { return t.coef > 0 && vmin(t.base) >= 0; })) {
    for (Term& t : l.terms) t.coef = 1;
    return lt(l.build(), weak(1));
  }
  // d*q + r < c with 0 <= r < d compares q alone, unless r decides.
  int128 d = 0;
  for (const Term& t : l.terms)
    if (t.coef != 1 && t.coef != -1) d = gcd128(d, t.coef);
  if (d < 2) return {};
  AffineSum q, r;
  for (const Term& t : l.terms) {
    if (t.coef % d) r.terms.push_back(t);
    else q.terms.push_back({t.base, t.coef / d});
  }
  Bounds b = r.bounds();
  if (b.lo < 0 || b.hi >= d) return {};
  int128 s = floormod(c, d), k = floordiv(c, d);
  if (s == 0 || b.lo >= s) return lt(q.build(), weak(k));
  return b.hi < s ? lt(q.build(), weak(k + 1)) : UOp();
}
/// Comparison of two expressions through their difference; `ne`: x != y, else x < y.
UOp fold_difference(UOp x, UOp y, bool ne) {
  AffineSum d(x);
  size_t before = d.terms.size() + (d.c != 0);
  if (before > 32) return {};
  AffineSum o(y);
  before += o.terms.size() + (o.c != 0);
  d.add(o, -1);
  d.normalize();
  Bounds b = d.bounds();
  if (ne && (b.lo > 0 || b.hi < 0)) return bool_const(true);
  if (ne && b.lo == 0 && b.hi == 0) return bool_const(false);
  if (!ne && b.hi < 0) return bool_const(true);
  if (!ne && b.lo >= 0) return bool_const(false);
  if (d.terms.size() + (d.c != 0) >= before) return {};
  AffineSum left, right;
  for (const Term& t : d.terms) {
    if (t.coef > 0) left.terms.push_back(t);
    else right.terms.push_back({t.base, -t.coef});
  }
  if (left.terms.empty() || right.terms.empty())
    return ne ? UOp::alu(Ops::CMPNE, {d.build(), weak(0)}) : lt(d.build(), weak(0));
  (d.c > 0 ? left : right).c = d.c > 0 ? d.c : -d.c;
  UOp l = left.build(), r = right.build();
  if (l == x && r == y) return {};
  return ne ? UOp::alu(Ops::CMPNE, {l, r}) : lt(l, r);
}
/// sum != c.
UOp fold_not_equal(UOp x, int128 c) {
  AffineSum l(x);
  c -= l.c;
  int128 g = 0;
  for (const Term& t : l.terms) g = gcd128(g, t.coef);
  if (g > 1 && c % g) return bool_const(true);
  bool flip = l.terms.size() == 1 && l.terms[0].coef < 0;
  if ((g <= 1 && l.c == 0 && !flip) || g == 0) return {};
  l.c = 0;
  if (flip) g = -g;
  for (Term& t : l.terms) t.coef /= g;
  return UOp::alu(Ops::CMPNE, {l.build(), weak(c / g)});
}

UOp constant_by_bounds(UOp u) {
  if (!is_number(u) || u.is_const()) return {};
  Bounds b = bounds_of(u);
  return b.is_const() ? UOp::constant(b.lo, u.dtype()) : UOp();
}
UOp fold_max(UOp u) {
  if (!is_number(u)) return {};
  Bounds p = bounds_of(u.src(0)), q = bounds_of(u.src(1));
  return p.lo >= q.hi ? u.src(0) : p.hi <= q.lo ? u.src(1) : UOp();
}

/// In WHERE(c, t, f), c is true inside t and false inside f. Looks at the upper nodes only.
bool uses_condition(UOp u, UOp c) {
  UOp stack[24];
  int n = 0;
  stack[n++] = u;
  for (int seen = 0; n && seen < 48; seen++) {
    UOp s = stack[--n];
    if (s == c) return true;
    if (!s.in(groups::kElementwise)) continue;
    for (UOp k : s.srcs())
      if (n < 24) stack[n++] = k;
  }
  return false;
}
/// Stays among elementwise nodes: a LOAD in a branch is executed whatever the condition is, so its own gate must not be
/// decided by it. A branch of which much would have to be written twice stays as it is: gradients of chains of
/// functions with two branches (tanh) would double with each of them.
UOp replace_condition(UOp u, UOp c, bool value) {
  if (!uses_condition(u, c)) return u;
  constexpr int kMostCopied = 32;
  int copied = 0;
  MemoScope memo;
  memo.set(c, bool_const(value));
  UOp replaced = rebuild(
      u, memo, [](UOp s) { return !s.in(groups::kElementwise); },
      [&](UOp s, const UOps& src) {
        if (copied > kMostCopied) return s;
        UOp v = same_or_with(s, src);
        copied += v != s;
        return v;
      });
  return copied > kMostCopied ? u : replaced;
}
UOp fold_where_closure(UOp w) {
  UOp c = w.src(0), t = w.src(1), f = w.src(2);
  if (c.is_const()) return {};
  UOp nt = replace_condition(t, c, true), nf = replace_condition(f, c, false);
  return nt == t && nf == f ? UOp() : w.with_srcs(UOps{c, nt, nf});
}

/// Returns x with the signs of -0 and -infinity dropped, whose powers of c + 1/2 have none.
UOp base_of_root(UOp x) {
  const double inf = std::numeric_limits<double>::infinity();
  return x.ne(x.const_like(-inf)).where(x + x.const_like(0.0), x.const_like(inf));
}
/// Returns x to the power of n + 1/2 for an integer n.
UOp half_integer_power(UOp x, double c) {
  const auto reciprocal = [](UOp u) { return UOp::alu(Ops::RECIPROCAL, {u}); };
  const UOp positive = base_of_root(x);
  if (c == -0.5) return reciprocal(UOp::alu(Ops::SQRT, {positive}));
  const UOp base = c < 0 ? reciprocal(positive) : positive, root = UOp::alu(Ops::SQRT, {base});
  return c == 0.5 ? root : UOp::alu(Ops::POW, {base, base.const_like(std::abs(c) - 0.5)}) * root;
}
/// Returns x / c as a multiplication where the reciprocal of c is exact, and neither is close to the least number.
UOp divide_by_literal(UOp x, double c) {
  const DType d = x.dtype().is_weak() ? dtypes::float32 : x.dtype();
  const double r = truncate_float(1 / c, d);
  int power;
  const bool exact = std::abs(std::frexp(c, &power)) == 0.5 && std::isfinite(r) && r * c == 1 &&
                     std::isfinite(truncate_float(c * 4, d));
  return exact ? x * x.const_like(r) : UOp();
}

UOp expand_pow(UOp x, double c) {
  auto lit = [&](double v) { return x.const_like(v); };
  if (!x.dtype().is_float()) {
    if (c == 0) return lit(1);
    if (c < 0 || c > 64) return {};
  } else {
    if (c == 0) return lit(1);
    if (!(std::abs(c) <= 64)) return {};
    const bool narrow = !x.dtype().is_weak() && x.dtype().itemsize() < 4;
    if (narrow && c != 1 && c != 2 && c != -1) return {};  // would round to few bits several times
    const bool half = std::trunc(c) != c && std::trunc(c - 0.5) == c - 0.5;
    if (std::trunc(c) != c && !half) return {};
    // Reciprocals first: a power may overflow where the result is a number.
    if (half) return half_integer_power(x, c);
    if (c < 0) return UOp::alu(Ops::POW, {UOp::alu(Ops::RECIPROCAL, {x}), lit(-c)});
  }
  if (c == 1) return x;
  UOp half = UOp::alu(Ops::POW, {x, lit(std::floor(c / 2))}), r = half * half;
  return std::fmod(c, 2) == 1 ? r * x : r;
}

/// A value known to survive the conversion to `d` unchanged.
bool survives(UOp x, DType d) {
  if (can_lossless_cast(x.dtype(), d)) return true;
  if (!is_number(x) || !d.is_int()) return false;
  Bounds b = bounds_of(x);
  return b.lo >= int_min(d) && b.hi <= int_max(d);
}

UOp flatten_sink(UOp u) {
  constexpr OpSet kHollow = Ops::NOOP | Ops::SINK | Ops::GROUP;
  UOps out;
  bool changed = false;
  for (UOp s : u.srcs()) {
    if (!s.in(kHollow)) {
      out.push_back(s);
      continue;
    }
    changed = true;
    for (UOp k : s.srcs()) out.push_back(k);
  }
  return changed ? u.with_srcs(out) : UOp();
}
/// Drops closed ranges that have become literals (size one).
UOp drop_literal_ranges(UOp u) {
  UOps out{u.src(0)};
  for (uint32_t k = 1; k < u.nsrc(); k++)
    if (!u.src(k).is_const()) out.push_back(u.src(k));
  if (out.size() == u.nsrc()) return {};
  return out.size() == 1 && (u.is(Ops::END) || u.arg<ReduceArg>().axes.empty()) ? out[0] : u.with_srcs(out);
}
/// Integer sums: factors that do not change over the ranges move out.
UOp hoist_factor(UOp red) {
  if (red.arg<ReduceArg>().op != Ops::ADD || !red.dtype().is_int() || red.nsrc() < 2) return {};
  UOps inside, outside;
  for (UOp f : split_terms(red.src(0), Ops::MUL)) {
    const UOps& open = ranges_of(f);
    bool varies = std::any_of(open.begin(), open.end(), [&](UOp r) {
      return std::find(red.srcs().begin() + 1, red.srcs().end(), r) != red.srcs().end();
    });
    (varies ? inside : outside).push_back(f);
  }
  if (outside.empty()) return {};
  outside.insert(outside.begin(), with_first_src(red, join_terms(Ops::MUL, inside, red.dtype())));
  return join_terms(Ops::MUL, outside, red.dtype());
}
UOp gated_store(UOp index, UOp gate, UOp value) {
  if (index.nsrc() != 2) return {};
  auto [old, i] = split_gate(index.src(1));
  return index.with_srcs(UOps{index.src(0), i.valid(old.is_const() ? gate : old & gate)}).store(value);
}

UOp no() { return UOp::invalid(); }
}  // namespace

const PatternMatcher<UOp>& pm_invalid() {
  // clang-format off
  static const PatternMatcher<UOp> pm{
      // Invalid poisons its users.
      rule(any_of(groups::kUnary | Ops::CAST | Ops::BITCAST, inv), [](Inv v) { return UOp(v); }),
      rule(any_of(groups::kBinary, inv, x), [](Inv v, X) { return UOp(v); }),
      rule(any_of(groups::kBinary, x, inv), [](Inv v, X) { return UOp(v); }),
      rule(where(inv, x, y), [](Inv v, X, Y) { return UOp(v); }),
      rule(where(a, inv, inv), [](A, Inv v) { return UOp(v); }),
      // A gate moves out through the users of the gated value.
      rule(where(a, inv, x), [](A c, Inv v, X x) { return c.logical_not().where(x, v); }),
      rule(u = any_of(groups::kUnary | Ops::CAST | Ops::BITCAST, where(a, x, inv)),
           [](U u, A c, X x) { return c.where(u.with_srcs(UOps{x}), no()); }),
      rule(u = any_of(groups::kBinary, where(a, x, inv), y),
           [](U u, A c, X x, Y y) { return c.where(UOp::alu(u.op(), {x, y}), no()); }),
      rule(u = any_of(groups::kBinary, y, where(a, x, inv)),
           [](U u, A c, X x, Y y) { return c.where(UOp::alu(u.op(), {y, x}), no()); }),
      rule(where(where(a, b, inv), x, y), [](A c, B b, X x, Y y) { return c.where(b.where(x, y), no()); }),
      rule(where(a, where(b, x, inv), inv), [](A a, B b, X x) { return (a & b).where(x, no()); }),
      rule(where(a, where(b, x, inv), y),
           [](A a, B b, X x, Y y) { return (a.logical_not() | b).where(a.where(x, y), no()); }),
      rule(where(a, y, where(b, x, inv)), [](A a, B b, X x, Y y) { return (a | b).where(a.where(y, x), no()); }),
      // Accesses.
      rule(u = op<Ops::LOAD>(op<Ops::INDEX>(x, inv, rest), rest),
           [](U load) { return load.nsrc() > 1 ? load.src(1) : zero_like(load); }),
      rule(op<Ops::STORE>(op<Ops::INDEX>(x, inv, rest), rest),
           [](X) { return UOp::make(Ops::NOOP, dtypes::void_, {}); }),
  };
  // clang-format on
  return pm;
}

namespace {
/// A choice between bools of which one is known is an AND or an OR with the gate.
UOp where_of_bools(UOp gate, UOp t, UOp f) {
  if (t.is_invalid() || f.is_invalid()) return {};
  if (is_plain_const(t) && t.const_int()) return f.is_const_int(0) ? gate : gate | f;
  if (is_plain_const(t)) return f.is_const_int(1) ? gate.logical_not() : gate.logical_not() & f;
  if (is_plain_const(f)) return f.const_int() ? gate.logical_not() | t : gate & t;
  return {};
}

const PatternMatcher<UOp>& pm_identities() {
  // clang-format off
  static const PatternMatcher<UOp> pm{
      // ---- literals ----
      rule(u = any_of(groups::kUnary, c0), [](U u) { return fold_literals(u); }),
      rule(u = any_of(groups::kBinary, c0, c1), [](U u) { return fold_literals(u); }),
      rule(u = any_of(groups::kTernary, c0, c1, c2), [](U u) { return fold_literals(u); }),
      rule(u = op<Ops::CAST>(c0),
           [](U u, C0 c) { return UOp::constant(eval_cast(c.const_value(), c.dtype(), u.dtype()), u.dtype()); }),
      rule(u = op<Ops::BITCAST>(c0),
           [](U u, C0 c) {
             return c.dtype().is_weak() || u.dtype().is_weak()
                        ? UOp()
                        : UOp::constant(eval_bitcast(c.const_value(), c.dtype(), u.dtype()), u.dtype());
           }),
      // ---- identities ----
      rule(i + 0,                          i),
      rule(x * 1,                          x),
      rule(i * 0,                          0),
      rule(f + c0, [](F f, C0 c) { return c.const_float() == 0 && std::signbit(c.const_float()) ? UOp(f) : UOp(); }),
      rule(op<Ops::FDIV>(f, c0),           [](F f, C0 c) { return divide_by_literal(f, c.const_float()); }),
      // x * (1 / (1 + x)) is 1 - 1 / (1 + x), which stays a number where x is infinite: gradients of sigmoid.
      rule(f * (u = op<Ops::RECIPROCAL>(f + 1.0)), [](F, U d) { return d.const_like(1.0) - d; }),
      rule(f * ((u = op<Ops::RECIPROCAL>(f + 1.0)) * g), [](F, U d, G y) { return y * (d.const_like(1.0) - d); }),
      rule(f * ((u = op<Ops::RECIPROCAL>(f + 1.0)) + g), [](F x, U d, G y) { return (d.const_like(1.0) - d) + x * y; }),
      rule((f * -1.0) * g, [](F x, G y) { return y.is_const() ? UOp() : (x * y) * ConstValue(-1.0); }),
      rule((f * -1.0) * c0,                [](F f, C0 c) { return f * f.const_like(-c.const_float()); }),
      rule(i ^ 0,                          i),
      rule(i | 0,                          i),
      rule(i << 0,                         i),
      rule(i >> 0,                         i),
      rule(i & 0,                          0),
      rule(i & n0, [](I i, N0 m) { return truncate_int(-1, i.dtype()) == m.const_int() ? UOp(i) : UOp(); }),
      rule(i / 1,                          i),
      rule(i % 1,                          0),
      rule(op<Ops::CDIV>(i, lit(1)),       i),
      rule(op<Ops::CMOD>(i, lit(1)),       0),
      rule(i % i,                          0),
      rule(i / i,
           [](I i) {
             Bounds b = bounds_of(i);
             return b.lo > 0 || b.hi < 0 ? i.const_like(1) : UOp();
           }),
      rule((i % j) % j,                    i % j),
      rule((i ^ j) ^ j,                    i),
      rule(i ^ i,                          0),
      rule(i & i,                          i),
      rule(i | i,                          i),
      rule(max(x, x),                      x),
      rule(x < x,                          [](X) { return bool_const(false); }),
      rule(i != i,                         [](I) { return bool_const(false); }),
      rule(op<Ops::TRUNC>(i),              i),
      rule(op<Ops::TRUNC>(a),              a),
  };
  // clang-format on
  return pm;
}

const PatternMatcher<UOp>& pm_bool_identities() {
  // clang-format off
  static const PatternMatcher<UOp> pm{
      rule(a & true,                       a),
      rule(a & false,                      false),
      rule(a | true,                       true),
      rule(a | false,                      a),
      rule(a & a,                          a),
      rule(a | a,                          a),
      rule(a != false,                     a),
      rule(a ^ false,                      a),
      rule(a ^ true,                       not_(a)),
      rule(a != a,                         false),
      rule(a ^ a,                          false),
      rule(not_(not_(a)),                  a),
      rule(a & not_(a),                    false),
      rule(a | not_(a),                    true),
      rule((a & b) & b,                    a & b),
      rule((a | b) | b,                    a | b),
      rule(a * b,                          a & b),
      rule(a + b,                          a | b),
      rule(max(a, b),                      a | b),
  };
  // clang-format on
  return pm;
}
}  // namespace

const PatternMatcher<UOp>& symbolic_simple() {
  // clang-format off
  static const PatternMatcher<UOp> pm = pm_invalid() + pm_identities() + pm_bool_identities() + PatternMatcher<UOp>{
      // ---- bits ----
      rule((i & n0) >> n1,
           [](I i, N0 m, N1 k) {
             int128 n = k.const_int();
             return n >= 0 && n < 64 && (m.const_int() | ((int128(1) << n) - 1)) == truncate_int(-1, i.dtype()) ? i >> k
                                                                                                                : UOp();
           }),
      rule(op<Ops::CAST>((i << 32) | (u = op<Ops::CAST>(j))),
           [](U c, J lo) { return lo.dtype() == dtypes::uint32 && c.dtype() == dtypes::uint64 ? UOp(lo) : UOp(); }),
      rule(((u = op<Ops::CAST>(i)) << 32 | op<Ops::CAST>(j)) >> 32,
           [](U hi, I i, J lo) {
             const bool words = i.dtype() == dtypes::uint32 && lo.dtype() == dtypes::uint32;
             return words && hi.dtype() == dtypes::uint64 ? UOp(hi) : UOp();
           }),
      // ---- casts ----
      rule(u = op<Ops::CAST>(x), [](U u, X x) { return u.dtype() == x.dtype() ? UOp(x) : UOp(); }),
      rule(u = op<Ops::BITCAST>(x), [](U u, X x) { return u.dtype() == x.dtype() ? UOp(x) : UOp(); }),
      rule(u = op<Ops::BITCAST>(op<Ops::BITCAST>(x)), [](U u, X x) { return x.bitcast(u.dtype()); }),
      rule(u = op<Ops::CAST>(op<Ops::CAST>(x)),
           [](U u, X x) { return can_lossless_cast(x.dtype(), u.src(0).dtype()) ? x.cast(u.dtype()) : UOp(); }),
      rule(u = op<Ops::CAST>(x), [](U u, X x) { return u.dtype().is_bool() ? x.ne(zero_like(x)) : UOp(); }),
      rule((u = op<Ops::CAST>(a)) != c0,
           [](U u, A a, C0 c) {
             if (u.dtype().is_bool()) return UOp();
             double v = c.const_float();
             return v == 0 ? UOp(a) : v == 1 ? a.logical_not() : bool_const(true);
           }),
      // ---- pow ----
      rule(op<Ops::POW>(x, c0), [](X x, C0 c) { return expand_pow(x, c.const_float()); }),
      // ---- where ----
      rule(where(_, x, x),                 x),
      rule(where(c0, x, y),                [](C0 c, X x, Y y) { return c.const_int() ? UOp(x) : UOp(y); }),
      rule(where(a, b, c),                 [](A g, B t, C f) { return where_of_bools(g, t, f); }),
      rule(where(a, where(b, x, y), y),    where(a & b, x, y)),
      rule(where(a, x, where(b, x, y)),    where(a | b, x, y)),
      // ---- ends of effects ----
      rule(op<Ops::AFTER>(x),              x),
      rule(op<Ops::END>(x),                x),
      rule(op<Ops::GROUP>(x),              x),
  };
  // clang-format on
  return pm;
}

const PatternMatcher<UOp>& canonical_order() {
  // clang-format off
  static const PatternMatcher<UOp> pm{
      rule(when(u = node<Ops::ADD>(), is_weak), [](U u) { return normal_sum(u); }),
      rule(when(u = node<Ops::MUL>(), is_weak),
           [](U u) { return u.src(1).is_const() && u.src(0).is(Ops::ADD) ? UOp() : normal_product(u); }),
      rule(u = any_of(Ops::MAX | Ops::CMPNE | Ops::CMPEQ | Ops::XOR | Ops::AND | Ops::OR),
           [](U u) { return order_operands(u); }),
  };
  // clang-format on
  return pm;
}

const PatternMatcher<UOp>& symbolic() {
  // clang-format off
  static const PatternMatcher<UOp> pm = symbolic_simple() + PatternMatcher<UOp>{
      // ---- normal forms ----
      rule(when(u = node<Ops::ADD>(), is_weak), [](U u) { return normal_sum(u); }),
      rule(when(u = node<Ops::MUL>(), is_weak), [](U u) { return normal_product(u); }),
      rule(u = any_of(groups::kCommutative), [](U u) { return order_operands(u); }),
      // ---- fixed-width integers: the same, by pairs (weakint has it above) ----
      rule((i + n0) + n1,                  [](I i, N0 a, N1 b) { return i + alu2(Ops::ADD, a, b); }),
      rule((i * n0) * n1,                  [](I i, N0 a, N1 b) { return i * alu2(Ops::MUL, a, b); }),
      rule((i & n0) & n1,                  [](I i, N0 a, N1 b) { return i & alu2(Ops::AND, a, b); }),
      rule((i | n0) | n1,                  [](I i, N0 a, N1 b) { return i | alu2(Ops::OR, a, b); }),
      rule((i ^ n0) ^ n1,                  [](I i, N0 a, N1 b) { return i ^ alu2(Ops::XOR, a, b); }),
      rule(max(max(x, c0), c1),            [](X x, C0 a, C1 b) { return x.maximum(alu2(Ops::MAX, a, b)); }),
      rule((i + n0) + j,                   [](I i, N0 n, J j) { return j.is_const() ? UOp() : (i + j) + n; }),
      rule((i * n0) * j,                   [](I i, N0 n, J j) { return j.is_const() ? UOp() : (i * j) * n; }),
      rule(i + i,                          i * 2),
      rule((j + i) + i,                    j + i * 2),
      rule(i * n0 + i,                     [](I i, N0 n) { return i * alu2(Ops::ADD, n, n.const_like(1)); }),
      rule(i * n0 + i * n1,                [](I i, N0 a, N1 b) { return i * alu2(Ops::ADD, a, b); }),
      rule((j + i * n0) + i,               [](J j, I i, N0 n) { return j + i * alu2(Ops::ADD, n, n.const_like(1)); }),
      rule((j + i) + i * n0,               [](J j, I i, N0 n) { return j + i * alu2(Ops::ADD, n, n.const_like(1)); }),
      rule((j + i * n0) + i * n1,          [](J j, I i, N0 a, N1 b) { return j + i * alu2(Ops::ADD, a, b); }),
      // ---- bounds ----
      rule(u = any_of(groups::kComparison | Ops::AND | Ops::OR | Ops::CDIV | Ops::CMOD | Ops::FLOORDIV | Ops::FLOORMOD |
                      Ops::SHR | Ops::MAX | Ops::SPECIAL),
           [](U u) { return constant_by_bounds(u); }),
      rule(u = node<Ops::PARAM>(),
           [](U u) { return u.arg<ParamArg>().addrspace == AddrSpace::kAlu ? constant_by_bounds(u) : UOp(); }),
      rule(u = op<Ops::RANGE>(lit(1)),     [](U u) { return zero_like(u); }),
      rule(u = node<Ops::MAX>(),           [](U u) { return fold_max(u); }),
      // ---- comparisons of weakint ----
      rule(i < n0, [](I x, N0 c) { return is_weak(x) ? fold_less_than(x, c.const_int()) : UOp(); }),
      rule(n0 < i, [](N0 c, I x) { return is_weak(x) ? lt(x, weak(c.const_int() + 1)).logical_not() : UOp(); }),
      rule(i < j,
           [](I x, J y) {
             return is_weak(x) && !x.is_const() && !y.is_const() ? fold_difference(x, y, false) : UOp();
           }),
      rule(u = node<Ops::CMPNE>(),         [](U u) -> UOp {
        UOp x = u.src(0), y = u.src(1);
        if (!is_weak(x) || x.is_const() || y.is_invalid()) return {};
        return y.is_const() ? fold_not_equal(x, y.const_int()) : fold_difference(x, y, true);
      }),
      // ---- where ----
      rule(where(not_(a), x, y),           [](A a, X x, Y y) { return y.is_invalid() ? UOp() : a.where(y, x); }),
      rule(u = node<Ops::WHERE>(),         [](U u) { return fold_where_closure(u); }),
      rule(u = any_of(groups::kBinary, where(a, x, y), where(a, z, w)), [](U u, A a, X x, Y y, Z z, W w) {
        bool worth = (is_plain_const(x) && is_plain_const(z)) || (is_plain_const(y) && is_plain_const(w));
        return worth ? a.where(UOp::alu(u.op(), {x, z}), UOp::alu(u.op(), {y, w})) : UOp();
      }),
      rule((i + where(a, x, y)) + where(a, z, w), [](I i, A a, X x, Y y, Z z, W w) {
        bool worth = (is_plain_const(x) && is_plain_const(z)) || (is_plain_const(y) && is_plain_const(w));
        return worth ? i + a.where(x + z, y + w) : UOp();
      }),
      rule(where(a, i, lit(0)) + where(a, lit(0), j), where(a, i, j)),
      rule(where(i < j, j, i),             max(i, j)),
      rule(where(i < n0, n1, i),
           [](I i, N0 a, N1 b) { return is_weak(i) && b.const_int() == a.const_int() - 1 ? i.maximum(b) : UOp(); }),
      // ---- casts ----
      rule(u = op<Ops::CAST>(op<Ops::CAST>(x)),
           [](U u, X x) { return survives(x, u.src(0).dtype()) ? x.cast(u.dtype()) : UOp(); }),
  } + pm_divmod();
  // clang-format on
  return pm;
}

const PatternMatcher<UOp>& sym() {
  // clang-format off
  static const PatternMatcher<UOp> pm = symbolic() + pm_simplify_valid() + PatternMatcher<UOp>{
      rule(u = op<Ops::CAST>(where(a, x, y)),
           [](U u, A a, X x, Y y) {
             return x.is_const() || y.is_const() ? a.where(x.is_invalid() ? UOp(x) : x.cast(u.dtype()),
                                                           y.is_invalid() ? UOp(y) : y.cast(u.dtype()))
                                                 : UOp();
           }),
      rule(op<Ops::STORE>(u = node<Ops::INDEX>(), where(a, x, inv)),
           [](U index, A gate, X v) { return gated_store(index, gate, v); }),
      rule(op<Ops::STORE>(x, inv),         [](X) { return UOp::make(Ops::NOOP, dtypes::void_, {}); }),
      rule(op<Ops::END>(u = node<Ops::NOOP>(), rest), [](U u) { return u.nsrc() == 0 ? UOp(u) : UOp(); }),
      rule(u = node<Ops::END>(),           [](U u) { return drop_literal_ranges(u); }),
      rule(u = node<Ops::REDUCE>(),        [](U u) { return drop_literal_ranges(u); }),
      rule(u = op<Ops::REDUCE>(x * y, rest), [](U u) { return hoist_factor(u); }),
      rule(u = any_of(Ops::SINK | Ops::GROUP), [](U u) { return flatten_sink(u); }),
  };
  // clang-format on
  return pm;
}

}  // namespace tg
