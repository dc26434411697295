/// \file The table of matrix and dot product instructions.
#include "tinygrad/target/tensor_core.h"

#include <algorithm>

namespace tg {

const std::vector<TensorCore>& tensor_core_table() {
  using namespace dtypes;
  // clang-format off
  static const std::vector<TensorCore> table{
    // instruction  arch      features              n  m  k  threads  elements   a         b         out      exact
    {"vpdpbusd",    "x86_64",  "avx512vnni avxvnni", 0, 1, 4, 1,       {4, 4, 1}, uint8,    int8,     int32,   true},
    {"vpdpwssd",    "x86_64",  "avx512vnni avxvnni", 0, 1, 2, 1,       {2, 2, 1}, int16,    int16,    int32,   true},
    {"vpmaddwd",    "x86_64",  "",                   0, 1, 2, 1,       {2, 2, 1}, int16,    int16,    int32,   true},
    {"vdpbf16ps",   "x86_64",  "avx512bf16",         0, 1, 2, 1,       {2, 2, 1}, bfloat16, bfloat16, float32, false},
    {"sdot",        "arm64",   "dotprod",            0, 1, 4, 1,       {4, 4, 1}, int8,     int8,     int32,   true},
    {"udot",        "arm64",   "dotprod",            0, 1, 4, 1,       {4, 4, 1}, uint8,    uint8,    uint32,  true},
    {"usdot",       "arm64",   "i8mm",               0, 1, 4, 1,       {4, 4, 1}, uint8,    int8,     int32,   true},
    {"bfdot",       "arm64",   "bf16",               0, 1, 2, 1,       {2, 2, 1}, bfloat16, bfloat16, float32, false},
  };
  // clang-format on
  return table;
}

std::vector<const TensorCore*> tensor_cores_of(const Target& target) {
  std::vector<const TensorCore*> out;
  for (const TensorCore& t : tensor_core_table()) {
    if (target.arch != t.arch) continue;
    std::string_view features = t.feature;
    bool has = features.empty();
    while (!features.empty()) {
      const size_t end = std::min(features.find(' '), features.size());
      has |= target.has(features.substr(0, end));
      features.remove_prefix(std::min(end + 1, features.size()));
    }
    if (has) out.push_back(&t);
  }
  return out;
}

const TensorCore* find_tensor_core(std::string_view name) {
  for (const TensorCore& t : tensor_core_table())
    if (name == t.name) return &t;
  return nullptr;
}

}  // namespace tg
