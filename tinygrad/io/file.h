/// \file Whole files as bytes, bounded and written so that no reader ever sees half of one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tg::io {

/// The bytes of a regular file. Throws FileError when it cannot be read, FormatError when it holds more than `max_bytes`.
std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t max_bytes);
/// Writes beside `path` and renames. Throws FileError.
void write_file_atomic(const std::filesystem::path& path, std::span<const uint8_t> bytes);

}  // namespace tg::io
