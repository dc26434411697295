/// \file Scalar types: names, the promotion lattice, limits and host conversions.
#include "tinygrad/base/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <ostream>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg {

// ---- names and sizes ----

namespace {

constexpr int kCount = static_cast<int>(DTypeId::kCount);
constexpr int index(DType d) { return static_cast<int>(d.id()); }

struct Facts {
  std::string_view name;
  int bits;
};
constexpr std::array<Facts, kCount> kFacts{{
    {"void", 0},        {"bool", 1},        {"weakint", 800}, {"int8", 8},        {"uint8", 8},
    {"int16", 16},      {"uint16", 16},     {"int32", 32},    {"uint32", 32},     {"int64", 64},
    {"uint64", 64},     {"weakfloat", 800}, {"fp8e4m3", 8},   {"fp8e4m3fnuz", 8}, {"fp8e5m2", 8},
    {"fp8e5m2fnuz", 8}, {"float16", 16},    {"bfloat16", 16}, {"float32", 32},    {"float64", 64},
}};

}  // namespace

std::string_view DType::name() const { return kFacts[index(*this)].name; }
int DType::bitsize() const { return kFacts[index(*this)].bits; }
int DType::itemsize() const {
  TG_CHECK(DTypeError, !is_weak() && !is_void(), "[itemsize] got ", name(), ", expected a type that can be stored");
  return (bitsize() + 7) / 8;
}

std::ostream& operator<<(std::ostream& os, DType d) { return os << d.name(); }

namespace dtypes {

DType from_name(std::string_view name) {
  static constexpr std::pair<std::string_view, DType> kAliases[] = {
      {"half", float16},  {"float", float32}, {"double", float64}, {"char", int8},  {"uchar", uint8}, {"short", int16},
      {"ushort", uint16}, {"int", int32},     {"uint", uint32},    {"long", int64}, {"ulong", uint64}};
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (int i = 0; i < kCount; i++)
    if (kFacts[i].name == lower) return DType(static_cast<DTypeId>(i));
  for (const auto& [alias, d] : kAliases)
    if (alias == lower) return d;
  std::string known;
  for (int i = 1; i < kCount; i++)
    if (!DType(static_cast<DTypeId>(i)).is_weak()) known += (known.empty() ? "" : ", ") + std::string(kFacts[i].name);
  for (const auto& a : kAliases) known += ", " + std::string(a.first);
  throw DTypeError(str("[dtype] got '", name, "', expected one of ", known));
}

DTypeSet set_from_names(std::string_view names) {
  DTypeSet set;
  while (!names.empty()) {
    const size_t end = std::min(names.find(','), names.size());
    if (end) set.add(from_name(names.substr(0, end)));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return set;
}

// Looked up for every literal, so a thread remembers the last spelling and its type.
static DType from_env(const env::Str& var, bool (DType::*fits)() const, std::string_view kind,
                      std::pair<std::string, DType>& seen) {
  const std::string& spelling = var.get();
  if (spelling == seen.first) return seen.second;
  const DType d = from_name(spelling);
  TG_CHECK(ValueError, (d.*fits)() && !d.is_weak(), "[", var.name(), "] got ", d, ", expected ", kind, " type");
  seen = {spelling, d};
  return d;
}
DType default_float() {
  static thread_local std::pair<std::string, DType> seen;
  return from_env(env::DEFAULT_FLOAT, &DType::is_float, "a float", seen);
}
DType default_int() {
  static thread_local std::pair<std::string, DType> seen;
  return from_env(env::DEFAULT_INT, &DType::is_int, "an integer", seen);
}
static DType sum_float() {
  static thread_local std::pair<std::string, DType> seen;
  return from_env(env::SUM_DTYPE, &DType::is_float, "a float", seen);
}

}  // namespace dtypes

// ---- promotion ----

namespace {

using Set = uint32_t;  // a bit for each DTypeId
constexpr Set bit(DType d) { return Set{1} << index(d); }

// Direct parents in the lattice; every type reaches float64.
constexpr Set parents(DType d) {
  namespace t = dtypes;
  switch (d.id()) {
    case DTypeId::kVoid: return 0;
    case DTypeId::kBool: return bit(t::weakint);
    case DTypeId::kWeakInt: return bit(t::int8) | bit(t::uint8);
    case DTypeId::kInt8: return bit(t::int16);
    case DTypeId::kUInt8: return bit(t::int16) | bit(t::uint16);
    case DTypeId::kInt16: return bit(t::int32);
    case DTypeId::kUInt16: return bit(t::int32) | bit(t::uint32);
    case DTypeId::kInt32: return bit(t::int64);
    case DTypeId::kUInt32: return bit(t::int64) | bit(t::uint64);
    case DTypeId::kInt64:
    case DTypeId::kUInt64: return bit(t::weakfloat);
    case DTypeId::kWeakFloat: return bit(t::fp8e4m3) | bit(t::fp8e4m3fnuz) | bit(t::fp8e5m2) | bit(t::fp8e5m2fnuz);
    case DTypeId::kFp8E4M3:
    case DTypeId::kFp8E4M3FNUZ:
    case DTypeId::kFp8E5M2:
    case DTypeId::kFp8E5M2FNUZ: return bit(t::float16) | bit(t::bfloat16);
    case DTypeId::kFloat16:
    case DTypeId::kBFloat16: return bit(t::float32);
    case DTypeId::kFloat32: return bit(t::float64);
    case DTypeId::kFloat64:
    case DTypeId::kCount: return 0;
  }
  return 0;
}

// Parents come later in the enumeration, so one pass from the top closes the relation, and the lowest common bit is the
// least upper type.
constexpr std::array<Set, kCount> kAncestors = [] {
  std::array<Set, kCount> a{};
  for (int i = kCount - 1; i >= 0; i--) {
    a[i] = Set{1} << i;
    const Set up = parents(DType(static_cast<DTypeId>(i)));
    for (int p = i + 1; p < kCount; p++)
      if (up >> p & 1) a[i] |= a[p];
  }
  return a;
}();

}  // namespace

DType least_upper_dtype(std::span<const DType> types) {
  Set common = ~Set{0};
  for (DType d : types) common &= kAncestors[index(d)];
  TG_CHECK(DTypeError, common != 0, "[least_upper_dtype] got ", types.front(), " and ", types.back(),
           ", expected types with a common upper type");
  return DType(static_cast<DTypeId>(std::countr_zero(common)));
}
DType least_upper_dtype(DType a, DType b) {
  const DType both[] = {a, b};
  return least_upper_dtype(both);
}

DType least_upper_float(DType d) {
  if (d == dtypes::weakint) return dtypes::weakfloat;
  return d.is_float() ? d : least_upper_dtype(d, dtypes::default_float());
}

DType strong_dtype(DType d) {
  return !d.is_weak() ? d : d == dtypes::weakint ? dtypes::default_int() : dtypes::default_float();
}

DType sum_acc_dtype(DType d) {
  if (d.is_unsigned()) return least_upper_dtype(d, dtypes::uint32);
  if (d.is_int() || d.is_bool()) return least_upper_dtype(d, dtypes::int32);
  return least_upper_dtype(d, dtypes::sum_float());
}

bool can_lossless_cast(DType from, DType to) {
  if (from == to || from.is_bool()) return !to.is_void();
  if (to == dtypes::weakint) return from.is_int();
  if (from.is_weak() || to.is_weak() || from.is_void() || to.is_void()) return false;
  if (to.is_fp8() || to == dtypes::bfloat16) return false;  // no caller relies on these
  if (from.is_int() && to.is_int()) return int_min(from) >= int_min(to) && int_max(from) <= int_max(to);
  if (from.is_int() && to.is_float()) return from.bitsize() <= finfo(to).mantissa + 1;
  if (from.is_float() && to.is_float()) {
    const FloatInfo a = finfo(from), b = finfo(to);
    return a.exponent <= b.exponent && a.mantissa <= b.mantissa;
  }
  return false;
}

// ---- limits ----

FloatInfo finfo(DType d) {
  switch (d.id()) {
    case DTypeId::kFp8E4M3:
    case DTypeId::kFp8E4M3FNUZ: return {4, 3};
    case DTypeId::kFp8E5M2:
    case DTypeId::kFp8E5M2FNUZ: return {5, 2};
    case DTypeId::kFloat16: return {5, 10};
    case DTypeId::kBFloat16: return {8, 7};
    case DTypeId::kFloat32: return {8, 23};
    case DTypeId::kFloat64: return {11, 52};
    default: throw DTypeError(str("[finfo] got ", d, ", expected a float type of known width"));
  }
}

int128 int_min(DType d) {
  TG_CHECK(DTypeError, d.is_int() || d.is_bool(), "[min] got ", d, ", expected an integer or bool type");
  if (d == dtypes::weakint) return -(int128{1} << 126);
  return d.is_unsigned() || d.is_bool() ? 0 : -(int128{1} << (d.bitsize() - 1));
}

int128 int_max(DType d) {
  TG_CHECK(DTypeError, d.is_int() || d.is_bool(), "[max] got ", d, ", expected an integer or bool type");
  if (d == dtypes::weakint) return int128{1} << 126;
  return (int128{1} << (d.is_unsigned() || d.is_bool() ? d.bitsize() : d.bitsize() - 1)) - 1;
}

double lowest_float(DType d) { return -highest_float(d); }
double highest_float(DType d) {
  TG_CHECK(DTypeError, d.is_float(), "[float limits] got ", d, ", expected a float type");
  return std::numeric_limits<double>::infinity();
}

// ---- host conversions ----

namespace {

// A float format with `E` exponent bits, `M` mantissa bits and exponent bias `B`. Encoding rounds a double to nearest
// even, gradual underflow included; the caller has dealt with NaN. The result is the magnitude's code and may be past
// the largest finite one.
template <int E, int M, int B> constexpr uint32_t encode_magnitude(double v) {
  const uint64_t bits = std::bit_cast<uint64_t>(v) & ~(uint64_t{1} << 63);
  const int exponent = static_cast<int>(bits >> 52) - 1023 + B;  // biased exponent in the target format
  if (bits >> 52 == 0 || exponent < -M) return 0;                // below half of the least denormal
  if (exponent >= (1 << E)) return 1u << (E + M);
  const uint64_t significand = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int drop = 52 - M + (exponent < 1 ? 1 - exponent : 0);
  uint64_t kept = significand >> drop;
  const uint64_t rest = significand & ((uint64_t{1} << drop) - 1), half = uint64_t{1} << (drop - 1);
  kept += rest > half || (rest == half && (kept & 1));
  // The hidden bit adds one to the exponent field, and so does a carry out of the mantissa.
  return static_cast<uint32_t>(exponent < 1 ? kept : kept + (static_cast<uint64_t>(exponent - 1) << M));
}

template <int M, int B> constexpr float decode_magnitude(uint32_t code) {
  const uint32_t exponent = code >> M, mantissa = code & ((1u << M) - 1);
  const uint64_t scale = static_cast<uint64_t>(static_cast<int>(exponent ? exponent : 1) - B - M + 1023) << 52;
  return static_cast<float>(static_cast<double>(exponent ? mantissa | 1u << M : mantissa) *
                            std::bit_cast<double>(scale));
}

uint16_t double_to_half(double v) {
  const uint32_t sign = static_cast<uint32_t>(std::bit_cast<uint64_t>(v) >> 48) & 0x8000;
  if (std::isnan(v)) return static_cast<uint16_t>(sign | 0x7e00);
  return static_cast<uint16_t>(sign | std::min(encode_magnitude<5, 10, 15>(v), 0x7c00u));
}

struct Fp8Rules {
  uint8_t max, nan, inf;
  bool fnuz;
};
Fp8Rules fp8_rules(DType d) {
  switch (d.id()) {
    case DTypeId::kFp8E4M3: return {0x7e, 0x7f, 0x7f, false};
    case DTypeId::kFp8E5M2: return {0x7b, 0x7f, 0x7c, false};
    case DTypeId::kFp8E4M3FNUZ:
    case DTypeId::kFp8E5M2FNUZ: return {0x7f, 0x80, 0x80, true};
    default: throw DTypeError(str("[fp8] got ", d, ", expected fp8e4m3, fp8e4m3fnuz, fp8e5m2 or fp8e5m2fnuz"));
  }
}

uint8_t double_to_fp8(double v, DType d) {
  const Fp8Rules rules = fp8_rules(d);
  const uint8_t sign = std::signbit(v) ? 0x80 : 0;
  if (!std::isfinite(v)) return static_cast<uint8_t>((rules.fnuz ? 0 : sign) | (std::isnan(v) ? rules.nan : rules.inf));
  uint32_t code = 0;
  switch (d.id()) {
    case DTypeId::kFp8E4M3: code = encode_magnitude<4, 3, 7>(v); break;
    case DTypeId::kFp8E4M3FNUZ: code = encode_magnitude<4, 3, 8>(v); break;
    case DTypeId::kFp8E5M2: code = encode_magnitude<5, 2, 15>(v); break;
    default: code = encode_magnitude<5, 2, 16>(v); break;
  }
  if (code == 0 && rules.fnuz) return 0;
  return static_cast<uint8_t>(sign | std::min<uint32_t>(code, rules.max));
}

float decode_fp8(uint8_t b, DType d) {
  const Fp8Rules rules = fp8_rules(d);
  const uint8_t code = b & 0x7f;
  const float sign = b & 0x80 ? -1.0f : 1.0f;
  if (rules.fnuz ? b == 0x80 : code > rules.inf || code == rules.nan) return std::numeric_limits<float>::quiet_NaN();
  if (!rules.fnuz && code == rules.inf) return sign * std::numeric_limits<float>::infinity();
  switch (d.id()) {
    case DTypeId::kFp8E4M3: return sign * decode_magnitude<3, 7>(code);
    case DTypeId::kFp8E4M3FNUZ: return sign * decode_magnitude<3, 8>(code);
    case DTypeId::kFp8E5M2: return sign * decode_magnitude<2, 15>(code);
    default: return sign * decode_magnitude<2, 16>(code);
  }
}

}  // namespace

uint16_t float_to_half(float f) { return double_to_half(f); }

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, code = h & 0x7fff;
  if (code >= 0x7c00)
    return std::bit_cast<float>(sign | 0x7f800000u | (code & 0x3ffu) << 13 | (code > 0x7c00 ? 0x400000u : 0u));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(decode_magnitude<10, 15>(code)));
}

uint16_t float_to_bfloat16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if (std::isnan(f)) return static_cast<uint16_t>(bits >> 16 | 0x40);  // stays NaN when the payload's low bits go
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float bfloat16_to_float(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

uint8_t float_to_fp8(float f, DType fp8) { return double_to_fp8(f, fp8); }

float fp8_to_float(uint8_t b, DType fp8) {
  static const auto tables = [] {
    std::array<std::array<float, 256>, 4> t{};
    for (int kind = 0; kind < 4; kind++) {
      for (int i = 0; i < 256; i++)
        t[kind][i] = decode_fp8(static_cast<uint8_t>(i), DType(static_cast<DTypeId>(index(dtypes::fp8e4m3) + kind)));
    }
    return t;
  }();
  TG_CHECK(DTypeError, fp8.is_fp8(), "[fp8] got ", fp8, ", expected fp8e4m3, fp8e4m3fnuz, fp8e5m2 or fp8e5m2fnuz");
  return tables[index(fp8) - index(dtypes::fp8e4m3)][b];
}

double truncate_float(double v, DType d) {
  switch (d.id()) {
    case DTypeId::kWeakFloat:
    case DTypeId::kFloat64: return v;
    case DTypeId::kFloat32: return static_cast<double>(static_cast<float>(v));
    case DTypeId::kFloat16: return half_to_float(double_to_half(v));
    case DTypeId::kBFloat16: return bfloat16_to_float(float_to_bfloat16(static_cast<float>(v)));
    case DTypeId::kFp8E4M3:
    case DTypeId::kFp8E4M3FNUZ:
    case DTypeId::kFp8E5M2:
    case DTypeId::kFp8E5M2FNUZ: return fp8_to_float(double_to_fp8(v, d), d);
    default: throw DTypeError(str("[truncate] got ", d, ", expected a float type"));
  }
}

int128 truncate_int(int128 v, DType d) {
  if (d.is_bool()) return v != 0;
  if (d == dtypes::weakint) return v;
  TG_CHECK(DTypeError, d.is_int(), "[truncate] got ", d, ", expected an integer or bool type");
  const int bits = d.bitsize();
  const unsigned __int128 mask = (static_cast<unsigned __int128>(1) << bits) - 1,
                          low = static_cast<unsigned __int128>(v) & mask;
  const bool negative = !d.is_unsigned() && (low >> (bits - 1) & 1);
  return static_cast<int128>(negative ? low | ~mask : low);
}

}  // namespace tg
