/// \file The header of safetensors files, names, types, shapes and offsets of tensors, and the index of a model in
/// several files (format: https://github.com/huggingface/safetensors). Nothing in a file is trusted.
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

/// Largest header or index accepted, and most names in one.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr size_t kMaxSafetensorsEntries = size_t{1} << 20;
inline constexpr size_t kMaxSafetensorsAxes = 64;

/// Parses the header of a file of `file_size` bytes that begins with `bytes` (at least 8 + the header). FormatError
/// naming `name` for a header that is too long or not JSON, names that occur twice, unknown types and those this
/// library has not, shapes that do not match their bytes, and bytes that are outside of the file, shared by two tensors
/// or of none.
Safetensors parse_safetensors(std::span<const uint8_t> bytes, uint64_t file_size, std::string_view name);

/// Returns the header of these tensors with data in this order, its length included, padded to a multiple of 8 bytes;
/// `begin` and `end` are ignored. DTypeError for a type the format lacks.
std::string safetensors_header(const std::vector<SafetensorsEntry>& entries,
                               const std::vector<std::pair<std::string, std::string>>& metadata = {});

/// Which file of a folder has which tensor: model.safetensors.index.json.
struct SafetensorsIndex {
  std::vector<std::pair<std::string, std::string>> files;  ///< name of a tensor, name of a file
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Parses an index. FormatError naming `name` for text that is no such index, and for files that are anything but a
/// plain name: with a folder, absolute, "..", empty.
SafetensorsIndex parse_safetensors_index(std::string_view text, std::string_view name);
/// Returns the text of an index.
std::string safetensors_index(const SafetensorsIndex& index);

}  // namespace tg::io
