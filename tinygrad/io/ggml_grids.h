/// \file Grids of GGML's IQ types: a number in a block stands for a point, eight or four small integers.
#pragma once
#include <cstdint>
#include <span>

namespace tg::io {

/// A grid with its points in 16 bits each: coordinate i is field i, counted from the lowest bits, and stands for
/// `values[field]`.
struct GgmlGrid {
  std::span<const uint16_t> points;
  int coordinates;  ///< of a point
  int bits;         ///< of a coordinate
  std::span<const int> values;
};

extern const GgmlGrid kGridIQ2_XXS, kGridIQ2_XS, kGridIQ2_S, kGridIQ3_XXS, kGridIQ3_S, kGridIQ1;

}  // namespace tg::io
