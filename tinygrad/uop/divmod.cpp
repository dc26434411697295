/// \file Division and modulo of index arithmetic, and their recombination into the dividend.
#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using namespace upat;

constexpr size_t kMaxTerms = 64;  // longer sums are left alone: nobody writes them as an index

/// x = g * quotient + rest with 0 <= rest < g wherever x is.
struct Split {
  AffineSum quotient, rest;
};

std::optional<Split> split_with(const AffineSum& x, int128 g, const std::vector<int128>& rest_coefs) {
  Split s;
  for (size_t i = 0; i < x.terms.size(); i++) {
    const Term& t = x.terms[i];
    if (rest_coefs[i]) s.rest.terms.push_back({t.base, rest_coefs[i]});
    if (t.coef != rest_coefs[i]) s.quotient.terms.push_back({t.base, (t.coef - rest_coefs[i]) / g});
  }
  s.rest.c = floormod(x.c, g);
  s.quotient.c = floordiv(x.c, g);
  Bounds b = s.rest.bounds();
  if (b.lo <= -kUnbounded || b.hi >= kUnbounded) return {};
  int128 k = floordiv(b.lo, g);
  if (floordiv(b.hi, g) != k) return {};
  s.rest.c -= k * g;
  s.quotient.c += k;
  return s;
}

/// Looks for a remainder whose range lies in one period: each coefficient modulo g, of the nearer sign first, then of
/// either.
std::optional<Split> split_by(const AffineSum& x, int128 g) {
  std::vector<int128> rest(x.terms.size());
  std::vector<size_t> open;  // terms with a choice
  for (size_t i = 0; i < rest.size(); i++) {
    int128 r = floormod(x.terms[i].coef, g);
    rest[i] = r * 2 > g ? r - g : r;
    if (r) open.push_back(i);
  }
  if (open.size() > 4) open.resize(4);
  uint32_t flipped = 0;
  for (uint32_t choice = 0; choice < 1u << open.size(); choice++) {
    for (size_t k = 0; k < open.size(); k++) {
      if ((choice ^ flipped) >> k & 1) rest[open[k]] += rest[open[k]] > 0 ? -g : g;
    }
    flipped = choice;
    if (auto s = split_with(x, g, rest)) return s;
  }
  return {};
}

UOp divided(const AffineSum& x, int128 c) {
  return c == 1 ? x.build() : UOp::alu(Ops::FLOORDIV, {x.build(), UOp::constant(c, dtypes::weakint)});
}
UOp modulo(const AffineSum& x, int128 c) {
  return UOp::alu(Ops::FLOORMOD, {x.build(), UOp::constant(c, dtypes::weakint)});
}
/// q * k + the sum.
UOp plus(UOp q, int128 k, const AffineSum& rest) {
  AffineSum out = rest;
  out.add(q, k);
  out.normalize();
  return out.build();
}

/// The quotient by c of an inner quotient or remainder. Empty: l is neither.
UOp divide_quotient(const AffineSum& l, int128 c) {
  if (l.terms.size() != 1 || l.terms[0].coef != 1) return {};
  const UOp inner = l.terms[0].base;
  if (inner.is(Ops::FLOORDIV) && inner.src(1).is_const()) {  // (y//d + a)//c -> (y + a*d)//(c*d)
    const int128 d = inner.src(1).const_int();
    AffineSum y(inner.src(0));
    y.c += l.c * d;
    return divided(y, c * d);
  }
  if (l.c == 0 && inner.is(Ops::FLOORMOD))  // (y % (k*c))//c -> (y//c) % k
    if (auto k = divides(inner.src(1), c); k && vmin(*k) > 0) return divided(AffineSum(inner.src(0)), c) % *k;
  return {};
}

/// Takes multiples of c out of the division: whole periods of the constant, of coefficients, and (modulo only) of inner
/// moduli. Empty: there are none.
UOp take_out_multiples(bool div, const AffineSum& l, int128 c) {
  AffineSum in, out;
  in.c = floormod(l.c, c);
  out.c = floordiv(l.c, c);
  bool changed = in.c != l.c;
  auto is_period = [&](UOp u) { return divides(u, c) && (vmin(u) > 0 || vmax(u) < 0); };
  for (const Term& t : l.terms) {
    if (!div && t.base.is(Ops::FLOORMOD) && is_period(t.base.src(1))) {
      in.add(t.base.src(0), t.coef % c);
      changed = true;
      continue;
    }
    const int128 r = t.coef % c;
    if (r) in.terms.push_back({t.base, r});
    if (r != t.coef) {
      out.terms.push_back({t.base, (t.coef - r) / c});
      changed = true;
    }
  }
  if (!changed) return {};
  in.normalize();
  return div ? plus(divided(in, c), 1, out) : modulo(in, c);
}

/// x = g*q + r with g dividing c: x//c = q//(c/g), x%c = (q%(c/g))*g + r. The fewest terms win, then the larger g.
/// Empty: there is no such g.
UOp split_by_divisor(bool div, const AffineSum& l, int128 c) {
  std::vector<int128> candidates;
  int128 common = c;
  for (const Term& t : l.terms) common = gcd128(common, t.coef);
  auto consider = [&](int128 g) {
    if (g > 1 && g < c && c % g == 0 && !contains(candidates, g)) candidates.push_back(g);
  };
  consider(common);
  for (const Term& t : l.terms) consider(gcd128(t.coef, c));
  std::sort(candidates.begin(), candidates.end(), std::greater<int128>());
  std::optional<Split> best;
  int128 best_g = 0;
  for (int128 g : candidates)
    if (auto s = split_by(l, g); s && (!best || s->quotient.terms.size() < best->quotient.terms.size())) {
      best = std::move(s);
      best_g = g;
    }
  if (!best) return {};
  if (div) return divided(best->quotient, c / best_g);
  return plus(modulo(best->quotient, c / best_g), best_g, best->rest);
}

UOp fold_by_literal(bool div, UOp x, int128 c) {
  UOp zero = UOp::constant(int64_t{0});
  if (c == 0) return zero;
  AffineSum l(x);
  if (l.terms.size() > kMaxTerms) return {};
  if (c < 0) {
    AffineSum minus;
    minus.add(l, -1);
    return div ? divided(minus, -c) : plus(modulo(minus, -c), -1, {});
  }
  if (c == 1) return div ? x : zero;
  // Quotient (or remainder) without a division.
  if (auto s = split_by(l, c)) return (div ? s->quotient : s->rest).build();
  if (div)
    if (UOp r = divide_quotient(l, c)) return r;
  if (UOp r = take_out_multiples(div, l, c)) return r;
  return split_by_divisor(div, l, c);
}

UOp fold_by_expression(bool div, UOp x, UOp y) {
  Bounds by = bounds_of(y);
  if (by.lo <= 0 && by.hi >= 0) return {};
  if (x == y) return UOp::constant(int64_t{div});
  UOps all = split_add_terms(x);
  if (all.size() > kMaxTerms) return {};
  // Common factors of everything.
  UOps with = all;
  with.push_back(y);
  UOp g = symbolic_gcd(with);
  if (!g.is_const_int(1)) {
    auto xs = divide_exact(x, g), ys = divide_exact(y, g);
    if (xs && ys) {
      UOp r = UOp::alu(div ? Ops::FLOORDIV : Ops::FLOORMOD, {*xs, *ys});
      return div ? r : r * g;
    }
  }
  // Multiples of y leave.
  AffineSum quotient, rest;
  for (UOp u : all) {
    if (auto q = divide_exact(u, y)) quotient.add(*q, 1);
    else rest.add(u, 1);
  }
  quotient.normalize();
  rest.normalize();
  if (quotient.is_const() && quotient.c == 0) return {};
  UOp r = UOp::alu(div ? Ops::FLOORDIV : Ops::FLOORMOD, {rest.build(), y});
  return div ? plus(r, 1, quotient) : r;
}

UOp fold_divmod(UOp u) {
  UOp x = u.src(0), y = u.src(1);
  bool div = u.op() == Ops::FLOORDIV;
  Bounds bx = bounds_of(x), by = bounds_of(y);
  if ((by.lo > 0 || by.hi < 0) && bx.lo > -kUnbounded && bx.hi < kUnbounded) {
    int128 q[4] = {floordiv(bx.lo, by.lo), floordiv(bx.lo, by.hi), floordiv(bx.hi, by.lo), floordiv(bx.hi, by.hi)};
    if (q[0] == q[1] && q[0] == q[2] && q[0] == q[3]) {
      if (div) return UOp::constant(q[0], dtypes::weakint);
      return q[0] == 0 ? x : x + y * ConstValue(-q[0]);
    }
  }
  if (y.is_const()) return y.is_invalid() ? UOp() : fold_by_literal(div, x, y.const_int());
  return fold_by_expression(div, x, y);
}

// ---- recombination: (b % d) * m + (b // d) * (d * m) = b * m ----

/// The b with quotient == b // d and b congruent to `base` modulo d. Both may have moved: (y//c + a)//d is stored as (y
/// + a*c)//(c*d), and constants leave a division by whole periods.
std::optional<AffineSum> dividend(UOp quotient, UOp base, int128 d) {
  auto [q, shift] = pop_const(quotient);
  if (!q.is(Ops::FLOORDIV) || !q.src(1).is_const()) return {};
  auto [num, a] = pop_const(base);
  int128 by = q.src(1).const_int(), period;
  if (d > 0 && num.is(Ops::FLOORDIV) && num.src(1).is_const() && by == num.src(1).const_int() * d) {
    a *= num.src(1).const_int();
    num = num.src(0);
    period = by;
  } else if (by == d) period = d;
  else return {};
  auto [x, xa] = pop_const(num);
  auto [p, pa] = pop_const(q.src(0));
  int128 t = xa + a - pa;
  if (p != x || t % period != 0) return {};
  AffineSum b(base);
  b.c -= (t / period - shift) * d;
  return b;
}

std::optional<AffineSum> recombine_pair(const Term& mod, const Term& quo) {
  if (!mod.base.is(Ops::FLOORMOD) || !mod.base.src(1).is_const()) return {};
  int128 d = mod.base.src(1).const_int();
  if (d == 0 || quo.coef != d * mod.coef) return {};
  AffineSum out;
  if (auto b = dividend(quo.base, mod.base.src(0), d)) {
    out.add(*b, mod.coef);
    return out;
  }
  if (!quo.base.is(Ops::FLOORMOD) || !quo.base.src(1).is_const()) return {};  // (b//d) % e widens the modulus instead
  int128 e = quo.base.src(1).const_int();
  if (e <= 0) return {};
  auto b = dividend(quo.base.src(0), mod.base.src(0), d);
  if (!b) return {};
  out.add(modulo(*b, d * e), mod.coef);
  return out;
}

/// Looks for the partner of a sum's last term: the terms before it have been through this.
UOp recombine(UOp u) {
  if (u.dtype() != dtypes::weakint) return {};
  Term last = term_of(u.src(1));
  if (!last.base.in(Ops::FLOORDIV | Ops::FLOORMOD)) return {};
  size_t n = 0;
  for (UOp spine = u.src(0); n < kMaxTerms; n++) {
    bool more = spine.is(Ops::ADD);
    Term t = term_of(more ? spine.src(1) : spine);
    auto found = recombine_pair(t, last);
    if (!found) found = recombine_pair(last, t);
    if (found) {
      AffineSum all(u);
      std::erase_if(all.terms, [&](const Term& k) { return k.base == t.base || k.base == last.base; });
      all.add(*found, 1);
      all.normalize();
      return all.build();
    }
    if (!more) break;
    spine = spine.src(0);
  }
  return {};
}
}  // namespace

const PatternMatcher<UOp>& pm_divmod() {
  // clang-format off
  static const PatternMatcher<UOp> pm{
      rule(op<Ops::FLOORMOD>(u = node<Ops::RANGE>(), x), [](U r, X n) { return r.src(0) == n ? UOp(r) : UOp(); }),
      rule(op<Ops::FLOORDIV>(u = node<Ops::RANGE>(), x),
           [](U r, X n) { return r.src(0) == n ? r.const_like(0) : UOp(); }),
      rule(when(u = any_of(Ops::FLOORDIV | Ops::FLOORMOD), [](UOp d) { return d.dtype() == dtypes::weakint; }),
           [](U d) { return fold_divmod(d); }),
      rule(u = node<Ops::ADD>(), [](U sum) { return recombine(sum); }),
  };
  // clang-format on
  return pm;
}

}  // namespace tg
