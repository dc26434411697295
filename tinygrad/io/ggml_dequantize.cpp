/// \file GGML's blocks as tensor operations. In the notes on layouts a name is a field of the block, in the order of
/// its bytes: d is a scale (float16 unless said otherwise).
#include "tinygrad/io/ggml_dequantize.h"

#include <array>
#include <cstddef>

#include "tinygrad/base/error.h"
#include "tinygrad/io/ggml_grids.h"

namespace tg::io {
namespace {

// ---- parts of a block ----

Tensor bytes(const Tensor& b, int64_t from, int64_t to) { return b(Ellipsis, Slice(from, to)); }
/// Returns the float16 at a byte: (..., 1).
Tensor half(const Tensor& b, int64_t at) { return bytes(b, at, at + 2).bitcast(dtypes::float16).to_float(); }
Tensor single(const Tensor& b, int64_t at) { return bytes(b, at, at + 4).bitcast(dtypes::float32); }
/// Returns signed bytes as floats.
Tensor signed_bytes(const Tensor& b, int64_t from, int64_t to) {
  return bytes(b, from, to).bitcast(dtypes::int8).to_float();
}
/// Returns the low halves of bytes (..., n), then the high ones: (..., 2n).
Tensor nibbles(const Tensor& q) { return q.bitwise_and(15).cat(q.rshift(4), -1); }
/// Returns the low and the high half of one byte after the other: (..., n) -> (..., 2n).
Tensor nibble_pairs(const Tensor& q) { return Tensor::stack({q.bitwise_and(15), q.rshift(4)}, -1).flatten(-2); }
/// Returns steps 0, `step`, ... as numbers of the type of `q`.
Tensor shifts(const Tensor& q, int64_t count, int64_t step) { return (Tensor::arange(count) * step).cast(q.dtype()); }
/// Returns fields of `width` bits, the lowest first, of words (..., n): (..., count, n).
Tensor fields(const Tensor& q, int64_t count, int64_t width) {
  return q.unsqueeze(-2).rshift(shifts(q, count, width).unsqueeze(-1)).bitwise_and((1 << width) - 1);
}
/// Returns `count` fields at distances of `step` bits for one word after the other: (..., n) -> (..., n, count).
Tensor fields_of_each(const Tensor& q, int64_t count, int64_t step, int64_t width) {
  return q.unsqueeze(-1).rshift(shifts(q, count, step)).bitwise_and((1 << width) - 1);
}
/// Returns the bits of words, the lowest first: (..., n) -> (..., n, count).
Tensor bits(const Tensor& q, int64_t count = 8) { return fields_of_each(q, count, 1, 1); }
/// Returns the value of each code; codes beyond the values do not occur.
Tensor coded(const Tensor& code, std::span<const int> values) {
  Tensor out = Tensor::full(Shape{}, static_cast<double>(values.back()), {.dtype = dtypes::float32});
  for (size_t i = values.size() - 1; i > 0; i--)
    out = (code == static_cast<int>(i - 1)).where(static_cast<double>(values[i - 1]), out);
  return out;
}

// ---- 32 numbers ----

/// d, q: 16 bytes of two.
Tensor q4_0(const Tensor& b) { return (nibbles(bytes(b, 2, 18)).to_float() - 8) * half(b, 0); }
/// d, m, q.
Tensor q4_1(const Tensor& b) { return nibbles(bytes(b, 4, 20)).to_float() * half(b, 0) + half(b, 2); }
/// Fifth bits: four bytes, one bit for each number; q: 16 bytes of two.
Tensor five_bits(const Tensor& b, int64_t at) {
  const Tensor fifth = bits(bytes(b, at, at + 4)).flatten(-2);
  return nibbles(bytes(b, at + 4, at + 20)).bitwise_or(fifth.lshift(4)).to_float();
}
Tensor q5_0(const Tensor& b) { return (five_bits(b, 2) - 16) * half(b, 0); }
Tensor q5_1(const Tensor& b) { return five_bits(b, 4) * half(b, 0) + half(b, 2); }
Tensor q8_0(const Tensor& b) { return signed_bytes(b, 2, 34) * half(b, 0); }
/// d, s (sum of the numbers times d, for dot products): float32; q.
Tensor q8_1(const Tensor& b) { return signed_bytes(b, 8, 40) * single(b, 0); }
/// d, 128 signs.
Tensor q1_0(const Tensor& b) { return (bits(bytes(b, 2, 18)).flatten(-2).to_float() * 2 - 1) * half(b, 0); }

// ---- 256 numbers ----

/// 16 scales and offsets of 4 bits, q: 64 bytes of four, d, offset.
Tensor q2_k(const Tensor& b) {
  const Tensor s = bytes(b, 0, 16);
  const Tensor scale = (half(b, 80) * s.bitwise_and(15).to_float()).unsqueeze(-1),
               offset = (half(b, 82) * s.rshift(4).to_float()).unsqueeze(-1);
  const Tensor q = fields(bytes(b, 16, 80).unflatten(-1, {2, 32}), 4, 2).flatten(-3).unflatten(-1, {16, 16});
  return (q.to_float() * scale - offset).flatten(-2);
}
/// Third bits: 32 bytes, q: 64 bytes of four, 16 scales of 6 bits: low halves in 8 bytes, the rest in 4; d.
Tensor q3_k(const Tensor& b) {
  const Tensor high = fields(bytes(b, 104, 108), 4, 2).flatten(-2);
  const Tensor scale = nibbles(bytes(b, 96, 104)).bitwise_or(high.lshift(4)).to_float() - 32;
  const Tensor third = fields(bytes(b, 0, 32), 8, 1).flatten(-2);
  const Tensor q = fields(bytes(b, 32, 96).unflatten(-1, {2, 32}), 4, 2).flatten(-3).bitwise_or(third.lshift(2));
  return ((q.to_float() - 4).unflatten(-1, {16, 16}) * (half(b, 108) * scale).unsqueeze(-1)).flatten(-2);
}

/// Scales and offsets of eight groups of 32, each (..., 8, 1).
struct GroupScales {
  Tensor scale, offset;
};
/// d, offset, 12 bytes: low six bits of scales 0-3 and the upper two of scales 4-7, the same of offsets, low halves of
/// scales and offsets 4-7.
GroupScales group_scales(const Tensor& b) {
  const Tensor s = bytes(b, 4, 8), m = bytes(b, 8, 12), low = bytes(b, 12, 16);
  const Tensor scale = s.bitwise_and(63).cat(low.bitwise_and(15).bitwise_or(s.rshift(6).lshift(4)), -1),
               offset = m.bitwise_and(63).cat(low.rshift(4).bitwise_or(m.rshift(6).lshift(4)), -1);
  return {(half(b, 0) * scale.to_float()).unsqueeze(-1), (half(b, 2) * offset.to_float()).unsqueeze(-1)};
}
/// 128 bytes of two: low halves of 32 bytes, then their high halves: (..., 8, 32).
Tensor groups_of_nibbles(const Tensor& q) {
  return nibbles(q.unflatten(-1, {4, 32})).unflatten(-1, {2, 32}).flatten(-3, -2);
}
Tensor q4_k(const Tensor& b) {
  const GroupScales g = group_scales(b);
  return (groups_of_nibbles(bytes(b, 16, 144)).to_float() * g.scale - g.offset).flatten(-2);
}
/// As q4_k, with 32 bytes of fifth bits before q: bit i of each for group i.
Tensor q5_k(const Tensor& b) {
  const GroupScales g = group_scales(b);
  const Tensor q = groups_of_nibbles(bytes(b, 48, 176)).bitwise_or(fields(bytes(b, 16, 48), 8, 1).lshift(4));
  return (q.to_float() * g.scale - g.offset).flatten(-2);
}
/// Low halves: 128 bytes of two, upper two bits: 64 bytes of four, 16 scales (int8), d.
Tensor q6_k(const Tensor& b) {
  const Tensor low = nibbles(bytes(b, 0, 128).unflatten(-1, {2, 64})),
               high = fields(bytes(b, 128, 192).unflatten(-1, {2, 32}), 4, 2).flatten(-2);
  const Tensor q = low.bitwise_or(high.lshift(4)).to_float() - 32, scale = half(b, 208) * signed_bytes(b, 192, 208);
  return (q.flatten(-2).unflatten(-1, {16, 16}) * scale.unsqueeze(-1)).flatten(-2);
}
/// d: float32, q, sums.
Tensor q8_k(const Tensor& b) { return signed_bytes(b, 4, 260) * single(b, 0); }

// ---- numbers of -1, 0 and 1 ----

/// Returns the digits of bytes of `count` of them to base 3: byte / 256 has them behind the point. (..., n) ->
/// (..., count * n), first digits first.
Tensor ternary_digits(const Tensor& q, std::initializer_list<int> powers) {
  Tensors digits;
  for (int p : powers) digits.push_back(q.cast(dtypes::uint16) * p);
  return Tensor::stack(digits, -2).flatten(-2).bitwise_and(255);
}
/// 48 bytes of five, 4 bytes of four, d.
Tensor tq1_0(const Tensor& b) {
  const Tensor q = Tensor::cat(
      {ternary_digits(bytes(b, 0, 32), {1, 3, 9, 27, 81}), ternary_digits(bytes(b, 32, 48), {1, 3, 9, 27, 81}),
       ternary_digits(bytes(b, 48, 52), {1, 3, 9, 27})},
      -1);
  return ((q * 3).rshift(8).to_float() - 1) * half(b, 52);
}
/// 64 bytes of four, d.
Tensor tq2_0(const Tensor& b) {
  return (fields(bytes(b, 0, 64).unflatten(-1, {2, 32}), 4, 2).flatten(-3).to_float() - 1) * half(b, 64);
}

// ---- floats of four bits ----

constexpr int kFloat4[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled

/// Exponent of a scale 2^(e - 128) (the values are doubled), 16 bytes of two.
Tensor mxfp4(const Tensor& b) {
  const Tensor e = bytes(b, 0, 1).cast(dtypes::uint32);
  // Denormal numbers for 0 and 1.
  const Tensor small = e.lshift(21) + (1 << 21), scale = (e < 2).where(small, (e - 1).lshift(23));
  return coded(nibbles(bytes(b, 1, 17)), kFloat4) * scale.bitcast(dtypes::float32);
}
/// Four scales: floats of 4 exponent and 3 mantissa bits without sign, then for each 8 bytes of two.
Tensor nvfp4(const Tensor& b) {
  const Tensor x = bytes(b, 0, 4).cast(dtypes::uint32), e = x.rshift(3).bitwise_and(15), m = x.bitwise_and(7);
  const Tensor normal = (e + (127 - 7 - 1)).lshift(23).bitwise_or(m.lshift(20)).bitcast(dtypes::float32);
  const Tensor any = (e == 0).where(m.to_float() * (1.0 / 1024), normal), none = (x == 0) | (x == 0x7f);
  const Tensor scale = none.where(0.0, any);
  return (coded(nibbles(bytes(b, 4, 36).unflatten(-1, {4, 8})), kFloat4) * scale.unsqueeze(-1)).flatten(-2);
}

// ---- points of grids ----

constexpr int kCodesIQ4[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// Returns the points with these numbers, (...) -> (..., coordinates of a point).
Tensor points(const GgmlGrid& grid, const Tensor& index) {
  const Tensor table =
      Tensor::from(grid.points, Shape{static_cast<int64_t>(grid.points.size())}, {.device = index.device()});
  const Tensor code = fields_of_each(table[index.to_int()], grid.coordinates, grid.bits, grid.bits);
  return coded(code, grid.values);
}
/// Returns -1 where a bit is set, else 1: (...) -> (..., 8).
Tensor signs(const Tensor& q) {
  return (bits(q) != 0).where(-1.0, Tensor::full(Shape{}, 1.0, {.dtype = dtypes::float32}));
}
/// Returns the signs that seven bits stand for: the eighth makes their number even.
Tensor even_signs(const Tensor& q) {
  const Tensor a = q.bitwise_xor(q.rshift(4)), c = a.bitwise_xor(a.rshift(2)), odd = c.bitwise_xor(c.rshift(1));
  return signs(q.bitwise_or(odd.bitwise_and(1).lshift(7)));
}
/// Returns d * (0.5 + scale) * factor, (...).
Tensor iq_scale(const Tensor& d, const Tensor& scale, double factor) { return (scale.to_float() + 0.5) * d * factor; }

/// d, eight groups: four numbers of points in a byte each, then 32 bits: four times seven of signs, four of a scale.
Tensor iq2_xxs(const Tensor& b) {
  const Tensor group = bytes(b, 2, 66).unflatten(-1, {8, 8}),
               rest = group(Ellipsis, Slice(4, 8)).bitcast(dtypes::uint32);  // (..., 8, 1)
  const Tensor scale = iq_scale(half(b, 0).unsqueeze(-1), rest.rshift(28), 0.25).unsqueeze(-1),
               sign = even_signs(fields_of_each(rest.squeeze(-1), 4, 7, 7));
  return (points(kGridIQ2_XXS, group(Ellipsis, Slice(0, 4))) * scale * sign).flatten(-3);
}
/// d, 32 words: nine bits of a point, seven of signs; 16 scales of 4 bits.
Tensor iq2_xs(const Tensor& b) {
  const Tensor q = bytes(b, 2, 66).bitcast(dtypes::uint16).unflatten(-1, {16, 2}),
               scale = iq_scale(half(b, 0), nibble_pairs(bytes(b, 66, 74)), 0.25).unsqueeze(-1).unsqueeze(-1);
  return (points(kGridIQ2_XS, q.bitwise_and(511)) * scale * even_signs(q.rshift(9))).flatten(-3);
}
/// d, low bytes of 32 points, 32 bytes of signs, upper two bits of the points: 8 bytes, 16 scales of 4 bits.
Tensor iq2_s(const Tensor& b) {
  const Tensor high = fields_of_each(bytes(b, 66, 74), 4, 2, 2).flatten(-2).cast(dtypes::uint16).lshift(8),
               index = bytes(b, 2, 34).cast(dtypes::uint16).bitwise_or(high).unflatten(-1, {16, 2}),
               scale = iq_scale(half(b, 0), nibble_pairs(bytes(b, 74, 82)), 0.25).unsqueeze(-1).unsqueeze(-1),
               sign = signs(bytes(b, 34, 66).unflatten(-1, {16, 2}));
  return (points(kGridIQ2_S, index) * scale * sign).flatten(-3);
}
/// d, 64 points, eight words of 32 bits: four times seven of signs, four of a scale.
Tensor iq3_xxs(const Tensor& b) {
  const Tensor rest = bytes(b, 66, 98).bitcast(dtypes::uint32),
               scale = iq_scale(half(b, 0), rest.rshift(28), 0.5).unsqueeze(-1).unsqueeze(-1),
               sign = even_signs(fields_of_each(rest, 4, 7, 7));
  const Tensor p = points(kGridIQ3_XXS, bytes(b, 2, 66)).flatten(-2).unflatten(-1, {8, 4, 8});
  return (p * scale * sign).flatten(-3);
}
/// d, low bytes of 64 points, their ninth bits: 8 bytes, 32 bytes of signs, eight scales of 4 bits.
Tensor iq3_s(const Tensor& b) {
  const Tensor high = bits(bytes(b, 66, 74)).flatten(-2).cast(dtypes::uint16).lshift(8),
               index = bytes(b, 2, 66).cast(dtypes::uint16).bitwise_or(high),
               scale = (nibble_pairs(bytes(b, 106, 110)).to_float() * 2 + 1) * half(b, 0),
               sign = signs(bytes(b, 74, 106).unflatten(-1, {8, 4}));
  const Tensor p = points(kGridIQ3_S, index).flatten(-2).unflatten(-1, {8, 4, 8});
  return (p * scale.unsqueeze(-1).unsqueeze(-1) * sign).flatten(-3);
}

constexpr double kDelta = 0.125;  // of IQ1
Tensor delta(const Tensor& negative) {
  return (negative != 0).where(-kDelta, Tensor::full(Shape{}, kDelta, {.dtype = dtypes::float32}));
}
/// d, low bytes of 32 points, eight words of 16 bits: four times three upper bits, three of a scale, the sign of what
/// is added to all coordinates.
Tensor iq1_s(const Tensor& b) {
  const Tensor h = bytes(b, 34, 50).bitcast(dtypes::uint16), high = fields_of_each(h, 4, 3, 3).flatten(-2).lshift(8),
               index = bytes(b, 2, 34).cast(dtypes::uint16).bitwise_or(high).unflatten(-1, {8, 4});
  const Tensor scale = (h.rshift(12).bitwise_and(7).to_float() * 2 + 1) * half(b, 0),
               added = delta(h.bitwise_and(0x8000)).unsqueeze(-1).unsqueeze(-1);
  return ((points(kGridIQ1, index) + added) * scale.unsqueeze(-1).unsqueeze(-1)).flatten(-3);
}
/// Low bytes of 32 points, 16 bytes: for two points each three upper bits and a sign; four words: four times three bits
/// of a scale, four bits of d.
Tensor iq1_m(const Tensor& b) {
  const Tensor s = bytes(b, 48, 56).bitcast(dtypes::uint16);
  const auto quarter = [&](int64_t i) { return s(Ellipsis, Slice(i, i + 1)).bitwise_and(0xf000).rshift(12 - 4 * i); };
  const Tensor d = quarter(0).bitwise_or(quarter(1)).bitwise_or(quarter(2)).bitwise_or(quarter(3));
  const Tensor scale =
      (fields_of_each(s, 4, 3, 3).flatten(-2).to_float() * 2 + 1) * d.bitcast(dtypes::float16).to_float();  // (..., 16)
  const Tensor h = nibble_pairs(bytes(b, 32, 48)), high = h.bitwise_and(7).cast(dtypes::uint16).lshift(8),
               index = bytes(b, 0, 32).cast(dtypes::uint16).bitwise_or(high).unflatten(-1, {16, 2}),
               added = delta(h.bitwise_and(8)).unflatten(-1, {16, 2}).unsqueeze(-1);
  return ((points(kGridIQ1, index) + added) * scale.unsqueeze(-1).unsqueeze(-1)).flatten(-3);
}
/// d, 16 bytes of two codes.
Tensor iq4_nl(const Tensor& b) { return coded(nibbles(bytes(b, 2, 18)), kCodesIQ4) * half(b, 0); }
/// d, eight scales of 6 bits: upper two in a word, low halves in 4 bytes; 128 bytes of two codes.
Tensor iq4_xs(const Tensor& b) {
  const Tensor word = bytes(b, 2, 4).bitcast(dtypes::uint16),
               high = fields_of_each(word, 8, 2, 2).flatten(-2).cast(dtypes::uint8).lshift(4);
  const Tensor scale = (nibble_pairs(bytes(b, 4, 8)).bitwise_or(high).to_float() - 32) * half(b, 0);
  return (coded(nibbles(bytes(b, 8, 136).unflatten(-1, {8, 16})), kCodesIQ4) * scale.unsqueeze(-1)).flatten(-2);
}

using Unpack = Tensor (*)(const Tensor& blocks);

/// Returns how blocks of a type are unpacked; nullptr: it is native.
Unpack unpack_of(GgmlType type) {
  using enum GgmlType;
  switch (type) {
    case kQ4_0: return q4_0;
    case kQ4_1: return q4_1;
    case kQ5_0: return q5_0;
    case kQ5_1: return q5_1;
    case kQ8_0: return q8_0;
    case kQ8_1: return q8_1;
    case kQ2_K: return q2_k;
    case kQ3_K: return q3_k;
    case kQ4_K: return q4_k;
    case kQ5_K: return q5_k;
    case kQ6_K: return q6_k;
    case kQ8_K: return q8_k;
    case kIQ2_XXS: return iq2_xxs;
    case kIQ2_XS: return iq2_xs;
    case kIQ3_XXS: return iq3_xxs;
    case kIQ1_S: return iq1_s;
    case kIQ4_NL: return iq4_nl;
    case kIQ3_S: return iq3_s;
    case kIQ2_S: return iq2_s;
    case kIQ4_XS: return iq4_xs;
    case kIQ1_M: return iq1_m;
    case kTQ1_0: return tq1_0;
    case kTQ2_0: return tq2_0;
    case kMXFP4: return mxfp4;
    case kNVFP4: return nvfp4;
    case kQ1_0: return q1_0;
    case kF32:
    case kF16:
    case kI8:
    case kI16:
    case kI32:
    case kI64:
    case kF64:
    case kBF16: return nullptr;
  }
  return nullptr;
}

}  // namespace

Tensor ggml_dequantize(const Tensor& blocks, GgmlType type) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  TG_CHECK(DTypeError, blocks.dtype() == dtypes::uint8, "[ggml_dequantize] got ", blocks.dtype(), ", expected uint8");
  TG_CHECK(ShapeError, blocks.ndim() > 0 && blocks.shape(-1) == info.bytes, "[ggml_dequantize] got shape ",
           blocks.shape(), ", expected a last axis of the ", info.bytes, " bytes of a ", info.name, " block");
  const Unpack unpack = unpack_of(type);
  return unpack ? unpack(blocks) : blocks.bitcast(*info.native);
}

Tensor ggml_data_to_tensor(const Tensor& bytes, int64_t n, GgmlType type) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  TG_CHECK(ShapeError, bytes.ndim() == 1, "[ggml_data_to_tensor] got shape ", bytes.shape(), ", expected one axis");
  const bool fits = n >= 0 && n % info.elements == 0 && n / info.elements <= bytes.numel() / info.bytes;
  TG_CHECK(ShapeError, fits, "[ggml_data_to_tensor] got ", n, " elements of ", info.name, " in ", bytes.numel(),
           " bytes, expected whole blocks of ", info.elements, " elements and ", info.bytes, " bytes");
  const Tensor part = bytes[Slice(0, info.size(n))];
  if (info.native) return part.bitcast(*info.native);
  return ggml_dequantize(part.reshape({n / info.elements, info.bytes}), type).flatten();
}

}  // namespace tg::io
