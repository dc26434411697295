/// \file Plain values and texts as bytes, written in order and read back with every length checked. Little endian, as
/// are all supported machines.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tinygrad/base/error.h"

namespace tg {

class ByteWriter {
 public:
  template <class T> void value(T v) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
    const auto* p = reinterpret_cast<const uint8_t*>(&v);
    bytes.insert(bytes.end(), p, p + sizeof v);
  }
  void text(std::string_view s) {
    value<uint64_t>(s.size());
    bytes.insert(bytes.end(), s.begin(), s.end());
  }
  void size(size_t n) { value<uint64_t>(n); }
  std::vector<uint8_t> bytes;
};

/// Throws FormatError naming the field for anything that does not fit; nothing that is read is trusted.
class ByteReader {
 public:
  ByteReader(std::span<const uint8_t> bytes, std::string name) : left_(bytes), name_(std::move(name)) {}
  template <class T> T value() {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    T v;
    need(sizeof v);
    std::memcpy(&v, left_.data(), sizeof v);
    left_ = left_.subspan(sizeof v);
    return v;
  }
  bool flag() {
    const auto v = value<uint8_t>();
    check(v <= 1, "a flag that is neither 0 nor 1");
    return v != 0;
  }
  /// Reads an integer below `end`.
  template <class T> T below(uint64_t end, const char* what) {
    const T v = value<T>();
    check(v >= T(0) && static_cast<uint64_t>(v) < end, what);
    return v;
  }
  /// Reads a count of items of at least `bytes_each` bytes each.
  size_t size(size_t bytes_each = 1) {
    const auto n = value<uint64_t>();
    check(n <= left_.size() / bytes_each, "a count that is larger than the file");
    return static_cast<size_t>(n);
  }
  std::string text() {
    const size_t n = size();
    std::string s(reinterpret_cast<const char*>(left_.data()), n);
    left_ = left_.subspan(n);
    return s;
  }
  std::span<const uint8_t> take(size_t n) {
    need(n);
    auto s = left_.first(n);
    left_ = left_.subspan(n);
    return s;
  }
  size_t left() const { return left_.size(); }
  void check(bool ok, const char* what) const {
    if (!ok) [[unlikely]]
      throw FormatError(name_ + ": got " + what);
  }
  const std::string& name() const { return name_; }

 private:
  void need(size_t n) const { check(n <= left_.size(), "an early end"); }
  std::span<const uint8_t> left_;
  std::string name_;
};

}  // namespace tg
