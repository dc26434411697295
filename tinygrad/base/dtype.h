/// \file Scalar types, the promotion lattice and host conversions. A DType is one byte; vectors are shapes, pointers
/// are address spaces.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace tg {

// clang-format off
/// Identifies a scalar type. The order is the promotion priority used to pick the least upper type.
enum class DTypeId : uint8_t {
  kVoid, kBool, kWeakInt, kInt8, kUInt8, kInt16, kUInt16, kInt32, kUInt32, kInt64, kUInt64, kWeakFloat,
  kFp8E4M3, kFp8E4M3FNUZ, kFp8E5M2, kFp8E5M2FNUZ, kFloat16, kBFloat16, kFloat32, kFloat64, kCount
};
// clang-format on

/// A scalar type. Weak types (`weakint`, `weakfloat`) are the types of literals and of index arithmetic: they take the
/// type of the other operand and never reach storage or a renderer.
class DType {
 public:
  constexpr DType() = default;
  constexpr DType(DTypeId id) : id_(id) {}
  constexpr DTypeId id() const { return id_; }
  constexpr bool operator==(const DType&) const = default;
  constexpr auto operator<=>(const DType& o) const { return id_ <=> o.id_; }

  /// Returns the bytes of one stored element (bool: 1). Weak types and void have none and throw DTypeError.
  int itemsize() const;
  /// Returns the bits of the value (bool: 1; weak: 800 as in the reference tables; void: 0).
  int bitsize() const;
  std::string_view name() const;  ///< "float32", "int32", "bool", "bfloat16", ...

  /// Kinds of types; weak ones are those of literals, which take the type of what they meet.
  constexpr bool is_void() const { return id_ == DTypeId::kVoid; }
  constexpr bool is_bool() const { return id_ == DTypeId::kBool; }
  constexpr bool is_weak() const { return id_ == DTypeId::kWeakInt || id_ == DTypeId::kWeakFloat; }
  constexpr bool is_unsigned() const {
    return id_ == DTypeId::kUInt8 || id_ == DTypeId::kUInt16 || id_ == DTypeId::kUInt32 || id_ == DTypeId::kUInt64;
  }
  /// Any integer, weakint included, bool excluded.
  constexpr bool is_int() const {
    return id_ == DTypeId::kWeakInt || (id_ >= DTypeId::kInt8 && id_ <= DTypeId::kUInt64);
  }
  /// Any float, weakfloat included.
  constexpr bool is_float() const { return id_ >= DTypeId::kWeakFloat && id_ <= DTypeId::kFloat64; }
  constexpr bool is_fp8() const { return id_ >= DTypeId::kFp8E4M3 && id_ <= DTypeId::kFp8E5M2FNUZ; }

 private:
  DTypeId id_ = DTypeId::kVoid;
};

/// Prints the name: "float32".
std::ostream& operator<<(std::ostream&, DType);

/// A set of types, one bit each.
struct DTypeSet {
  uint32_t bits = 0;
  constexpr bool has(DType d) const { return bits >> static_cast<int>(d.id()) & 1; }
  constexpr void add(DType d) { bits |= uint32_t{1} << static_cast<int>(d.id()); }
  constexpr bool operator==(const DTypeSet&) const = default;
};

namespace dtypes {
inline constexpr DType void_{DTypeId::kVoid}, weakint{DTypeId::kWeakInt}, bool_{DTypeId::kBool}, int8{DTypeId::kInt8},
    uint8{DTypeId::kUInt8}, int16{DTypeId::kInt16}, uint16{DTypeId::kUInt16}, int32{DTypeId::kInt32},
    uint32{DTypeId::kUInt32}, int64{DTypeId::kInt64}, uint64{DTypeId::kUInt64}, weakfloat{DTypeId::kWeakFloat},
    fp8e4m3{DTypeId::kFp8E4M3}, fp8e4m3fnuz{DTypeId::kFp8E4M3FNUZ}, fp8e5m2{DTypeId::kFp8E5M2},
    fp8e5m2fnuz{DTypeId::kFp8E5M2FNUZ}, float16{DTypeId::kFloat16}, bfloat16{DTypeId::kBFloat16},
    float32{DTypeId::kFloat32}, float64{DTypeId::kFloat64};
inline constexpr DType half = float16, float_ = float32, double_ = float64, char_ = int8, uchar = uint8, short_ = int16,
                       ushort = uint16, int_ = int32, uint = uint32, long_ = int64, ulong = uint64;

/// Types of literals, from the environment. ValueError for one of another kind, DTypeError for no type.
DType default_float();  ///< DEFAULT_FLOAT, float32 unless the environment says otherwise.
DType default_int();    ///< DEFAULT_INT, int32 unless the environment says otherwise.
/// Parses "float32", "half", "int", ...; throws DTypeError naming the known types.
DType from_name(std::string_view name);
/// Parses comma-separated names; throws DTypeError for one of no type.
DTypeSet set_from_names(std::string_view names);
}  // namespace dtypes

/// Returns the least type that both convert to along the promotion lattice (float16+bfloat16 = float32, int64+uint64 =
/// weakfloat). DTypeError for void.
DType least_upper_dtype(DType a, DType b);
/// Returns the least type that all of at least one convert to. Not that of the first two and the third, and so on: two
/// kinds of fp8 meet in float16 or bfloat16, and only the third says in which. DTypeError for void.
DType least_upper_dtype(std::span<const DType> types);
/// Returns `d` itself when it is a float, else the lattice join with the default float. The next three throw ValueError
/// and DTypeError where DEFAULT_FLOAT, DEFAULT_INT or SUM_DTYPE names no type of the kind.
DType least_upper_float(DType d);
/// Returns the storage type of a weak type (weakint -> default int, weakfloat -> default float); others unchanged.
/// ValueError and DTypeError as least_upper_float.
DType strong_dtype(DType d);
/// Returns the type in which `sum` accumulates: unsigned at least uint32, int and bool at least int32, floats at least
/// SUM_DTYPE (float32). ValueError and DTypeError as least_upper_float.
DType sum_acc_dtype(DType d);
/// Returns whether every value of `from` is exactly representable in `to`. DTypeError for void.
bool can_lossless_cast(DType from, DType to);

/// Exponent and mantissa bits of a float type; finfo throws DTypeError for others.
struct FloatInfo {
  int exponent, mantissa;
};
/// Returns them; throws DTypeError for a type that is no float or weak.
FloatInfo finfo(DType d);

using int128 = __int128;
/// Return the smallest and largest integer of an integer or bool type; weakint gives +-2^126 ("unbounded"), others
/// throw DTypeError.
int128 int_min(DType d);
int128 int_max(DType d);
/// Return -inf and +inf for floats; throw DTypeError for integers.
double lowest_float(DType d);
double highest_float(DType d);

// ---- host conversions; all round to nearest even, fp8 saturates to the largest finite value ----
/// Converts to the bits of the type and back. To the nearest, ties to even; fp8 saturates to its largest finite value.
/// DTypeError where `fp8` is another type.
uint16_t float_to_half(float f);
float half_to_float(uint16_t h);
uint16_t float_to_bfloat16(float f);
float bfloat16_to_float(uint16_t h);
uint8_t float_to_fp8(float f, DType fp8);
float fp8_to_float(uint8_t b, DType fp8);
/// Rounds a value to what `d` can hold: floats to their precision, integers wrapped to their width, bool to 0/1. Throws
/// DTypeError for a type of the other kind.
double truncate_float(double v, DType d);
int128 truncate_int(int128 v, DType d);

// clang-format off
/// Maps C++ scalar types to DTypes (float -> float32, int -> int32, bool -> bool_, ...).
template <class T> struct dtype_of;
template <> struct dtype_of<bool> { static constexpr DType value = dtypes::bool_; };
template <> struct dtype_of<int8_t> { static constexpr DType value = dtypes::int8; };
template <> struct dtype_of<uint8_t> { static constexpr DType value = dtypes::uint8; };
template <> struct dtype_of<int16_t> { static constexpr DType value = dtypes::int16; };
template <> struct dtype_of<uint16_t> { static constexpr DType value = dtypes::uint16; };
template <> struct dtype_of<int32_t> { static constexpr DType value = dtypes::int32; };
template <> struct dtype_of<uint32_t> { static constexpr DType value = dtypes::uint32; };
template <> struct dtype_of<int64_t> { static constexpr DType value = dtypes::int64; };
template <> struct dtype_of<uint64_t> { static constexpr DType value = dtypes::uint64; };
template <> struct dtype_of<float> { static constexpr DType value = dtypes::float32; };
template <> struct dtype_of<double> { static constexpr DType value = dtypes::float64; };
// clang-format on
template <class T> inline constexpr DType dtype_of_v = dtype_of<T>::value;

}  // namespace tg
