/// \file Packed blocks of GGML's types from floats.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tinygrad/io/ggml_types.h"

namespace tg::io {

/// Returns whether ggml_quantize has the type: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, TQ1_0, TQ2_0 and MXFP4.
bool can_quantize(GgmlType type);

/// Returns the blocks of `values`, byte for byte those of gguf-py's `quantize`. ValueError for types that
/// can_quantize refuses, and for infinities and NaN where the values share a scale; ShapeError for a number of values
/// that is no multiple of a block.
std::vector<uint8_t> ggml_quantize(std::span<const float> values, GgmlType type);

}  // namespace tg::io
