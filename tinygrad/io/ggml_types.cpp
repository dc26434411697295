/// \file The table of GGML's types.
#include "tinygrad/io/ggml_types.h"

#include <algorithm>

#include "tinygrad/base/error.h"

namespace tg::io {
namespace {

using enum GgmlType;

const GgmlTypeInfo kTypes[] = {
    {kF32, "F32", 1, 4, dtypes::float32},
    {kF16, "F16", 1, 2, dtypes::float16},
    {kQ4_0, "Q4_0", 32, 18, {}},
    {kQ4_1, "Q4_1", 32, 20, {}},
    {kQ5_0, "Q5_0", 32, 22, {}},
    {kQ5_1, "Q5_1", 32, 24, {}},
    {kQ8_0, "Q8_0", 32, 34, {}},
    {kQ8_1, "Q8_1", 32, 40, {}},
    {kQ2_K, "Q2_K", 256, 84, {}},
    {kQ3_K, "Q3_K", 256, 110, {}},
    {kQ4_K, "Q4_K", 256, 144, {}},
    {kQ5_K, "Q5_K", 256, 176, {}},
    {kQ6_K, "Q6_K", 256, 210, {}},
    {kQ8_K, "Q8_K", 256, 292, {}},
    {kIQ2_XXS, "IQ2_XXS", 256, 66, {}},
    {kIQ2_XS, "IQ2_XS", 256, 74, {}},
    {kIQ3_XXS, "IQ3_XXS", 256, 98, {}},
    {kIQ1_S, "IQ1_S", 256, 50, {}},
    {kIQ4_NL, "IQ4_NL", 32, 18, {}},
    {kIQ3_S, "IQ3_S", 256, 110, {}},
    {kIQ2_S, "IQ2_S", 256, 82, {}},
    {kIQ4_XS, "IQ4_XS", 256, 136, {}},
    {kI8, "I8", 1, 1, dtypes::int8},
    {kI16, "I16", 1, 2, dtypes::int16},
    {kI32, "I32", 1, 4, dtypes::int32},
    {kI64, "I64", 1, 8, dtypes::int64},
    {kF64, "F64", 1, 8, dtypes::float64},
    {kIQ1_M, "IQ1_M", 256, 56, {}},
    {kBF16, "BF16", 1, 2, dtypes::bfloat16},
    {kTQ1_0, "TQ1_0", 256, 54, {}},
    {kTQ2_0, "TQ2_0", 256, 66, {}},
    {kMXFP4, "MXFP4", 32, 17, {}},
    {kNVFP4, "NVFP4", 64, 36, {}},
    {kQ1_0, "Q1_0", 128, 18, {}},
};

}  // namespace

std::span<const GgmlTypeInfo> ggml_types() { return kTypes; }

const GgmlTypeInfo* find_ggml_type(uint32_t number) {
  const auto* t =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& k) { return uint32_t(k.type) == number; });
  return t == std::end(kTypes) ? nullptr : t;
}

const GgmlTypeInfo* find_ggml_type(std::string_view name) {
  const auto* t = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& k) { return k.name == name; });
  return t == std::end(kTypes) ? nullptr : t;
}

const GgmlTypeInfo& ggml_type_info(GgmlType type) {
  const GgmlTypeInfo* t = find_ggml_type(static_cast<uint32_t>(type));
  TG_CHECK(ValueError, t, "[ggml] got the type ", static_cast<uint32_t>(type), ", which the table has not");
  return *t;
}

std::optional<GgmlType> native_ggml_type(DType dtype) {
  for (const GgmlTypeInfo& t : kTypes)
    if (t.native == dtype) return t.type;
  return {};
}

}  // namespace tg::io
