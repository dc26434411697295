/// \file Matrices in the memory of a group, as instructions of a whole warpgroup (wgmma) read them: rows of 128 bytes
/// whose parts of 16 bytes are exchanged, and the words that tell an instruction where they are. PTX ISA,
/// "Asynchronous Warpgroup Level Matrix Shared Memory Layout" and "Matrix Descriptor Format".
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace tg {

constexpr int64_t kMatrixRow = 128;         ///< bytes
constexpr int64_t kMatrixPart = 16;         ///< bytes that stay together
constexpr int64_t kMatrixRows = 8;          ///< rows after which the exchange of parts repeats
constexpr int64_t kMatrixAlignment = 1024;  ///< bytes: what addresses of whole matrices are multiples of
constexpr int kMatrixField = 0x3fff;        ///< the 14 bits that a descriptor has for an address in parts

/// Where the elements of a matrix are, from its first one. A row holds elements along the sum ("K-major"), or, across
/// it, those of one step of the sum ("MN-major"), as memory has them before a matrix is transposed.
struct SharedMatrix {
  bool across = false;   ///< rows are across the sum: only elements of 16 bits
  int64_t leading = 16;  ///< across: bytes from a row to the one that continues it; else it has no meaning
  int64_t stride = kMatrixRow * kMatrixRows;  ///< bytes from eight rows to the next eight

  /// Returns the descriptor of the matrix that begins `address` bytes into the memory of the group, a multiple of 16.
  uint64_t descriptor(int64_t address) const;
  /// Returns the byte of element `k` of the sum of row (or column) `i`, where `descriptor` says that a matrix begins.
  static int64_t byte_of(uint64_t descriptor, bool across, int64_t i, int64_t k, int64_t itemsize);
  /// Returns it as the argument of a node, "k 16 1024" or "mn 8192 1024".
  std::string text() const;
  /// Reads what text() has written.
  static SharedMatrix from_text(std::string_view text);
};

}  // namespace tg
