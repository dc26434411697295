/// \file Sums in normal form, indices by their ranges, trees of one op.
#include "tinygrad/uop/affine.h"

#include <algorithm>

namespace tg {

static Bounds scale_bounds(Bounds a, int128 c) {
  const int128 x = saturating_mul(a.lo, c), y = saturating_mul(a.hi, c);
  return c < 0 ? Bounds{y, x} : Bounds{x, y};
}

void AffineSum::add(UOp root, int128 factor) {
  for_each_summand<SumOptions{.products = false}>(root, factor, [&](UOp u, int128 k) {
    if (u.is_const() && !u.is_invalid()) {
      c += u.const_int() * k;
      return;
    }
    const Term t = term_of(u);
    terms.push_back({t.base, t.coef * k});
  });
}
void AffineSum::add(const AffineSum& o, int128 k) {
  for (const Term& t : o.terms) terms.push_back({t.base, t.coef * k});
  c += o.c * k;
}

void AffineSum::normalize() {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return a.base != b.base && structural_less(a.base, b.base); });
  size_t n = 0;
  for (size_t i = 0; i < terms.size(); i++) {
    if (n && terms[n - 1].base == terms[i].base) terms[n - 1].coef += terms[i].coef;
    else terms[n++] = terms[i];
    if (terms[n - 1].coef == 0) n--;
  }
  terms.resize(n);
}

Bounds AffineSum::bounds() const {
  Bounds b{c, c};
  for (const Term& t : terms) b = add_bounds(b, scale_bounds(bounds_of(t.base), t.coef));
  return b;
}

UOp build_term(const Term& t, DType d) {
  return t.coef == 1 ? t.base : UOp::alu(Ops::MUL, {t.base, UOp::constant(t.coef, d)});
}

UOp AffineSum::build(DType d) const {
  UOp u;
  for (const Term& t : terms) {
    UOp v = build_term(t, d);
    u = u ? UOp::alu(Ops::ADD, {u, v}) : v;
  }
  if (!u) return UOp::constant(c, d);
  return c ? UOp::alu(Ops::ADD, {u, UOp::constant(c, d)}) : u;
}

AffineIndex::AffineIndex(UOp index) {
  for_each_summand<SumOptions{.gates = true}>(index, 1, [&](UOp u, int128 k) {
    if (u.is_const() && !u.is_invalid()) offset += static_cast<int64_t>(k * u.const_int());
    else if (u.is(Ops::RANGE)) add(u, static_cast<int64_t>(k));
    else rest.push_back(u);
  });
}
void AffineIndex::add(UOp range, int64_t coefficient) {
  for (auto& [r, c] : terms)
    if (r == range) {
      c += coefficient;
      return;
    }
  terms.push_back({range, coefficient});
}

UOps split_terms(UOp u, Ops op) {
  if (!u.is(op)) return {u};
  UOps out, stack{u};
  while (!stack.empty()) {
    UOp n = stack.back();
    stack.pop_back();
    if (n.is(op)) {
      stack.push_back(n.src(1));
      stack.push_back(n.src(0));
    } else out.push_back(n);
  }
  return out;
}
UOp join_terms(Ops op, std::span<const UOp> us, DType d) {
  const bool one = op == Ops::MUL || op == Ops::AND;
  if (us.empty()) return UOp::constant(!one ? 0 : d.is_bool() || op == Ops::MUL ? 1 : -1, d);
  UOp r = us[0];
  for (UOp s : us.subspan(1)) r = UOp::alu(op, {r, s});
  return r;
}

}  // namespace tg
