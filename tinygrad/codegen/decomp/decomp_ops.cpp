/// \file Tables of decompositions: integer division, threefry, simple operations, late forms.
#include <numbers>

#include "tinygrad/base/math.h"
#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/codegen/decomp/exact_product.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/memory_ops.h"
#include "tinygrad/uop/transcendental.h"

namespace tg {
namespace {
using namespace upat;
using enum Ops;

// ---- integers ----
bool nonnegative(UOp u) { return vmin(u) >= 0; }

/// x + k * c with the least k that makes it non-negative, if that fits the type: then C's division is floor division of
/// x, plus k.
UOp shifted_up(UOp x, int128 c, int128* k) {
  const Bounds b = bounds_of(x);
  *k = (-b.lo + c - 1) / c;
  const int128 by = *k * c;
  if (b.lo <= int_min(x.dtype()) || by > int_max(x.dtype()) || b.hi + by > int_max(x.dtype())) return {};
  return x + ConstValue(by);
}
UOp wrong_sign(UOp r, UOp y) {  // of C's remainder
  UOp zero = r.const_like(0);
  if (vmin(y) > 0) return r < zero;
  return r.ne(zero) & (r < zero).ne(y < zero);
}
/// Divides what remains after the exact remainder, a multiple of y, and rounds to the nearest integer: the floor of a
/// rounded quotient may be one too large. As in the reference evaluator.
UOp lower_float_floordiv(UOp x, UOp y) {
  UOp r = UOp::alu(CMOD, {x, y}), zero = x.const_like(0.0), one = x.const_like(1.0), quotient = UOp::alu(FDIV, {x, y});
  UOp multiple = UOp::alu(FDIV, {x - r, y});
  UOp q = (r.ne(zero) & (r < zero).ne(y < zero)).where(multiple - one, multiple);
  UOp towards_zero = UOp::alu(TRUNC, {q}), floor = (q < towards_zero).where(towards_zero - one, towards_zero);
  UOp nearest = (x.const_like(0.5) < q - floor).where(floor + one, floor);
  return y.eq(zero).where(quotient, q.eq(zero).where(quotient * zero, nearest));
}
UOp lower_floordiv(UOp u) {
  UOp x = u.src(0), y = u.src(1);
  const DType d = u.dtype();
  if (d.is_float()) { return lower_float_floordiv(x, y); }
  if (!d.is_int() || d.is_weak()) return {};
  if (y.is_const() && is_power_of_two(y.const_int())) return x >> ConstValue(floor_log2(y.const_int()));
  UOp q = UOp::alu(CDIV, {x, y});
  if (d.is_unsigned() || (nonnegative(x) && nonnegative(y)) || (vmax(x) <= 0 && vmax(y) < 0)) return q;
  if (int128 k; y.is_const() && y.const_int() > 0)
    if (UOp up = shifted_up(x, y.const_int(), &k)) return UOp::alu(CDIV, {up, y}) - ConstValue(k);
  return q - wrong_sign(UOp::alu(CMOD, {x, y}), y).cast(d);
}
UOp lower_floormod(UOp u) {
  UOp x = u.src(0), y = u.src(1);
  const DType d = u.dtype();
  if (d.is_float()) {
    UOp r = UOp::alu(CMOD, {x, y}), zero = r.const_like(0.0);
    UOp signed_zero = (y < zero).where(r.const_like(-0.0), zero);
    return r.eq(zero).where(signed_zero, (r < zero).ne(y < zero).where(r + y, r));
  }
  if (!d.is_int() || d.is_weak()) return {};
  if (y.is_const() && is_power_of_two(y.const_int())) return x & ConstValue(y.const_int() - 1);
  UOp r = UOp::alu(CMOD, {x, y});
  if (d.is_unsigned() || (nonnegative(x) && nonnegative(y)) || (vmax(x) <= 0 && vmax(y) < 0)) return r;
  if (int128 k; y.is_const() && y.const_int() > 0)
    if (UOp up = shifted_up(x, y.const_int(), &k)) return UOp::alu(CMOD, {up, y});
  return r + wrong_sign(r, y).where(y, y.const_like(0));
}
/// C's division and modulo by a power of two, of values that may be negative.
UOp lower_cdiv(X x, N0 n) {
  const int128 c = n.const_int();
  const DType d = x.dtype();
  if (!is_power_of_two(c) || d.is_weak()) return {};
  const int k = floor_log2(c);
  if (nonnegative(x)) return x >> ConstValue(k);
  UOp towards_zero = (x >> ConstValue(d.bitsize() - 1)) & ConstValue(c - 1);
  return (x + towards_zero) >> ConstValue(k);
}
UOp lower_cmod(X x, N0 n) {
  return is_power_of_two(n.const_int()) && nonnegative(x) && !x.dtype().is_weak() ? x & ConstValue(n.const_int() - 1)
                                                                                  : UOp();
}

// ---- accumulators ----
/// True for a LOAD of a register, or a chain of additions to one.
bool is_accumulator(UOp u) {
  while (u.in(ADD | MULACC)) {
    if (u.is(MULACC)) u = u.src(2);
    else if (u.src(0).in(ADD | MULACC | LOAD)) u = u.src(0);
    else u = u.src(1);
  }
  return u.is(LOAD) && is_register(u.src(0));
}
bool fusable(DType d) { return d == dtypes::float32 || d == dtypes::float64; }

UOp number_max(UOp a, UOp b) {
  UOp r = (a < b).where(b, a);
  return b.dtype().is_float() && !b.is_const() ? b.ne(b).where(b, r) : r;
}
/// Truncation through integers; beyond 2^mantissa every value is whole.
UOp lower_trunc(F f) {
  const DType d = f.dtype(), i = d == dtypes::float64 ? dtypes::int64 : dtypes::int32;
  const double whole = d == dtypes::float64 ? 0x1p52 : d == dtypes::float32 ? 0x1p23 : 0x1p10;
  UOp magnitude = (f < f.const_like(0.0)).where(f * ConstValue(-1.0), f);
  UOp t = UOp(f).cast(i).cast(d);
  // -0.5 gives -0: the sign comes back by the addition of a zero of that sign.
  UOp zero = f * ConstValue(0.0);
  return (magnitude < f.const_like(whole)).where(t.ne(t.const_like(0.0)).where(t, zero), f);
}

/// Squares and multiplies for each bit of the exponent; as in the reference evaluator, a negative one gives the power
/// rounded to zero.
UOp lower_int_pow(X x, Y y) {
  const UOp base = x, e = y, one = base.const_like(1), zero = base.const_like(0);
  UOp r = one, square = base;
  const int bits = e.dtype().bitsize() - (e.dtype().is_unsigned() ? 0 : 1);
  for (int i = 0; i < bits; i++) {
    const UOp odd = ((e >> ConstValue(i)) & ConstValue(1)).ne(e.const_like(0));
    r = odd.where(r * square, r);
    square = square * square;
  }
  if (e.dtype().is_unsigned()) return r;
  const UOp odd = (e & ConstValue(1)).ne(e.const_like(0));
  const UOp of_minus_one = base.ne(base.const_like(-1)).where(zero, odd.where(base, one));
  return (e < e.const_like(0)).where(base.ne(one).where(of_minus_one, one), r);
}
}  // namespace

const PatternMatcher<>& pm_decompositions() {
  static const PatternMatcher<> pm{
      // ---- integers ----
      rule(u = node<FLOORDIV>(), [](const TargetOps& t, U u) { return t.lacks_floor() ? lower_floordiv(u) : UOp(); }),
      rule(u = node<FLOORMOD>(), [](const TargetOps& t, U u) { return t.lacks_floor() ? lower_floormod(u) : UOp(); }),
      rule(op<CDIV>(x, n0), [](const TargetOps& t, X x, N0 n) { return t.lacks_floor() ? lower_cdiv(x, n) : UOp(); }),
      rule(op<CMOD>(x, n0), [](const TargetOps& t, X x, N0 n) { return t.lacks_floor() ? lower_cmod(x, n) : UOp(); }),
      rule(op<THREEFRY>(x, y),
           [](const TargetOps& t, X x, Y y) { return t.lacks(THREEFRY) ? decompose_threefry(x, y) : UOp(); }),
      rule(op<POW>(i, y), [](const TargetOps& t, I x, Y y) { return t.lacks(POW) ? lower_int_pow(x, y) : UOp(); }),
      // ---- functions ----
      rule(op<POW>(f, g),
           [](const TargetOps& t, F f, G g) { return t.lacks(POW) ? decompose_pow(f, g, t.fma(), t.doubles) : UOp(); }),
      rule(op<EXP2>(f), [](const TargetOps& t, F f) { return t.lacks(EXP2) ? decompose_exp2(f, t.fma()) : UOp(); }),
      rule(op<LOG2>(f), [](const TargetOps& t, F f) { return t.lacks(LOG2) ? decompose_log2(f, t.fma()) : UOp(); }),
      rule(op<SIN>(f),
           [](const TargetOps& t, F f) { return t.lacks(SIN) ? decompose_sin(f, t.fma(), t.doubles) : UOp(); }),
      // ---- simple operations ----
      // A fused float16 would be a fused float32 and a second rounding.
      rule(op<MULACC>(x, y, z), [](const TargetOps& t, X x, Y y,
                                   Z z) { return t.lacks(MULACC) || !fusable(x.dtype()) ? x * y + z : UOp(); }),
      rule(recip(f), [](const TargetOps& t,
                        F f) { return t.lacks(RECIPROCAL) ? UOp::alu(FDIV, {f.const_like(1.0), f}) : UOp(); }),
      rule(op<FDIV>(f, g),
           [](const TargetOps& t, F f, G g) { return t.lacks(FDIV) ? f * UOp::alu(RECIPROCAL, {g}) : UOp(); }),
      rule(max(x, y),
           [](const TargetOps& t, X x, Y y) {
             return !t.lacks(MAX) ? UOp() : x.is_const() ? number_max(y, x) : number_max(x, y);
           }),
      rule(op<TRUNC>(f), [](const TargetOps& t, F f) { return t.lacks(TRUNC) ? lower_trunc(f) : UOp(); }),
  };
  return pm;
}

const PatternMatcher<>& pm_late_operations() {
  static const PatternMatcher<> pm{
      rule(x * -1,
           [](const TargetOps& t, X x) { return t.has(NEG) && !x.dtype().is_bool() ? UOp::alu(NEG, {x}) : UOp(); }),
      rule(x + op<NEG>(y), [](const TargetOps& t, X x, Y y) { return t.has(SUB) ? UOp::alu(SUB, {x, y}) : UOp(); }),
      rule(x + y * -1, [](const TargetOps& t, X x,
                          Y y) { return t.has(SUB) && !x.dtype().is_bool() ? UOp::alu(SUB, {x, y}) : UOp(); }),
      rule(not_(x != y), [](const TargetOps& t, X x, Y y) { return t.has(CMPEQ) ? UOp::alu(CMPEQ, {x, y}) : UOp(); }),
      rule(x + y * z,
           [](const TargetOps& t, X x, Y y, Z z) {
             const bool fused = t.fma() && fusable(x.dtype()) && (is_accumulator(x) || is_exact_product(y, z));
             return fused ? UOp::alu(MULACC, {y, z, x}) : UOp();
           }),
  };
  return pm;
}

const PatternMatcher<UOp>& pm_reciprocal_division() {
  static const PatternMatcher<UOp> pm{
      rule(op<FDIV>(f, c0), [](F f, C0 c) { return f * f.const_like(1 / c.const_float()); }),
  };
  return pm;
}

const PatternMatcher<>& pm_long_operations() {
  static const PatternMatcher<> t{
      rule(op<THREEFRY>(x, y), [](X x, Y y) { return decompose_threefry(x, y); }),
      rule(op<POW>(x, y), [](X x, Y y) { return x.dtype().is_int() ? lower_int_pow(x, y) : UOp(); }),
  };
  return t;
}

UOp decompose_threefry(UOp counter, UOp key) {
  using dtypes::uint32, dtypes::uint64;
  static constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  auto low = [](UOp v) { return v.cast(uint32); };
  auto high = [](UOp v) { return (v >> ConstValue(32)).cast(uint32); };
  const UOp k0 = low(key), k1 = high(key), ks[3] = {k1, k0 ^ k1 ^ k0.const_like(0x1bd11bda), k0};
  UOp a = low(counter) + k0, b = high(counter) + k1;
  for (int i = 0; i < 5; i++) {
    for (int r : kRotations[i % 2]) {
      a = a + b;
      b = a ^ ((b << ConstValue(r)) | (b >> ConstValue(32 - r)));
    }
    a = a + ks[i % 3];
    b = b + ks[(i + 1) % 3] + ConstValue(i + 1);
  }
  return (b.cast(uint64) << ConstValue(32)) | a.cast(uint64);
}

namespace {
// e^x and cos x on a target that has EXP2 and SIN: with an argument that is not rounded.
UOp widen_exp2(UOp x) {
  UOp v = x.dtype() == dtypes::float32 ? natural_exponent(x) : UOp();
  return v ? UOp::alu(EXP2, {v.cast(dtypes::float64) * ConstValue(std::numbers::log2e)}).cast(dtypes::float32) : UOp();
}
UOp widen_sin(UOp x) {
  UOp v = cosine_argument(x);
  if (!v) return {};
  UOp half = UOp::alu(SIN, {v.cast(dtypes::float64) * ConstValue(0.5)});
  return (half * half * ConstValue(-2.0) + ConstValue(1.0)).cast(x.dtype());
}
const PatternMatcher<>& pm_near_sin() {
  static const PatternMatcher<> t{
      rule(op<SIN>(f), [](F f) { return f.dtype() == dtypes::float32 ? decompose_near_sin(f) : UOp(); }),
  };
  return t;
}
const PatternMatcher<>& pm_widen() {
  static const PatternMatcher<> t{
      rule(op<EXP2>(f), [](F f) { return widen_exp2(f); }),
      rule(op<SIN>(f), [](F f) { return widen_sin(f); }),
  };
  return t;
}
}  // namespace

UOp decompose_ops(UOp sink, OpSet ops, bool doubles) {
  const TargetOps target{ops, doubles};
  return graph_rewrite(sink, pm_decompositions(), target, {.name = "decompose operations"});
}
UOp late_patterns(UOp sink, OpSet ops) {
  const TargetOps target{ops};
  return graph_rewrite(sink, pm_late_operations(), target, {.name = "late operations"});
}

namespace {
/// Refuses values of float64 where it is missing: no other type is as exact, so none stands for it.
void check_doubles(UOp sink, const Renderer& renderer) {
  if (renderer.supports(dtypes::float64)) return;
  walk(sink, [&](UOp u) {
    TG_CHECK(DTypeError, u.dtype() != dtypes::float64 || !u.in(groups::kElementwise | Ops::LOAD),
             "[compile] got a value of float64, which ", renderer.target().renderer,
             " does not compute in: cast it to float32");
  });
}
}  // namespace

UOp lower_to_target(UOp sink, const Renderer& renderer, OpSet ops, DTypeSet emulated) {
  check_doubles(sink, renderer);
  sink = decompose_longs(sink, renderer, emulated);
  sink = lower_index_dtype(sink);
  if (!renderer.supports(dtypes::int64)) sink = decompose_longs(sink, renderer);  // indices of 64 bits
  sink = decompose_dtypes(sink, renderer, emulated);
  if (ops.has(EXP2) && ops.has(SIN) && renderer.supports(dtypes::float64))
    sink = graph_rewrite(sink, pm_widen(), {.name = "widen arguments"});
  if (!ops.has(SIN) && ops.has(MULACC) && renderer.has_rare_choices())
    sink = graph_rewrite(sink, pm_near_sin(), {.name = "near sines"});
  sink = decompose_ops(sink, ops, renderer.supports(dtypes::float64));
  return late_patterns(sink, ops);
}

}  // namespace tg
