/// \file The header of safetensors files: names, types, shapes and places of tensors. Nothing in a file is trusted.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/base/dtype.h"

namespace tg::io {

/// The bytes of a tensor are data[begin, end), data starting behind the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};
struct Safetensors {
  uint64_t data_start = 0;
  std::vector<SafetensorsEntry> entries;  ///< in the order of the header
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Largest header accepted.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Parses the header of a file of `file_size` bytes that begins with `bytes` (at least 8 + the header). FormatError
/// naming `name` for a header that is too long or no JSON, types that are unknown, shapes that do not fit their bytes,
/// and bytes that lie outside of the file or belong to two tensors.
Safetensors parse_safetensors(std::span<const uint8_t> bytes, uint64_t file_size, std::string_view name);

/// The header of these tensors with data in this order, its length included, in a multiple of 8 bytes; `begin` and
/// `end` are not looked at. DTypeError for a type the format has not.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace tg::io
