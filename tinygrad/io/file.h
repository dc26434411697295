/// \file Whole files as bytes, bounded and written so that no reader ever sees half of one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tg::io {

/// The bytes of a regular file. Throws FileError when it cannot be read, FormatError when it holds more than
/// `max_bytes`.
std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t max_bytes);
/// Writes beside `path` and renames. Throws FileError that begins with `[op]`, the function the user called.
void write_file_atomic(const std::filesystem::path& path, std::span<const uint8_t> bytes,
                       std::string_view op = "write_file");
/// The same for bytes that lie in several places.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const uint8_t>> parts,
                       std::string_view op = "write_file");

/// A file's bytes as memory, read from the disk when they are touched. Writing to them changes this process's copy
/// only. The file must not become shorter meanwhile; replacing it by a new one is fine.
struct MappedFile {
  std::span<uint8_t> bytes;
  std::shared_ptr<void> owner;  ///< keeps the mapping
};
/// Throws FileError, beginning with `[op]`, when it cannot be read or is no regular file.
MappedFile map_file(const std::filesystem::path& path, std::string_view op = "map_file");

}  // namespace tg::io
