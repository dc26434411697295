/// \file Typed access to the metadata of GGUF files.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "tinygrad/base/error.h"
#include "tinygrad/io/gguf.h"

namespace tg::io {
namespace {

constexpr std::string_view kTypeNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                           "bool",  "string", "array",  "uint64", "int64",  "float64"};

template <class T> constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T> constexpr bool is_number = is_integer<T> || std::is_floating_point_v<T>;

template <class... A> [[noreturn]] void fail(const GgufMetadata& m, const GgufMetadata::Entry& e, const A&... what) {
  throw FormatError(str("[gguf] ", m.file(), ": byte ", e.offset, " (", e.key, "): ", what...));
}
[[noreturn]] void wrong_type(const GgufMetadata& m, const GgufMetadata::Entry& e, std::string_view expected) {
  fail(m, e, "got a value of type ", kTypeNames[e.value.index()], ", expected ", expected);
}

template <class T>
int64_t checked(const GgufMetadata& m, const GgufMetadata::Entry& e, T v, int64_t least, int64_t most) {
  if (std::cmp_less(v, least) || std::cmp_greater(v, most)) fail(m, e, "got ", +v, ", expected ", least, " to ", most);
  return static_cast<int64_t>(v);
}
template <class T> double checked(const GgufMetadata& m, const GgufMetadata::Entry& e, T v) {
  const auto x = static_cast<double>(v);
  if (std::isnan(x)) fail(m, e, "got NaN, expected a number");
  return x;
}

int64_t integer_of(const GgufMetadata& m, const GgufMetadata::Entry& e, int64_t least, int64_t most) {
  return std::visit(
      [&]<class T>(const T& v) -> int64_t {
        if constexpr (is_integer<T>) return checked(m, e, v, least, most);
        else wrong_type(m, e, "an integer");
      },
      e.value);
}
double real_of(const GgufMetadata& m, const GgufMetadata::Entry& e) {
  const double x = std::visit(
      [&]<class T>(const T& v) -> double {
        if constexpr (is_number<T>) return static_cast<double>(v);
        else wrong_type(m, e, "a number");
      },
      e.value);
  if (!std::isfinite(x)) fail(m, e, "got ", x, ", expected a finite number");
  return x;
}
bool flag_of(const GgufMetadata& m, const GgufMetadata::Entry& e) {
  if (const bool* v = std::get_if<bool>(&e.value)) return *v;
  wrong_type(m, e, "bool");
}
std::string_view string_of(const GgufMetadata& m, const GgufMetadata::Entry& e) {
  if (const auto* v = std::get_if<std::string_view>(&e.value)) return *v;
  wrong_type(m, e, "string");
}

/// Calls `each` with every element of an array of type T as it lies in the file.
template <class T, class F> void for_numbers(const GgufArray& a, const F& each) {
  for (uint64_t i = 0; i < a.count; i++) {
    T v;
    std::memcpy(&v, a.numbers.data() + i * sizeof v, sizeof v);
    each(v);
  }
}
/// Calls `each` with every number of an array; false: it holds other things.
template <class F> bool for_each_number(const GgufArray& a, const F& each) {
  using enum GgufValueType;
  switch (a.type) {
    case kUint8: for_numbers<uint8_t>(a, each); return true;
    case kInt8: for_numbers<int8_t>(a, each); return true;
    case kUint16: for_numbers<uint16_t>(a, each); return true;
    case kInt16: for_numbers<int16_t>(a, each); return true;
    case kUint32: for_numbers<uint32_t>(a, each); return true;
    case kInt32: for_numbers<int32_t>(a, each); return true;
    case kFloat32: for_numbers<float>(a, each); return true;
    case kUint64: for_numbers<uint64_t>(a, each); return true;
    case kInt64: for_numbers<int64_t>(a, each); return true;
    case kFloat64: for_numbers<double>(a, each); return true;
    case kBool:
    case kString:
    case kArray: return false;
  }
  return false;
}

}  // namespace

const GgufMetadata::Entry* GgufMetadata::find(std::string_view key) const {
  const auto at = index_.find(key);
  return at == index_.end() ? nullptr : &entries_[at->second];
}
const GgufMetadata::Entry& GgufMetadata::required(std::string_view key) const {
  const Entry* e = find(key);
  TG_CHECK(FormatError, e, "[gguf] ", file_, ": the metadata has no ", key);
  return *e;
}

int64_t GgufMetadata::integer(std::string_view key, int64_t least, int64_t most) const {
  return integer_of(*this, required(key), least, most);
}
int64_t GgufMetadata::integer_or(std::string_view key, int64_t fallback, int64_t least, int64_t most) const {
  const Entry* e = find(key);
  return e ? integer_of(*this, *e, least, most) : fallback;
}
double GgufMetadata::real(std::string_view key) const { return real_of(*this, required(key)); }
double GgufMetadata::real_or(std::string_view key, double fallback) const {
  const Entry* e = find(key);
  return e ? real_of(*this, *e) : fallback;
}
bool GgufMetadata::flag(std::string_view key) const { return flag_of(*this, required(key)); }
bool GgufMetadata::flag_or(std::string_view key, bool fallback) const {
  const Entry* e = find(key);
  return e ? flag_of(*this, *e) : fallback;
}
std::string_view GgufMetadata::string(std::string_view key) const { return string_of(*this, required(key)); }
std::string_view GgufMetadata::string_or(std::string_view key, std::string_view fallback) const {
  const Entry* e = find(key);
  return e ? string_of(*this, *e) : fallback;
}
std::span<const std::string_view> GgufMetadata::strings(std::string_view key) const {
  const Entry& e = required(key);
  const auto* a = std::get_if<GgufArray>(&e.value);
  if (!a) wrong_type(*this, e, "an array of strings");
  if (a->type != GgufValueType::kString && a->count)
    fail(*this, e, "got an array of ", kTypeNames[static_cast<size_t>(a->type)], ", expected one of strings");
  return a->strings;
}
std::vector<int64_t> GgufMetadata::integers(std::string_view key, int64_t least, int64_t most) const {
  const Entry& e = required(key);
  const auto* a = std::get_if<GgufArray>(&e.value);
  if (!a) return {integer_of(*this, e, least, most)};
  std::vector<int64_t> out;
  if (a->count == 0) return out;
  out.reserve(a->count);
  const auto add = [&]<class T>(T v) {
    if constexpr (is_integer<T>) out.push_back(checked(*this, e, v, least, most));
  };
  if (!for_each_number(*a, add) || out.size() != a->count)
    fail(*this, e, "got an array of ", kTypeNames[static_cast<size_t>(a->type)], ", expected one of integers");
  return out;
}
std::vector<double> GgufMetadata::reals(std::string_view key) const {
  const Entry& e = required(key);
  const auto* a = std::get_if<GgufArray>(&e.value);
  if (!a) return {real_of(*this, e)};
  std::vector<double> out;
  if (a->count == 0) return out;
  out.reserve(a->count);
  if (!for_each_number(*a, [&](auto v) { out.push_back(checked(*this, e, v)); }))
    fail(*this, e, "got an array of ", kTypeNames[static_cast<size_t>(a->type)], ", expected one of numbers");
  return out;
}

}  // namespace tg::io
