/// \file Arithmetic of 64-bit integers on two uint32 words.
#pragma once
#include <cmath>

#include "tinygrad/uop/uop.h"

namespace tg::words {
using dtypes::float32, dtypes::int32, dtypes::uint32;

inline UOp word(uint32_t v) { return UOp::constant(ConstValue(static_cast<int64_t>(v)), uint32); }
inline UOp number(double v) { return UOp::constant(ConstValue(v), float32); }
inline UOp both(UOp a, UOp b) { return UOp::alu(Ops::AND, {a, b}); }
inline UOp either(UOp a, UOp b) { return UOp::alu(Ops::OR, {a, b}); }
inline UOp is_set(UOp v) { return v.ne(word(0)); }

/// A value of 64 bits: two words.
struct Pair {
  UOp low, high;
};
inline Pair literal(int128 v) { return {word(static_cast<uint32_t>(v)), word(static_cast<uint32_t>(v >> 32))}; }
inline Pair choose(UOp c, Pair a, Pair b) { return {c.where(a.low, b.low), c.where(a.high, b.high)}; }
inline UOp differ(Pair a, Pair b) { return either(a.low.ne(b.low), a.high.ne(b.high)); }
inline UOp sign_word(UOp high) { return (high.bitcast(int32) >> ConstValue(31)).bitcast(uint32); }
inline UOp negative(Pair a, bool is_signed) {
  return is_signed ? is_set(a.high & word(0x80000000u)) : UOp::constant(false);
}

inline UOp less(Pair a, Pair b, bool is_signed) {
  auto top = [&](UOp h) { return is_signed ? h.bitcast(int32) : h; };
  return either(top(a.high) < top(b.high), both(a.high.eq(b.high), a.low < b.low));
}
inline Pair sum(Pair a, Pair b) {
  UOp low = a.low + b.low;
  return {low, a.high + b.high + (low < a.low).cast(uint32)};
}
inline Pair negated(Pair a) {
  UOp low = a.low ^ word(~0u);
  return sum({low, a.high ^ word(~0u)}, literal(1));
}
inline Pair difference(Pair a, Pair b) { return {a.low - b.low, a.high - b.high - (a.low < b.low).cast(uint32)}; }

/// Returns the full product of two words, from halves of 16 bits.
inline Pair product(UOp a, UOp b) {
  auto low = [](UOp v) { return v & word(0xffff); };
  auto high = [](UOp v) { return v >> word(16); };
  UOp ll = low(a) * low(b), lh = low(a) * high(b), hl = high(a) * low(b);
  UOp middle = high(ll) + low(lh) + low(hl);
  return {low(ll) | (middle << word(16)), high(a) * high(b) + high(lh) + high(hl) + high(middle)};
}
inline Pair product(Pair a, Pair b) {
  Pair p = product(a.low, b.low);
  return {p.low, p.high + a.low * b.high + a.high * b.low};
}

inline Pair shifted_left(Pair a, UOp by) {  // by < 64
  UOp n = by & word(31), far = word(31) < by, low = a.low << n;
  return {far.where(word(0), low), far.where(low, (a.high << n) | ((a.low >> word(1)) >> (word(31) - n)))};
}
inline Pair shifted_right(Pair a, UOp by, UOp fill, bool is_signed) {
  UOp n = by & word(31), far = word(31) < by;
  UOp high = is_signed ? (a.high.bitcast(int32) >> n.bitcast(int32)).bitcast(uint32) : a.high >> n;
  return {far.where(high, (a.low >> n) | ((a.high << word(1)) << (word(31) - n))), far.where(fill, high)};
}
/// A count of 64 or more (a negative one is such a count) shifts everything out.
inline Pair shift(Ops op, Pair a, Pair count, bool is_signed) {
  UOp fill = op == Ops::SHR && is_signed ? sign_word(a.high) : word(0);
  UOp out = either(is_set(count.high), word(63) < count.low);
  return choose(out, {fill, fill},
                op == Ops::SHL ? shifted_left(a, count.low) : shifted_right(a, count.low, fill, is_signed));
}
inline Pair shift(Ops op, Pair a, int by, bool is_signed) {
  const UOp n = word(static_cast<uint32_t>(by % 32)), rest = word(static_cast<uint32_t>(31 - by % 32));
  if (op == Ops::SHL) {
    UOp low = a.low << n;
    return by >= 32 ? Pair{word(0), low} : Pair{low, (a.high << n) | ((a.low >> word(1)) >> rest)};
  }
  UOp fill = is_signed ? sign_word(a.high) : word(0);
  UOp high = is_signed ? (a.high.bitcast(int32) >> n.bitcast(int32)).bitcast(uint32) : a.high >> n;
  return by >= 32 ? Pair{high, fill} : Pair{(a.low >> n) | ((a.high << word(1)) << rest), high};
}

/// A magnitude shifted until it begins with its leading bit: digits.high * scale, and what digits.low has behind that.
struct Normalized {
  Pair digits;
  UOp scale, minus;
};
inline Normalized normalized(Pair p, bool is_signed) {
  const UOp minus = negative(p, is_signed);
  Pair v = choose(minus, negated(p), p);
  const UOp one_word = is_set(v.high).logical_not();
  v = choose(one_word, {word(0), v.low}, v);
  UOp scale = one_word.where(number(1), number(0x1p32));
  for (int k : {16, 8, 4, 2, 1}) {
    UOp small = v.high < word(1u << (32 - k));
    v = choose(small, shift(Ops::SHL, v, k, false), v);
    scale = small.where(scale * ConstValue(std::ldexp(1.0, -k)), scale);
  }
  return {v, scale, minus};
}

/// Rounded once: the leading word with one bit for all that follow. `exact`: nothing is rounded, but what is cut off
/// leaves its mark in the last bit, so that rounding to fewer bits comes out right.
inline UOp to_float32(Pair p, bool is_signed, bool exact) {
  const Normalized n = normalized(p, is_signed);
  UOp lead = n.digits.high | is_set(n.digits.low).cast(uint32);
  if (exact) lead = (lead & word(~0xffu)) | (is_set(lead & word(0xff)).cast(uint32) << word(8));
  UOp r = lead.cast(float32) * n.scale;
  return is_signed ? n.minus.where(r * ConstValue(-1.0), r) : r;
}

/// Returns the leading 24 bits of a signed value, and the 24 bits behind them, as two float32.
inline std::pair<UOp, UOp> to_two_float32(Pair p) {
  const Normalized n = normalized(p, true);
  const UOp signed_scale = n.minus.where(n.scale * ConstValue(-1.0), n.scale);
  const UOp behind = ((n.digits.high & word(0xff)) << word(24)) | (n.digits.low >> word(8));
  return {(n.digits.high & word(~0xffu)).cast(float32) * signed_scale,
          behind.cast(float32) * ConstValue(0x1p-24) * signed_scale};
}

}  // namespace tg::words
