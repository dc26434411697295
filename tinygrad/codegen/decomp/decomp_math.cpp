/// \file EXP2, LOG2, SIN and POW as polynomials. Range reduction works on the bits of floats, so that a vector needs
/// few selects. The coefficients are minimax fits made for this file; the error of each fit is stated, 2^-24 and 2^-53
/// being half a unit in the last place.
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/codegen/decomp/word_pair.h"
#include "tinygrad/uop/transcendental.h"

namespace tg {
namespace {
constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN(),
                 kLn2 = std::numbers::ln2;

/// Constants of float32 and float64 that the formulas use.
struct Format {
  DType type, bits;
  int mantissa, bias;
  double magic;  ///< adding it leaves the nearest integer in the low bits of the sum
};
const Format& format(DType d) {
  static const Format f32{dtypes::float32, dtypes::int32, 23, 127, 0x1.8p23},
      f64{dtypes::float64, dtypes::int64, 52, 1023, 0x1.8p52};
  TG_ASSERT(d == dtypes::float32 || d == dtypes::float64, "no formulas for ", d);
  return d == dtypes::float32 ? f32 : f64;
}

/// Returns a * b + c, fused or not.
UOp muladd(UOp a, UOp b, UOp c, bool fma) { return fma ? UOp::alu(Ops::MULACC, {a, b, c}) : a * b + c; }
/// Returns c[0] + c[1] * x + ... by Horner's scheme.
UOp polynomial(UOp x, std::span<const double> c, bool fma) {
  UOp r = x.const_like(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) r = muladd(r, x, x.const_like(c[i]), fma);
  return r;
}
UOp both(UOp a, UOp b) { return UOp::alu(Ops::AND, {a, b}); }
UOp either(UOp a, UOp b) { return UOp::alu(Ops::OR, {a, b}); }
UOp magnitude(UOp x, const Format& f) {
  return (x.bitcast(f.bits) & ConstValue(f.type == dtypes::float32 ? int64_t{INT32_MAX} : INT64_MAX)).bitcast(f.type);
}
UOp is_integer(UOp y) { return UOp::alu(Ops::TRUNC, {y}).eq(y); }

// 2^f = 1 + f * q(f) on [-1/2, 1/2]: 2^-28.9 and 2^-58.
constexpr double kExp2f[] = {0x1.62e430af270f7p-1, 0x1.ebfbdc3c3099ep-3,  0x1.c6aee88e95632p-5,
                             0x1.3b2d4cf1c3e14p-7, 0x1.5f3e52f190206p-10, 0x1.41fbbbfb13bc4p-13};
constexpr double kExp2[] = {0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5a4p-3,  0x1.c6b08d7049fe8p-5,  0x1.3b2ab6fba011ap-7,
                            0x1.5d87fe78cd6d0p-10, 0x1.4309130ed8ce3p-13, 0x1.ffcbfba980b70p-17, 0x1.62bfc79d49a04p-20,
                            0x1.b5267ce06bb77p-24, 0x1.e61b4f9c83db8p-28, 0x1.e79bb61590759p-32};
// log2(1 + f) = f / ln 2 + f^2 * q(f) on [sqrt(1/2) - 1, sqrt(2) - 1]: 2^-27.9.
constexpr double kLog2f[] = {-0x1.715470ae86896p-1, 0x1.ec70965dbb23ep-2,  -0x1.715a72e879767p-2,
                             0x1.277e3c2a91975p-2,  -0x1.eabd0eadc5e1fp-3, 0x1.a30594cf71ec7p-3,
                             -0x1.874854c03ccc0p-3, 0x1.7d478b3fd77bbp-3,  -0x1.c264601b8c31ap-4};
// ln(1 + f) = f - h + s * (h + z * r(z)) with h = f^2 / 2, s = f / (2 + f), z = s^2: 2^-58.
constexpr double kLog2[] = {0x1.5555555555592p-1, 0x1.999999997fdb8p-2, 0x1.24924941f1231p-2, 0x1.c71c52095e5ebp-3,
                            0x1.74663ee833d15p-3, 0x1.39a1babc83edcp-3, 0x1.2f0563563b9a5p-3};
// sin(r) = r + r^3 * q(r^2) on [-pi/2, pi/2]: 2^-35.3 (for float32, evaluated in float64) and 2^-61.7.
constexpr double kSinf[] = {-0x1.555555476967dp-3, 0x1.11110c4a013cdp-7, -0x1.a017d9a055871p-13, 0x1.7170802653a4ap-19,
                            -0x1.9a6887e3c5688p-26};
constexpr double kSin[] = {-0x1.5555555555555p-3,  0x1.11111111110c1p-7,   -0x1.a01a01a0148bcp-13,
                           0x1.71de3a5287c76p-19,  -0x1.ae6454cb574ebp-26, 0x1.6123cb29047edp-33,
                           -0x1.ae431d98e691bp-41, 0x1.8829a300a3ab2p-49};
// 1/pi split into terms of 29 bits: the product of each with a float32 is exact in float64.
constexpr double kInversePi29[] = {0x145f306dp-30,  0x19391054p-59, 0x14fe13abp-88, 0x1d1f534dp-117,
                                   0x1b81b6c5p-146, 0x5664f10p-175, 0x1c820ff2p-204};

// 1/pi split into terms of 26 bits, term i scaled by 2^-(27 + 26 i): its product with half of a float64 is exact.
constexpr int32_t kInversePi26[] = {
    0x28be60d, 0x2e4e441, 0x14a7f09, 0x357d1f5, 0xd37703,  0x1b62959, 0x24f10e4, 0x41fe51,  0x18eaf7a, 0x3bc561b,
    0x1c91b8e, 0x2424dd2, 0x3801924, 0x2eea09d, 0x64873f,  0x21deb1c, 0x2c4a69c, 0x3ee8823, 0x17d4bae, 0x34484e9,
    0x271c09a, 0x345f7e4, 0x4e6475,  0x2398353, 0xe7d272,  0x45f8bb,  0x37e4a0e, 0x31ff897, 0x3ff7816, 0x180fef2,
    0x3c462d6, 0x20a6d1f, 0x1b4d9fb, 0xf27cb0,  0x26dd3d1, 0x23f669e, 0x17fa8b5, 0x3527bac, 0x1faf97c, 0x17b3d07,
    0xe7de29,  0x1292ea6, 0x2fed7ec, 0x11f8d5d, 0x21580c,  0x3046fc7, 0x2daeafc, 0xcfbc20,
};

/// Returns p * 2^n in two products: the first is exact, the second overflows or becomes denormal in one rounding. `t`
/// is n + rounder(f): its low bits are n + 2 * bias, which are split between the exponents of two factors; the bits
/// above them are shifted out. Where n is -2 * bias both factors are 0, and so is the result: exactly, since a product
/// that underflows takes some processors a hundred times as long, and masked values are many.
UOp scaled(UOp p, UOp t, const Format& f) {
  UOp n = t.bitcast(f.bits), half = n >> ConstValue(1);
  auto power = [&](UOp k) { return (k << ConstValue(f.mantissa)).bitcast(f.type); };
  return p * power(half) * power(n - half);
}
double rounder(const Format& f) { return f.magic + 2 * f.bias; }

/// Returns 2^(x + rest), |rest| < 1 ulp of x.
UOp exp2_of(UOp x, bool fma, UOp rest = {}) {
  const Format& f = format(x.dtype());
  const bool single = f.type == dtypes::float32;
  // Beyond these the result is 0 or inf; a NaN passes both comparisons.
  const double lowest = -2.0 * f.bias, highest = single ? 129 : 1025;
  x = (x < x.const_like(lowest)).where(x.const_like(lowest), x);
  x = (x.const_like(highest) < x).where(x.const_like(highest), x);
  UOp t = x + ConstValue(rounder(f)), r = x - (t + ConstValue(-rounder(f)));
  if (rest) r = r + rest;
  UOp p = muladd(r, polynomial(r, single ? std::span<const double>(kExp2f) : std::span<const double>(kExp2), fma),
                 r.const_like(1.0), fma);
  return scaled(p, t, f);
}

/// Returns e^x from x = n ln 2 + r, |r| <= ln 2 / 2 (Cody and Waite): the rounding error of a product x / ln 2 would be
/// n ulp.
UOp exp_of(UOp x, bool fma) {
  const Format& f = format(x.dtype());
  const bool single = f.type == dtypes::float32;
  const double lowest = -2 * kLn2 * f.bias, highest = single ? 89.5 : 711;
  x = (x < x.const_like(lowest)).where(x.const_like(lowest), x);
  x = (x.const_like(highest) < x).where(x.const_like(highest), x);
  UOp t = muladd(x, x.const_like(1 / kLn2), x.const_like(rounder(f)), fma), whole = t + ConstValue(-rounder(f));
  // ln 2 as a sum of two terms, the first with so few bits that its product with n is exact.
  const double high = single ? 0x1.62e4p-1 : 0x1.62e42feep-1,
               low = single ? 0x1.7f7d1cf79abcap-20 : 0x1.a39ef35793c76p-33;
  UOp r = muladd(whole, x.const_like(-low), muladd(whole, x.const_like(-high), x, fma), fma);
  std::vector<double> c(single ? std::begin(kExp2f) : std::begin(kExp2), single ? std::end(kExp2f) : std::end(kExp2));
  double scale = 1;
  for (double& v : c) v *= scale /= kLn2;
  return scaled(muladd(r, polynomial(r, c, fma), r.const_like(1.0), fma), t, f);
}

UOp log2_of(UOp x, bool fma) {
  const Format& f = format(x.dtype());
  const bool single = f.type == dtypes::float32;
  // A denormal number is scaled up.
  const double least = single ? 0x1p-126 : 0x1p-1022, scale = single ? 0x1p24 : 0x1p53;
  UOp small = x < x.const_like(least), y = small.where(x * ConstValue(scale), x);
  UOp bits = y.bitcast(f.bits);
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  const int64_t root = single ? 0x3f3504f3 : 0x3fe6a09e667f3bcd, fraction = (int64_t{1} << f.mantissa) - 1;
  UOp i = bits + ConstValue(-root);
  UOp m = ((i & ConstValue(fraction)) + ConstValue(root)).bitcast(f.type);
  UOp e =
      (i >> ConstValue(f.mantissa)).cast(f.type) + small.where(x.const_like(single ? -24.0 : -53.0), x.const_like(0.0));
  UOp g = m + ConstValue(-1.0), result;
  if (single) {
    // e + g + (g * (1/ln 2 - 1) + g^2 * q): the rounding error of the first sum is kept.
    UOp rest = muladd(g, g.const_like(0x1.c551d94ae0bf8p-2), g * g * polynomial(g, kLog2f, fma), fma);
    UOp sum = e + g, lost = g - (sum - e);
    result = sum + (rest + lost);
  } else {
    UOp h = g * g * ConstValue(0.5), s = UOp::alu(Ops::FDIV, {g, g + ConstValue(2.0)}), z = s * s;
    UOp r = s * (h + z * polynomial(z, kLog2, fma));
    // The leading half of g - h, times the leading half of 1/ln 2, is exact.
    UOp high = ((g - h).bitcast(f.bits) & ConstValue(-(int64_t{1} << 32))).bitcast(f.type), low = ((g - high) - h) + r;
    constexpr double kHigh = 0x1.7154765200000p+0, kLow = 0x1.705fc2eefa200p-33;  // of 1/ln 2
    UOp a = high * ConstValue(kHigh), b = (low + high) * ConstValue(kLow) + low * ConstValue(kHigh);
    UOp w = e + a;
    result = (b + ((e - w) + a)) + w;
  }
  result =
      both(x.const_like(0.0) < x, x < x.const_like(kInf))
          .where(
              result,
              x.eq(x.const_like(0.0)).where(x.const_like(-kInf), (x < x.const_like(0.0)).where(x.const_like(kNaN), x)));
  return result;
}

// ---- double-double arithmetic: a value and its rounding error ----
struct Parts {
  UOp high, low;
};
/// Returns a + b without error (Fast2Sum); |a| >= |b|, or a is 0.
Parts exact_sum(UOp a, UOp b) {
  UOp s = a + b;
  return {s, b - (s - a)};
}
Parts exact_product(UOp a, UOp b, bool fma) {
  UOp p = a * b;
  if (fma) return {p, UOp::alu(Ops::MULACC, {a, b, p * ConstValue(-1.0)})};
  const Format& f = format(a.dtype());
  auto leading = [&](UOp v) {  // half of the bits
    return (v.bitcast(f.bits) & ConstValue(-(int64_t{1} << (f.mantissa / 2 + 1)))).bitcast(f.type);
  };
  UOp ah = leading(a), al = a - ah, bh = leading(b), bl = b - bh;
  return {p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}
Parts product(Parts a, Parts b, bool fma) {
  Parts p = exact_product(a.high, b.high, fma);
  return exact_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}

/// Returns a literal that is given as the sum of two float64 in two parts of type `d`.
Parts parts_of(double high, double low, DType d) {
  const double first = truncate_float(high, d);
  const double second = truncate_float((high - first) + low, d);
  return {UOp::constant(ConstValue(first), d), UOp::constant(ConstValue(second), d)};
}

/// Returns log2 of a positive finite value to about 2^-66, of a float32 to 2^-32: 2 / ln 2 * (s + s^3 / 3 + s^5 / 5 +
/// ...) with s = f / (2 + f), plus the exponent.
Parts log2_in_parts(UOp x, bool fma) {
  const Format& f = format(x.dtype());
  const bool single = f.type == dtypes::float32;
  const double least = single ? 0x1p-126 : 0x1p-1022, scale = single ? 0x1p24 : 0x1p53;
  UOp small = x < x.const_like(least), bits = small.where(x * ConstValue(scale), x).bitcast(f.bits);
  const int64_t root = single ? 0x3f3504f3 : 0x3fe6a09e667f3bcd;
  UOp i = bits + ConstValue(-root);
  UOp m = ((i & ConstValue((int64_t{1} << f.mantissa) - 1)) + ConstValue(root)).bitcast(f.type);
  UOp e =
      (i >> ConstValue(f.mantissa)).cast(f.type) + small.where(x.const_like(single ? -24.0 : -53.0), x.const_like(0.0));
  UOp g = m + ConstValue(-1.0), divisor = g + ConstValue(2.0), lost = g - (divisor - divisor.const_like(2.0));
  UOp quotient = UOp::alu(Ops::FDIV, {g, divisor});
  Parts back = exact_product(quotient, divisor, fma);
  Parts s{quotient, UOp::alu(Ops::FDIV, {((g - back.high) - back.low) - quotient * lost, divisor})};
  std::vector<double> series;
  for (int k = 2; k <= (single ? 6 : 13); k++) series.push_back(1.0 / (2 * k + 1));
  Parts square = product(s, s, fma),
        third = product(product(s, square, fma), parts_of(0x1.5555555555555p-2, 0x1.5555555555555p-56, f.type), fma);
  UOp tail = s.high * square.high * square.high * polynomial(square.high, series, fma);
  Parts sum = exact_sum(s.high, third.high);
  sum = exact_sum(sum.high, sum.low + (third.low + s.low + tail));
  Parts scaled = product(sum, parts_of(0x1.71547652b82fep+1, 0x1.777d0ffda0d24p-55, f.type), fma);  // 2 / ln 2
  Parts whole = exact_sum(e, scaled.high);  // the same where the exponent is 0
  return exact_sum(whole.high, whole.low + scaled.low);
}

/// Returns x^y for x >= 0 within 1.5 ulp, computed in the type of x.
UOp pow_in_parts(UOp x, UOp y, bool fma) {
  UOp zero = x.const_like(0.0), inf = x.const_like(kInf);
  Parts l = log2_in_parts(x, fma);
  UOp regular = both(zero < x, x < inf);
  UOp special = x.eq(zero).where(x.const_like(-kInf), x);  // 0, infinity and NaN
  l = {regular.where(l.high, special), regular.where(l.low, zero)};
  Parts p = exact_product(y, l.high, fma);
  UOp rest = p.low + y * l.low;
  // Where the result is 0 or infinite, the rounding error may be NaN.
  UOp counts = both(p.high < p.high.const_like(2000.0), p.high.const_like(-2000.0) < p.high);
  return exp2_of(p.high, fma, counts.where(rest, zero));
}

/// Computes x / pi as an unevaluated sum, sum + lost, modulo an integer whose parity is in the lowest bit of `parity`.
struct Turns {
  UOp sum, lost, parity;

  /// Adds x * piece mod 2. The product and its remainder are exact; so is the sum of two terms, since every summand is
  /// a multiple of one ulp of the next.
  void add(UOp x, UOp piece, bool fma) {
    UOp p = x * piece, whole = UOp::alu(Ops::TRUNC, {p * ConstValue(0.5)});
    UOp part = muladd(whole, whole.const_like(-2.0), p, fma);
    if (!sum) {
      sum = part;
      lost = p.const_like(0.0);
      return;
    }
    UOp next = sum + part;
    lost = lost + (part - (next - sum));
    sum = next;
  }
  /// Adds a quarter turn: the sine becomes the cosine.
  void quarter() {
    UOp half = sum.const_like(0.5), next = sum + half, added = next - sum;
    lost = lost + ((sum - (next - added)) + (half - added));
    sum = next;
  }
  /// Subtracts the nearest integer from the sum.
  void reduce() {
    const Format& f = format(dtypes::float64);
    UOp t = sum + ConstValue(f.magic), bits = t.bitcast(f.bits);
    sum = sum - (t + ConstValue(-f.magic));
    parity = parity ? UOp::alu(Ops::XOR, {parity, bits}) : bits;
  }
  UOp negate_if_odd(UOp s) const {
    return UOp::alu(Ops::XOR, {s.bitcast(parity.dtype()), parity << ConstValue(63)}).bitcast(s.dtype());
  }
};

UOp sin_float(UOp x, bool cosine, bool fma) {
  UOp wide = x.cast(dtypes::float64);
  Turns t;
  for (double piece : kInversePi29) t.add(wide, wide.const_like(piece), fma);
  if (cosine) t.quarter();
  t.reduce();
  UOp r = (t.sum + t.lost) * ConstValue(0x1.921fb54442d18p+1), z = r * r;
  UOp s = t.negate_if_odd(muladd(r * z, polynomial(z, kSinf, fma), r, fma)).cast(dtypes::float32);
  return cosine ? s : x.eq(x.const_like(0.0)).where(x, s);  // keeps -0
}

// sin(r) = r + r^3 * q(r^2) and cos(r) = 1 - r^2 / 2 + r^4 * q(r^2) on [-pi/4, pi/4]: 2^-27.9 and 2^-32.9.
constexpr double kNearSin[] = {-0x1.555544p-3, 0x1.11071cp-7, -0x1.993960p-13};
constexpr double kNearCos[] = {0x1.55554ap-5, -0x1.6c0c12p-10, 0x1.99e202p-16};
constexpr double kNear = 0x1p17;  // below it, subtracting a multiple of the first 24 bits of pi / 2 is exact

/// Returns sin or cos of float32 below kNear: x = n pi / 2 + r, pi / 2 as a sum of three terms of 24 bits.
UOp near_sin(UOp x, bool cosine) {
  const Format& f = format(dtypes::float32);
  auto fused = [](UOp a, UOp b, UOp c) { return UOp::alu(Ops::MULACC, {a, b, c}); };
  auto number = [&](double v) { return x.const_like(v); };
  auto bits = [&](int64_t v) { return UOp::constant(ConstValue(v), f.bits); };
  UOp t = fused(x, number(0x1.45f306p-1), number(f.magic)), n = t + ConstValue(-f.magic), quarter = t.bitcast(f.bits);
  if (cosine) quarter = quarter + bits(1);
  UOp r = fused(n, number(0x1.777a5cp-25), fused(n, number(-0x1.921fb6p+0), x));
  UOp z = r * r, sine = r + fused(r * z, polynomial(z, kNearSin, true), n * ConstValue(0x1.ee59dap-50));
  UOp cosines = fused(z * z, polynomial(z, kNearCos, true), fused(z, number(-0.5), number(1)));
  UOp s = (quarter & bits(1)).ne(bits(0)).where(cosines, sine);
  return UOp::alu(Ops::XOR, {s.bitcast(f.bits), (quarter & bits(2)) << ConstValue(30)}).bitcast(f.type);
}

/// The bits of 2 / pi behind a word of zeros.
constexpr uint32_t kTwoOverPi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                   0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

/// Returns sin or cos of a float32 in float32 and words (Payne and Hanek): of 2 / pi, times the mantissa, those 96 bits
/// count that are below 4 quarter turns and above what a float32 resolves. The reduced argument is a sum of two
/// floats.
UOp sin_in_words(UOp x, bool cosine, bool fma) {
  using namespace words;
  UOp bits = x.bitcast(uint32) & word(0x7fffffff), exponent = bits >> word(23);
  UOp mantissa = (bits & word(0x7fffff)) | word(0x800000);
  UOp from = exponent - word(127 - 7), first = (from >> word(5)) & word(7), shift = from & word(31);
  UOps pieces;
  for (uint32_t w : kTwoOverPi) pieces.push_back(word(w));
  for (uint32_t move : {4, 2, 1}) {
    UOps next;
    for (size_t i = 0; i < 4 + move - 1; i++) {
      UOp far = i + move < pieces.size() ? pieces[i + move] : word(0);
      next.push_back(is_set(first & word(move)).where(far, pieces[i]));
    }
    pieces = std::move(next);
  }
  UOp window[3];
  for (size_t i = 0; i < 3; i++) window[i] = (pieces[i] << shift) | ((pieces[i + 1] >> word(1)) >> (word(31) - shift));
  const Pair low = words::product(mantissa, window[2]), middle = words::product(mantissa, window[1]);
  UOp second = low.high + middle.low;
  UOp top = middle.high + (second < middle.low).cast(uint32) + mantissa * window[0];
  UOp quarter = (top + word(0x20000000)) >> word(30);
  const Pair fraction = words::shift(Ops::SHL, {second, top}, 2, false);
  const auto [leading, behind] = to_two_float32(fraction);
  const Parts reduced = product({leading, behind}, parts_of(0x1.921fb54442d18p-64, 0, dtypes::float32), fma);
  UOp near = bits < word(0x3f490fdb);  // pi / 4
  UOp r = near.where(bits.bitcast(float32), reduced.high), rest = near.where(r.const_like(0.0), reduced.low);
  quarter = near.where(word(0), quarter);
  if (cosine) quarter = quarter + word(1);
  UOp z = r * r, sine = r + muladd(r * z, polynomial(z, kNearSin, fma), rest, fma);
  UOp cosines = muladd(z * z, polynomial(z, kNearCos, fma), muladd(z, z.const_like(-0.5), z.const_like(1.0), fma), fma);
  UOp s = is_set(quarter & word(1)).where(cosines, sine).bitcast(uint32);
  s = UOp::alu(Ops::XOR, {s, (quarter & word(2)) << word(30)});
  if (!cosine) s = UOp::alu(Ops::XOR, {s, x.bitcast(uint32) & word(0x80000000)});
  return (bits < word(0x7f800000)).where(s.bitcast(float32), x.const_like(kNaN));
}

/// Reduces large arguments (Payne and Hanek): of the 48 terms of 1/pi only those matter whose product with x is no even
/// integer and not below one ulp of the result: eight, from `first` on, which follows from the exponent. A barrel
/// shifter moves them to the front.
UOp sin_double(UOp x, bool cosine, bool fma) {
  constexpr int kPieces = 28, kUsed = 8, kMoved = 20;  // a large x is scaled down by 2^(26 * 20), the pieces up
  const Format& f = format(dtypes::float64);
  UOp large = x.const_like(0x1p600) < magnitude(x, f);
  UOps pieces;
  for (int i = 0; i < kPieces; i++) {
    auto piece = [](int at, int scale) { return std::ldexp(kInversePi26[at], scale - 27 - 26 * at); };
    pieces.push_back(large.where(x.const_like(piece(i + kMoved, 26 * kMoved)), x.const_like(piece(i, 0))));
  }
  UOp y = large.where(x * x.const_like(std::ldexp(1.0, -26 * kMoved)), x);
  auto whole = [&](int64_t v) { return UOp::constant(ConstValue(v), dtypes::int64); };
  UOp exponent = ((y.bitcast(dtypes::int64) >> whole(52)) & whole(0x7ff)) + whole(-1023 - 54);
  UOp first = (exponent < whole(0)).where(whole(0), (exponent * whole(2521)) >> whole(16));  // exponent / 26
  for (int shift = 16; shift >= 1; shift /= 2) {
    UOp move = (first & whole(shift)).ne(whole(0));
    UOps next;
    for (int i = 0; i < kUsed + shift - 1; i++) {
      const size_t at = static_cast<size_t>(i), from = at + static_cast<size_t>(shift);
      next.push_back(from < pieces.size() ? move.where(pieces[from], pieces[at]) : pieces[at]);
    }
    pieces = std::move(next);
  }
  auto leading = [&](UOp v) {
    return (v.bitcast(dtypes::int64) & whole(-(int64_t{1} << 27))).bitcast(dtypes::float64);
  };
  UOp high = leading(y), low = y - high;
  Turns t;
  for (int i = 0; i < kUsed; i++)
    for (UOp half : {high, low}) {
      t.add(half, pieces[static_cast<size_t>(i)], fma);
      if (i < 4) t.reduce();  // the integer part ends here; near a multiple of pi the sum stays exact
    }
  if (cosine) t.quarter();
  t.reduce();
  // pi * (g + rest) as r + tail.
  UOp g = t.sum + t.lost, rest = t.lost - (g - t.sum), front = leading(g), back = g - front;
  constexpr double kPi = 0x1.921fb54442d18p+1, kPiLow = 0x1.1a62633145c07p-53, kPiFront = 0x1.921fb5p+1,
                   kPiBack = kPi - kPiFront;
  UOp r = g * ConstValue(kPi);
  UOp tail = ((front * ConstValue(kPiFront) - r) + front * ConstValue(kPiBack) + back * ConstValue(kPiFront)) +
             back * ConstValue(kPiBack);
  tail = tail + g * ConstValue(kPiLow) + rest * ConstValue(kPi);
  UOp z = r * r, s = r + (r * z * polynomial(z, kSin, fma) + tail * (z * ConstValue(-0.5) + ConstValue(1.0)));
  s = t.negate_if_odd(s);
  return cosine ? s : (magnitude(x, f) < x.const_like(0x1p-26)).where(x, s);
}

template <class F> UOp through_float32(UOp x, F&& f) {
  const bool narrow = x.dtype() == dtypes::float16;
  return narrow ? f(x.cast(dtypes::float32)).cast(x.dtype()) : f(x);
}
}  // namespace

UOp decompose_exp2(UOp x, bool fma) {
  if (UOp v = natural_exponent(x); v && x.dtype() != dtypes::float16) return exp_of(v, fma);
  return through_float32(x, [&](UOp v) { return exp2_of(v, fma); });
}
UOp decompose_log2(UOp x, bool fma) {
  return through_float32(x, [&](UOp v) { return log2_of(v, fma); });
}
UOp decompose_sin(UOp x, bool fma, bool doubles) {
  const UOp turned = cosine_argument(x);
  return through_float32(turned ? turned : x, [&](UOp v) {
    return v.dtype() == dtypes::float64 ? sin_double(v, bool(turned), fma)
           : doubles                    ? sin_float(v, bool(turned), fma)
                                        : sin_in_words(v, bool(turned), fma);
  });
}

UOp decompose_near_sin(UOp x) {
  const Format& f = format(dtypes::float32);
  const UOp turned = cosine_argument(x);
  if (turned) x = turned;
  UOp near = near_sin(x, bool(turned));
  if (!turned) near = x.eq(x.const_like(0.0)).where(x, near);  // keeps -0
  UOp is_near = (x.bitcast(f.bits) & ConstValue(int64_t{INT32_MAX})) <
                UOp::constant(ConstValue(int64_t{std::bit_cast<int32_t>(static_cast<float>(kNear))}), f.bits);
  return is_near.where(near, sin_float(x, bool(turned), true)).rtag(Renderer::kRarelyElse);
}

UOp decompose_pow(UOp x, UOp y, bool fma, bool doubles) {
  if (x.dtype() == dtypes::float16)
    return decompose_pow(x.cast(dtypes::float32), y.cast(dtypes::float32), fma, doubles).cast(dtypes::float16);
  const Format& f = format(x.dtype());
  UOp one = x.const_like(1.0), zero = x.const_like(0.0), a = magnitude(x, f);
  auto wide = [](UOp v) { return v.cast(dtypes::float64); };
  UOp r = f.type == dtypes::float64 || !doubles ? pow_in_parts(a, y, fma)
                                                : exp2_of(wide(y) * log2_of(wide(a), fma), fma).cast(f.type);
  r = both(a.eq(one), y.eq(y)).where(one, r);  // 0 * inf in the exponent
  UOp whole = is_integer(y), odd = both(whole, is_integer(y * ConstValue(0.5)).logical_not());
  UOp negative = x.bitcast(f.bits) < UOp::constant(ConstValue(0), f.bits);
  r = both(negative, odd).where(r * ConstValue(-1.0), r);
  UOp undefined = both(both(x < zero, x.const_like(-kInf) < x), whole.logical_not());
  r = undefined.where(x.const_like(kNaN), r);
  return either(y.eq(zero), x.eq(one)).where(one, r);
}

}  // namespace tg
