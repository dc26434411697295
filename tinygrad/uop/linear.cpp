/// \file Sums in normal form.
#include "tinygrad/uop/linear.h"

#include <algorithm>

namespace tg {
namespace {
int128 clamp(int128 v) { return v > kUnbounded ? kUnbounded : v < -kUnbounded ? -kUnbounded : v; }
int128 add_sat(int128 a, int128 b) {
  if (a == kUnbounded || b == kUnbounded) return kUnbounded;
  if (a == -kUnbounded || b == -kUnbounded) return -kUnbounded;
  return clamp(a + b);
}
int128 mul_sat(int128 a, int128 b) {
  int128 r;
  if (__builtin_mul_overflow(a, b, &r)) return (a < 0) != (b < 0) ? -kUnbounded : kUnbounded;
  return clamp(r);
}
}  // namespace

Bounds add_bounds(Bounds a, Bounds b) { return {add_sat(a.lo, b.lo), add_sat(a.hi, b.hi)}; }
Bounds scale_bounds(Bounds a, int128 c) {
  int128 x = mul_sat(a.lo, c), y = mul_sat(a.hi, c);
  return c < 0 ? Bounds{y, x} : Bounds{x, y};
}

void Linear::add(UOp root, int128 k) {
  auto leaf = [&](UOp u) {
    if (u.is_const() && !u.is_invalid()) {
      c += u.const_int() * k;
      return;
    }
    Term t = term_of(u);
    terms.push_back({t.base, t.coef * k});
  };
  if (!root.is(Ops::ADD)) return leaf(root);
  UOps stack{root};
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    for (UOp s : {u.src(1), u.src(0)}) {
      if (s.is(Ops::ADD)) stack.push_back(s);
      else leaf(s);
    }
  }
}
void Linear::add(const Linear& o, int128 k) {
  for (const Term& t : o.terms) terms.push_back({t.base, t.coef * k});
  c += o.c * k;
}

void Linear::normalize() {
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

Bounds Linear::bounds() const {
  Bounds b{c, c};
  for (const Term& t : terms) b = add_bounds(b, scale_bounds(bounds_of(t.base), t.coef));
  return b;
}

UOp build_term(const Term& t, DType d) {
  return t.coef == 1 ? t.base : UOp::alu(Ops::MUL, {t.base, UOp::constant(t.coef, d)});
}

UOp Linear::build(DType d) const {
  UOp u;
  for (const Term& t : terms) {
    UOp v = build_term(t, d);
    u = u ? UOp::alu(Ops::ADD, {u, v}) : v;
  }
  if (!u) return UOp::constant(c, d);
  return c ? UOp::alu(Ops::ADD, {u, UOp::constant(c, d)}) : u;
}

}  // namespace tg
