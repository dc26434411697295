/// \file SHA-256: checks downloaded data and names cache entries.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace tg {

using Sha256Digest = std::array<uint8_t, 32>;

/// Streaming SHA-256. update() takes any number of pieces; finish() may be called once.
class Sha256 {
 public:
  /// `portable`: without the processor's SHA instructions; tests compare the two.
  explicit Sha256(bool portable = false) : portable_(portable) {}
  Sha256& update(std::span<const uint8_t> bytes);
  Sha256Digest finish();

 private:
  void compress(const uint8_t* block);
  bool portable_;
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t length_ = 0;  // bytes so far; length_ % 64 of them wait in block_
};

/// Digest of one buffer as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::span<const uint8_t> bytes);
std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace tg
