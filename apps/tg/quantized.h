/// \file GGML's quantized blocks: as tensor operations over bytes, and element by element on the host.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::bench {

/// A block holds a scale (float16) and then 32 integers.
struct QuantizedFormat {
  static constexpr int64_t kElements = 32;
  int64_t bytes;  ///< of a block
  /// uint8 (..., bytes) -> float32 (..., 32).
  Tensor (*unpack)(const Tensor& blocks);
  /// Element `i` of a block, without the scale.
  int (*integer)(const uint8_t* block, size_t i);
  /// Element `at` of a sequence of blocks.
  double element(std::span<const uint8_t> blocks, size_t at) const;
};

/// 4 bits each, offset by 8: low halves of 16 bytes, then high ones.
extern const QuantizedFormat kQ4_0;
/// 8 bits each, signed.
extern const QuantizedFormat kQ8_0;

/// Returns random integers and scales of 1/32 to 1/16, the same in every run.
std::vector<uint8_t> random_blocks(const QuantizedFormat& format, size_t count, uint64_t seed);

}  // namespace tg::bench
