/// \file Folding constructors.
#include "tinygrad/uop/fold.h"

#include <optional>

#include "tinygrad/base/math.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
/// x + c as (x, c); x is empty for a constant.
struct Offset {
  UOp x;
  int128 c;
};
Offset split(UOp u) {
  if (u.is_const()) return {{}, u.const_int()};
  if (u.is(Ops::ADD) && u.src(1).is_const()) return {u.src(0), u.src(1).const_int()};
  return {u, 0};
}
UOp join(UOp x, int128 c, DType d) {
  if (!x) return UOp::constant(ConstValue(c), d);
  return c == 0 ? x : UOp::alu(Ops::ADD, {x, UOp::constant(ConstValue(c), d)});
}
UOp truth(bool v) { return UOp::constant(v); }

/// Returns floor(a / c), c > 0, where all values of a share it.
std::optional<int128> only_quotient(UOp a, int128 c) {
  const Bounds b = bounds_of(a);
  if (b.lo <= -kUnbounded || b.hi >= kUnbounded) return {};
  const int128 q = floordiv(b.lo, c);
  return q == floordiv(b.hi, c) ? std::optional(q) : std::nullopt;
}
UOp divide(UOp a, int128 c) {  // floor(a / c), c > 0
  if (c == 1) return a;
  if (const auto q = only_quotient(a, c)) return a.const_like(*q);
  auto [x, o] = split(a);
  // x//c + o//c when the remainders cannot carry.
  if (x && o != 0 && a.dtype().is_weak() && o % c == 0) return fold_add(divide(x, c), a.const_like(o / c));
  return UOp::alu(Ops::FLOORDIV, {a, a.const_like(c)});
}
UOp modulo(UOp a, int128 c) {  // a - c * floor(a / c), c > 0
  if (c == 1) return a.const_like(0);
  const bool weak = a.dtype().is_weak();
  if (const auto q = only_quotient(a, c); q && (weak || *q == 0)) return fold_add(a, a.const_like(-*q * c));
  auto [x, o] = split(a);
  if (x && o != 0 && weak && o % c == 0) return modulo(x, c);
  return UOp::alu(Ops::FLOORMOD, {a, a.const_like(c)});
}

// ---- rules by operation; empty: none applies ----
bool is_literal(UOp u) { return u.is_const() && !u.is_invalid(); }

UOp fold_where(UOp gate, UOp x, UOp y) {
  if (is_literal(gate)) return gate.const_int() ? x : y;
  return x == y ? x : UOp();
}
UOp fold_cast(UOp x, DType d) {
  if (!is_literal(x)) return {};
  const ConstValue v = x.const_value();
  return v.is_int() || d.is_float() || d.is_bool() ? UOp::constant(v, d) : UOp();
}
/// x op v of bools.
UOp fold_logic(Ops op, UOp x, bool v) {
  if (op == Ops::AND) return v ? x : truth(false);
  if (op == Ops::OR) return v ? truth(true) : x;
  if (op != Ops::CMPNE && op != Ops::XOR) return {};
  if (x.is_const()) return truth(v != (x.const_int() != 0));
  if (!v) return x;
  const bool negation = x.is(Ops::CMPNE) && x.src(1).is_const_int(1) && x.src(0).dtype().is_bool();
  return negation ? x.src(0) : UOp();
}
UOp fold_logic(Ops op, UOp a, UOp b) {
  UOp r = b.is_const() ? fold_logic(op, a, b.const_int() != 0) : UOp();
  return !r && a.is_const() ? fold_logic(op, b, a.const_int() != 0) : r;
}
UOp fold_product(UOp a, int128 k) {
  if (!a.dtype().is_weak()) return k == 1 ? a : UOp();
  return k > INT64_MIN && k < INT64_MAX ? fold_mul(a, static_cast<int64_t>(k)) : UOp();
}
UOp fold_max(UOp a, UOp b) {
  const Bounds x = bounds_of(a), y = bounds_of(b);
  return x.lo >= y.hi ? a : y.lo >= x.hi ? b : UOp();
}
UOp fold_comparison(UOp u) {
  const Bounds r = bounds_of(u);
  return r.is_const() ? truth(r.lo != 0) : u;
}
UOp fold_integers(Ops op, UOp a, UOp b) {
  const bool positive = b.is_const() && b.const_int() > 0;
  switch (op) {
    case Ops::ADD: return fold_add(a, b);
    case Ops::MUL:
      if (a.is_const()) return fold_product(b, a.const_int());
      return b.is_const() ? fold_product(a, b.const_int()) : UOp();
    case Ops::FLOORDIV: return positive ? divide(a, b.const_int()) : UOp();
    case Ops::FLOORMOD: return positive ? modulo(a, b.const_int()) : UOp();
    case Ops::MAX: return fold_max(a, b);
    default: return {};
  }
}
bool is_integer(UOp u) { return (u.dtype().is_int() || u.dtype().is_bool()) && !u.is_invalid(); }

UOp folded(Ops op, DType dtype, std::span<const UOp> src) {
  if (op == Ops::WHERE) return fold_where(src[0], src[1], src[2]);
  if (op == Ops::CAST) return fold_cast(src[0], dtype);
  if (!groups::kBinary.has(op) || !is_integer(src[0]) || !is_integer(src[1])) return {};
  if (dtype.is_bool() && src[0].dtype().is_bool()) return fold_logic(op, src[0], src[1]);
  if (groups::kComparison.has(op)) return fold_comparison(UOp::make(op, dtype, src));
  return fold_integers(op, src[0], src[1]);
}
}  // namespace

UOp fold_add(UOp a, UOp b) {
  if (!a.dtype().is_weak() && !(a.is_const() && b.is_const())) {
    // Fixed-width integers wrap the same way in any order.
    if (a.is_const_int(0)) return b;
    if (b.is_const_int(0)) return a;
  }
  auto [x, c] = split(a);
  auto [y, k] = split(b);
  UOp s = !x ? y : !y ? x : UOp::alu(Ops::ADD, {x, y});
  return join(s, c + k, a.dtype());
}

UOp fold_mul(UOp a, int64_t k) {
  if (k == 1) return a;
  if (k == 0) return a.const_like(0);
  auto [x, c] = split(a);
  if (!x) return a.const_like(c * k);
  if (x.is(Ops::MUL) && x.src(1).is_const() && a.dtype().is_weak()) {
    int128 m = x.src(1).const_int() * k;
    x = m == 1 ? x.src(0) : UOp::alu(Ops::MUL, {x.src(0), x.const_like(m)});
  } else {
    x = UOp::alu(Ops::MUL, {x, x.const_like(k)});
  }
  return join(x, c * k, a.dtype());
}

UOp fold(Ops op, DType dtype, std::span<const UOp> src, const Arg& arg, uint64_t tag) {
  const UOp u = folded(op, dtype, src);
  return u ? u : UOp::make(op, dtype, src, arg, tag);
}

}  // namespace tg
