/// \file Reader of IDX, the format of MNIST: a typed n-dimensional array with big-endian values.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "tinygrad/base/dtype.h"

namespace tg::nn {

/// dtype is uint8, int8, int16, int32, float32 or float64; data holds the elements in C order and host byte order.
struct IdxArray {
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;
};

/// Maximum size of a file, and of the decompressed content.
inline constexpr uint64_t kMaxIdxBytes = uint64_t{1} << 32;

/// Parses the content of an IDX file, gzip or plain. `name` appears in the message of the FormatError thrown when the
/// header is not IDX's, has no or more than 8 dimensions, or when the elements it declares are not exactly the bytes
/// that follow.
IdxArray parse_idx(std::span<const uint8_t> bytes, std::string_view name, uint64_t max_bytes = kMaxIdxBytes);
/// Reads a file. Throws FileError when it cannot be read, FormatError as above.
IdxArray read_idx(const std::filesystem::path& path, uint64_t max_bytes = kMaxIdxBytes);

}  // namespace tg::nn
