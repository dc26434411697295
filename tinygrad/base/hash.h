/// \file 128-bit structural hashes: fast, well mixed, equal in every run and on every machine. Not cryptographic.
#pragma once
#include <compare>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tg {

/// Finalizer of MurmurHash3 (Austin Appleby, public domain): a bijection that spreads every input bit.
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdull;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

/// A 128-bit hash value; as a structural identity, collisions are negligible.
struct Hash128 {
  uint64_t lo = 0x9ae16a3b2f90404full, hi = 0xc949d7c7509e6557ull;
  constexpr auto operator<=>(const Hash128&) const = default;

  /// Mixes one word in; order matters.
  constexpr void add(uint64_t v) {
    lo = (lo ^ v) * 0x9fb21c651e98df25ull;
    lo ^= lo >> 32;
    hi = (hi + v + lo) * 0xd6e8feb86659fd93ull;
    hi ^= hi >> 29;
  }
  constexpr void add(Hash128 h) {
    add(h.lo);
    add(h.hi);
  }
  void add(std::string_view s) {
    add(s.size());
    for (size_t i = 0; i < s.size(); i += 8) {
      uint64_t w = 0;
      std::memcpy(&w, s.data() + i, s.size() - i < 8 ? s.size() - i : 8);
      add(w);
    }
  }
  std::string to_hex() const {
    static const char* digits = "0123456789abcdef";
    std::string out(32, '0');
    for (int i = 0; i < 16; i++) {
      out[i] = digits[hi >> (60 - 4 * i) & 15];
      out[16 + i] = digits[lo >> (60 - 4 * i) & 15];
    }
    return out;
  }
};

}  // namespace tg
