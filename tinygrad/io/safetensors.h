/// \file The header of safetensors files: names, types, shapes and offsets of tensors. Nothing in a file is trusted.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinygrad/base/dtype.h"

namespace tg::io {

/// The bytes of a tensor are data[begin, end), data starting after the header.
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
/// naming `name` for a header that is too long or not JSON, unknown types, shapes that do not match their bytes, and
/// bytes that are outside of the file or shared by two tensors.
Safetensors parse_safetensors(std::span<const uint8_t> bytes, uint64_t file_size, std::string_view name);

/// Returns the header of these tensors with data in this order, its length included, padded to a multiple of 8 bytes;
/// `begin` and `end` are ignored. DTypeError for a type the format lacks.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace tg::io
