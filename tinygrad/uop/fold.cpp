/// \file Folding constructors.
#include "tinygrad/uop/fold.h"

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
int128 floor_div(int128 a, int128 b) {
  int128 q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
UOp truth(bool v) { return UOp::constant(v); }

UOp divide(UOp a, int128 c) {  // floor(a / c), c > 0
  if (c == 1) return a;
  Bounds b = bounds_of(a);
  if (int128 q = floor_div(b.lo, c); b.lo > -kUnbounded && b.hi < kUnbounded && q == floor_div(b.hi, c))
    return a.const_like(q);
  auto [x, o] = split(a);
  if (x && o != 0 && a.dtype().is_weak()) {
    // x//c + o//c when the remainders cannot carry.
    if (o % c == 0) return fold_add(divide(x, c), a.const_like(o / c));
  }
  return UOp::alu(Ops::FLOORDIV, {a, a.const_like(c)});
}
UOp modulo(UOp a, int128 c) {  // a - c * floor(a / c), c > 0
  if (c == 1) return a.const_like(0);
  Bounds b = bounds_of(a);
  if (b.lo > -kUnbounded && b.hi < kUnbounded)
    if (int128 q = floor_div(b.lo, c); q == floor_div(b.hi, c))
      return a.dtype().is_weak() || q == 0 ? fold_add(a, a.const_like(-q * c))
                                           : UOp::alu(Ops::FLOORMOD, {a, a.const_like(c)});
  auto [x, o] = split(a);
  if (x && o != 0 && a.dtype().is_weak() && o % c == 0) return modulo(x, c);
  return UOp::alu(Ops::FLOORMOD, {a, a.const_like(c)});
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
  auto plain = [&] { return UOp::make(op, dtype, src, arg, tag); };
  auto konst = [&](size_t i) { return src[i].is_const() && !src[i].is_invalid(); };
  if (op == Ops::WHERE) {
    if (konst(0)) return src[0].const_int() ? src[1] : src[2];
    if (src[1] == src[2]) return src[1];
    return plain();
  }
  if (op == Ops::CAST && konst(0)) {
    ConstValue v = src[0].const_value();
    if (v.is_int() || dtype.is_float() || dtype.is_bool()) return UOp::constant(v, dtype);
    return plain();
  }
  bool ints = !src.empty();
  for (UOp s : src) ints &= (s.dtype().is_int() || s.dtype().is_bool()) && !s.is_invalid();
  if (!ints || !groups::kBinary.has(op)) return plain();
  UOp a = src[0], b = src[1];
  if (dtype.is_bool() && a.dtype().is_bool()) {
    for (int s = 0; s < 2; s++) {
      UOp x = s ? b : a, c = s ? a : b;
      if (!c.is_const()) continue;
      bool v = c.const_int() != 0;
      if (op == Ops::AND) return v ? x : truth(false);
      if (op == Ops::OR) return v ? truth(true) : x;
      if (op == Ops::CMPNE || op == Ops::XOR) {
        if (x.is_const()) return truth(v != (x.const_int() != 0));
        if (!v) return x;
        if (x.is(Ops::CMPNE) && x.src(1).is_const_int(1) && x.src(0).dtype().is_bool()) return x.src(0);
      }
    }
    return plain();
  }
  switch (op) {
    case Ops::ADD: return fold_add(a, b);
    case Ops::MUL: {
      if (a.is_const()) std::swap(a, b);
      if (!b.is_const()) break;
      int128 k = b.const_int();
      if (!a.dtype().is_weak()) {
        if (k == 1) return a;
        break;
      }
      if (k > INT64_MIN && k < INT64_MAX) return fold_mul(a, static_cast<int64_t>(k));
      break;
    }
    case Ops::FLOORDIV:
      if (b.is_const() && b.const_int() > 0) return divide(a, b.const_int());
      break;
    case Ops::FLOORMOD:
      if (b.is_const() && b.const_int() > 0) return modulo(a, b.const_int());
      break;
    case Ops::CMPLT:
    case Ops::CMPNE:
    case Ops::CMPEQ: {
      UOp u = plain();
      Bounds r = bounds_of(u);
      return r.is_const() ? truth(r.lo != 0) : u;
    }
    case Ops::MAX: {
      Bounds x = bounds_of(a), y = bounds_of(b);
      if (x.lo >= y.hi) return a;
      if (y.lo >= x.hi) return b;
      break;
    }
    default: break;
  }
  return plain();
}

}  // namespace tg
