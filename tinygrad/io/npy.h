/// \file The header of .npy files, versions 1.0 to 3.0 (NEP 1): type, order and shape of one array. Nothing in a file
/// is trusted.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/dtype.h"

namespace tg::io {

/// The array's elements are file[data_start, data_start + bytes).
struct NpyHeader {
  DType dtype;
  bool big_endian = false;     ///< elements of more than one byte have their bytes in reverse order
  bool fortran_order = false;  ///< the first axis is the one whose elements lie next to each other
  std::vector<int64_t> shape;
  uint64_t data_start = 0;
  uint64_t bytes = 0;
};

/// Longest header accepted; NumPy's own limit for files that are not trusted.
inline constexpr uint64_t kMaxNpyHeader = 10'000;
inline constexpr size_t kMaxNpyAxes = 64;

/// Returns the type that NumPy calls so, without its byte order ("f4"); nothing for one this library has not.
std::optional<DType> npy_type(std::string_view name);

/// Parses the header of a file that holds exactly one array. Throws FormatError that begins with `what` and names the
/// byte: for another kind of file, a header that is not the dictionary NumPy writes, a shape that does not match the
/// bytes, and by name for arrays of objects (which would need unpickling), records, texts, times and complex numbers.
NpyHeader parse_npy(std::span<const uint8_t> file, std::string_view what);

/// Returns the header of an array in C order, version 1.0, padded to a multiple of 64 bytes. DTypeError for a type that
/// NumPy lacks.
std::string npy_header(DType dtype, std::span<const int64_t> shape);

}  // namespace tg::io
