/// \file gzip decompression with a limit on the output.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tg::io {

bool is_gzip(std::span<const uint8_t> bytes);

/// Decompresses all members of a gzip file. The output grows only as bytes are produced and never past `max_bytes`.
/// Throws FormatError naming `name` when the data is corrupt, truncated, followed by anything else, or larger than the
/// limit.
std::vector<uint8_t> gunzip(std::span<const uint8_t> bytes, uint64_t max_bytes, std::string_view name);

}  // namespace tg::io
