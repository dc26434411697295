/// \file Packing floats to GGML's blocks. The order of operations is that of the reference: it decides on ties.
#include "tinygrad/io/ggml_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

using Values = std::span<const float>;

void put_half(uint8_t* to, float v) {
  const uint16_t h = float_to_half(v);
  std::memcpy(to, &h, sizeof h);
}
float inverse(float d) { return d == 0 ? 0 : 1 / d; }
/// Returns the integer part, from 0 to `most`.
uint8_t truncated(float v, int most) {
  return static_cast<uint8_t>(v >= static_cast<float>(most) ? most : v > 0 ? static_cast<int>(v) : 0);
}
/// Rounds halves away from zero.
float rounded(float v) {
  const float a = std::abs(v), floor = std::floor(a);
  return std::copysign(floor + std::floor(2 * (a - floor)), v);
}
float largest_size(Values x) {
  float most = 0;
  for (float v : x) most = std::max(most, std::abs(v));
  return most;
}
/// Returns the first value of the largest size.
float extreme(Values x) {
  return *std::max_element(x.begin(), x.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
}

/// Packs 32 codes of four bits: those of the second half are the high halves of bytes.
void put_nibbles(uint8_t* to, const uint8_t* code) {
  for (size_t i = 0; i < 16; i++) to[i] = static_cast<uint8_t>((code[i] & 15) | code[16 + i] << 4);
}
/// Packs the fifth bits of 32 codes.
void put_fifth_bits(uint8_t* to, const uint8_t* code) {
  uint32_t high = 0;
  for (size_t i = 0; i < 32; i++) high |= static_cast<uint32_t>(code[i] >> 4 & 1) << i;
  std::memcpy(to, &high, sizeof high);
}

/// Codes of 32 values around zero; returns the scale. The value of the largest size gets code 0.
float centred_codes(Values x, int half, uint8_t* code) {
  const float d = extreme(x) / static_cast<float>(-half), id = inverse(d);
  for (size_t i = 0; i < x.size(); i++)
    code[i] = truncated(x[i] * id + (static_cast<float>(half) + 0.5f), 2 * half - 1);
  return d;
}
/// Codes of 32 values from the least to the greatest; returns the distance of codes.
float offset_codes(Values x, int most, uint8_t* code, float* least) {
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  const float d = (*high - *low) / static_cast<float>(most), id = inverse(d);
  for (size_t i = 0; i < x.size(); i++) code[i] = truncated((x[i] - *low) * id + 0.5f, most);
  *least = *low;
  return d;
}

void q4_0(Values x, uint8_t* to) {
  uint8_t code[32];
  put_half(to, centred_codes(x, 8, code));
  put_nibbles(to + 2, code);
}
void q4_1(Values x, uint8_t* to) {
  uint8_t code[32];
  float least = 0;
  put_half(to, offset_codes(x, 15, code, &least));
  put_half(to + 2, least);
  put_nibbles(to + 4, code);
}
void q5_0(Values x, uint8_t* to) {
  uint8_t code[32];
  put_half(to, centred_codes(x, 16, code));
  put_fifth_bits(to + 2, code);
  put_nibbles(to + 6, code);
}
void q5_1(Values x, uint8_t* to) {
  uint8_t code[32];
  float least = 0;
  put_half(to, offset_codes(x, 31, code, &least));
  put_half(to + 2, least);
  put_fifth_bits(to + 4, code);
  put_nibbles(to + 8, code);
}
void q8_0(Values x, uint8_t* to) {
  const float d = largest_size(x) / 127, id = inverse(d);
  put_half(to, d);
  for (size_t i = 0; i < x.size(); i++) to[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(rounded(x[i] * id)));
}

/// Returns 0, 1 or 2 for -d, 0 or d.
int trit(float v, float id) { return static_cast<int>(rounded(v * id)) + 1; }
void tq1_0(Values x, uint8_t* to) {
  const float d = largest_size(x), id = inverse(d);
  uint8_t* byte = to;
  // Bytes of five, five and four digits, the first the most significant.
  const struct {
    size_t bytes;
    int digits;
  } parts[] = {{32, 5}, {16, 5}, {4, 4}};
  const float* from = x.data();
  for (const auto& part : parts) {
    for (size_t i = 0; i < part.bytes; i++) {
      int q = 0;
      for (int k = 0; k < 5; k++)
        q = q * 3 + (k < part.digits ? trit(from[static_cast<size_t>(k) * part.bytes + i], id) : 0);
      *byte++ = static_cast<uint8_t>((q * 256 + 242) / 243);
    }
    from += part.bytes * static_cast<size_t>(part.digits);
  }
  put_half(byte, d);
}
void tq2_0(Values x, uint8_t* to) {
  const float d = largest_size(x), id = inverse(d);
  std::fill_n(to, 64, uint8_t{0});
  for (size_t i = 0; i < x.size(); i++)
    to[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(trit(x[i], id) << i % 128 / 32 * 2);
  put_half(to + 64, d);
}

void mxfp4(Values x, uint8_t* to) {
  constexpr float kValues[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // doubled
  const float most = largest_size(x);
  const float e = most > 0 ? std::floor(std::log2(most)) - 2 + 127 : 0;
  to[0] = static_cast<uint8_t>(std::clamp(e, 0.0f, 254.0f));
  const uint32_t bits = to[0] < 2 ? 0x00200000u << to[0] : static_cast<uint32_t>(to[0] - 1) << 23;
  const auto d = std::bit_cast<float>(bits);
  uint8_t code[32];
  for (size_t i = 0; i < x.size(); i++) {
    size_t best = 0;
    for (size_t k = 1; k < 16; k++)
      if (std::abs(d * kValues[k] - x[i]) < std::abs(d * kValues[best] - x[i])) best = k;
    code[i] = static_cast<uint8_t>(best);
  }
  put_nibbles(to + 1, code);
}

void f32(Values x, uint8_t* to) { std::memcpy(to, x.data(), sizeof(float)); }
void f16(Values x, uint8_t* to) { put_half(to, x[0]); }
void bf16(Values x, uint8_t* to) {
  auto n = std::bit_cast<uint32_t>(x[0]);
  if ((n & 0x7fffffff) > 0x7f800000) n = (n & 0xffff0000) | 0x00400000;  // NaN stays one, and quiet
  const auto h = static_cast<uint16_t>((uint64_t{n} + 0x7fff + (n >> 16 & 1)) >> 16);
  std::memcpy(to, &h, sizeof h);
}

using Pack = void (*)(Values, uint8_t*);
/// Returns how blocks are packed; nullptr: they are not.
Pack pack_of(GgmlType type) {
  const struct {
    GgmlType type;
    Pack pack;
  } packs[] = {{GgmlType::kF32, f32},     {GgmlType::kF16, f16},     {GgmlType::kBF16, bf16},  {GgmlType::kQ4_0, q4_0},
               {GgmlType::kQ4_1, q4_1},   {GgmlType::kQ5_0, q5_0},   {GgmlType::kQ5_1, q5_1},  {GgmlType::kQ8_0, q8_0},
               {GgmlType::kTQ1_0, tq1_0}, {GgmlType::kTQ2_0, tq2_0}, {GgmlType::kMXFP4, mxfp4}};
  for (const auto& p : packs)
    if (p.type == type) return p.pack;
  return nullptr;
}

}  // namespace

bool can_quantize(GgmlType type) { return pack_of(type) != nullptr; }

std::vector<uint8_t> ggml_quantize(std::span<const float> values, GgmlType type) {
  const GgmlTypeInfo& info = ggml_type_info(type);
  const Pack pack = pack_of(type);
  TG_CHECK(ValueError, pack, "[ggml_quantize] got ", info.name, ", a type that is only read");
  const auto elements = static_cast<size_t>(info.elements), bytes = static_cast<size_t>(info.bytes);
  TG_CHECK(ShapeError, values.size() % elements == 0, "[ggml_quantize] got ", values.size(), " values in blocks of ",
           elements);
  const bool finite =
      info.native || std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  TG_CHECK(ValueError, finite, "[ggml_quantize] got a value that is not finite, which ", info.name, " cannot hold");
  std::vector<uint8_t> out(values.size() / elements * bytes);
  for (size_t i = 0; i < values.size() / elements; i++)
    pack(values.subspan(i * elements, elements), out.data() + i * bytes);
  return out;
}

}  // namespace tg::io
