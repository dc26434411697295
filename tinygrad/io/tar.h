/// \file Table of contents of a tar archive held in memory (ustar, with the long names of GNU and pax).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tg::io {

/// A regular file inside an archive: its bytes are archive[offset, offset + size).
struct TarEntry {
  std::string name;
  uint64_t offset, size;
};

/// Returns regular files in archive order; directories, links and devices are skipped. Nothing is copied or extracted,
/// and names are not trusted paths. Throws FormatError naming `name` when a header is corrupt or a size does not fit in
/// the rest.
std::vector<TarEntry> tar_entries(std::span<const uint8_t> archive, std::string_view name);

}  // namespace tg::io
