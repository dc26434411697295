/// \file Integer arithmetic the whole library shares: floor division, products, overflow checks, 128-bit printing.
#pragma once
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>

#include "tinygrad/base/dtype.h"

namespace tg {

/// Integers, int128 included (std::integral leaves it out in strict mode).
template <class T>
concept Integer = std::integral<T> || std::same_as<T, int128>;

/// Quotient rounded towards minus infinity, as Python's `//`. The divisor is not 0.
template <Integer T> constexpr T floordiv(T a, T b) {
  return static_cast<T>(a / b - (a % b != 0 && (a % b < 0) != (b < 0)));
}
/// Remainder with the sign of the divisor, as Python's `%`.
template <Integer T> constexpr T floormod(T a, T b) {
  return static_cast<T>(a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0));
}
/// Quotient rounded towards plus infinity.
template <Integer T> constexpr T ceildiv(T a, T b) {
  return static_cast<T>(a / b + (a % b != 0 && (a % b < 0) == (b < 0)));
}
/// Least multiple of `m` (> 0) that is at least `a`.
template <Integer T> constexpr T round_up(T a, T m) { return static_cast<T>(ceildiv(a, m) * m); }

constexpr bool is_power_of_two(int128 v) { return v > 0 && (v & (v - 1)) == 0; }
/// Binary logarithm, rounded down; 0 for numbers below 2.
constexpr int floor_log2(int128 v) {
  int k = 0;
  while (v > 1) {
    v >>= 1;
    k++;
  }
  return k;
}

/// a*b, a+b or nothing if the type cannot hold it.
template <Integer T> constexpr std::optional<T> checked_mul(T a, T b) {
  T r{};
  return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional<T>(r);
}
template <Integer T> constexpr std::optional<T> checked_add(T a, T b) {
  T r{};
  return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional<T>(r);
}

/// Product of a range of integers; 1 if it is empty. Not checked.
template <class R> constexpr int64_t prod(const R& values) {
  int64_t p = 1;
  for (const auto& v : values) p *= static_cast<int64_t>(v);
  return p;
}
/// Product of sizes (>= 0), or nothing if it is 2^63 or more. A zero anywhere makes it zero, however large the others
/// are.
template <class R> constexpr std::optional<int64_t> checked_prod(const R& values) {
  int64_t p = 1;
  bool overflow = false;
  for (const auto& v : values) {
    if (v == 0) return 0;
    overflow = __builtin_mul_overflow(p, static_cast<int64_t>(v), &p) || overflow;
  }
  return overflow ? std::nullopt : std::optional<int64_t>(p);
}

/// Decimal digits of a 128-bit integer.
std::string to_string(int128 v);

}  // namespace tg
