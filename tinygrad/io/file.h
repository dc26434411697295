/// \file Whole files as bytes, size-limited and written so that no reader ever sees a partial one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace tg::io {

/// Returns the bytes of a regular file. Throws FileError when it cannot be read, FormatError when it holds more than
/// `max_bytes`.
std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t max_bytes);
/// Writes a temporary file next to `path` and renames it. A new file has the rights that the umask leaves, one that
/// replaces another keeps the rights of that. Throws FileError prefixed with `[op]`, the function the user
/// called.
void write_file_atomic(const std::filesystem::path& path, std::span<const uint8_t> bytes,
                       std::string_view op = "write_file");
/// Does so for bytes in several pieces.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const uint8_t>> parts,
                       std::string_view op = "write_file");

/// Does so, and returns when the bytes are on the disk (fsync of the file and of its folder). The temporary file has no
/// name while it is written, so that a program that is killed leaves nothing behind, where the file system has such
/// files.
void write_file_durable(const std::filesystem::path& path, std::span<const std::span<const uint8_t>> parts,
                        std::string_view op = "write_file");

/// A file mapped into memory, read from the disk when touched. Writes change this process's copy only. Replacing the
/// file by a new one is fine. One that is rewritten in place shows the new bytes where nothing was touched yet; of one
/// that became shorter, what is missing reads as zeros, and HostFaultWatch (base/host_faults.h) tells.
struct MappedFile {
  std::span<uint8_t> bytes;
  std::shared_ptr<void> owner;  ///< keeps the mapping
};
/// Throws FileError, prefixed with `[op]`, when it cannot be read or is no regular file.
MappedFile map_file(const std::filesystem::path& path, std::string_view op = "map_file");

}  // namespace tg::io
