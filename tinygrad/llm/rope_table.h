/// \file Rotary positions: tables of cosines and sines, and turning heads by them.
///
/// Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), LongRoPE (arXiv 2402.13753); the llama 3 factors are
/// those a file brings in `rope_freqs.weight`.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/llm/model_config.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::llm {

/// How fast each pair turns, in radians per position, and what cosines and sines are multiplied with.
struct RopeFrequencies {
  std::vector<double> per_position;  ///< by pair
  double magnitude = 1;
};
/// `factors` (empty: none) divide the frequency of each pair. FormatError when their number is not that of the pairs.
RopeFrequencies rope_frequencies(const RopeConfig& c, std::span<const float> factors = {});

/// Cosines and sines of positions 0 to `positions`, float32 (positions, pairs), computed in double precision.
class RopeTable {
 public:
  RopeTable(const RopeFrequencies& f, RopePairs pairs, int64_t positions, const std::string& device);
  /// Returns the bytes of a position in the table of heads that are turned in `dims` elements, while it is made.
  static int64_t bytes(int64_t dims) { return 2 * dims * static_cast<int64_t>(sizeof(float)); }
  /// The rows of `positions` (batch, time): (batch, time, 1, pairs) each. Zeros for positions beyond the table.
  struct Rows {
    Tensor cos, sin;
  };
  Rows rows(const Tensor& positions) const;
  /// Turns the first elements, as many as the table has angles for, of heads (batch, time, heads, dim).
  Tensor turn(const Tensor& heads, const Rows& rows) const;

 private:
  RopePairs pairs_;
  int64_t dims_;
  Tensor cos_, sin_;
};

}  // namespace tg::llm
