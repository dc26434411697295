/// \file Types of tensors in GGUF files: native ones, and blocks of packed numbers.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tinygrad/base/dtype.h"

namespace tg::io {

/// Numbers as in files. Types that GGML has withdrawn have none: they are refused.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ1_S = 19,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIQ1_M = 29,
  kBF16 = 30,
  kTQ1_0 = 34,
  kTQ2_0 = 35,
  kMXFP4 = 39,
  kNVFP4 = 40,
  kQ1_0 = 41,
};

/// A row of the table of types. Rows of a tensor consist of whole blocks.
struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;
  int64_t elements;             ///< of a block
  int64_t bytes;                ///< of a block
  std::optional<DType> native;  ///< nothing for packed blocks

  /// Bytes of `n` elements, a multiple of those of a block. n must be small enough: the result is not checked.
  int64_t size(int64_t n) const { return n / elements * bytes; }
};

/// All types, by number.
std::span<const GgmlTypeInfo> ggml_types();
/// Returns the row of a number from a file; nullptr: there is no such type.
const GgmlTypeInfo* find_ggml_type(uint32_t number);
/// Returns the row of a name such as "Q4_K"; nullptr: there is no such type.
const GgmlTypeInfo* find_ggml_type(std::string_view name);
const GgmlTypeInfo& ggml_type_info(GgmlType type);
/// Returns the native type of `dtype`; nothing: there is none.
std::optional<GgmlType> native_ggml_type(DType dtype);

}  // namespace tg::io
