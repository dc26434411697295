/// \file Bytes that hold the elements of several tensors: a file's pages, or a tensor of bytes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/base/host_bytes.h"
#include "tinygrad/io/file.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

/// Hands out parts of a file or of a tensor as tensors. They are read when they are used, and each byte is copied at
/// most once: aligned parts of a file are its pages, which the tensors keep mapped.
class ByteSource {
 public:
  /// Maps a file. FileError prefixed with `[op]`, the function the user called, when it cannot be read.
  static ByteSource of_file(const std::filesystem::path& path, std::string_view op);
  /// Reads a tensor of shape (n,) and type uint8; ValueError for another. A DISK tensor stays on the disk.
  static ByteSource of_tensor(const Tensor& t, std::string_view op);
  /// Takes bytes that were unpacked.
  static ByteSource of_bytes(std::vector<uint8_t> bytes, std::string what);

  /// Returns the contents; they are valid as long as the source lives.
  std::span<const uint8_t> bytes() const { return bytes_; }
  /// "[op] FILE", to begin messages with.
  const std::string& what() const { return what_; }
  std::string name() const { return what_.substr(what_.find(' ') + 1); }  ///< FILE
  /// Returns the elements that begin at byte `offset`, row-major, of the type and shape, on the CPU. They must lie
  /// inside.
  Tensor view(uint64_t offset, DType dtype, const Shape& shape) const;

 private:
  std::string what_, device_;
  std::span<const uint8_t> bytes_;
  io::MappedFile file_;
  Tensor tensor_;     ///< undefined for files
  HostBytes memory_;  ///< of the tensor
};

/// Where the elements of a tensor lie in a row: element (i, j, ...) is number offset + i * strides[0] + j * strides[1]
/// + ... Strides are not negative.
struct StridedLayout {
  uint64_t offset = 0;
  std::vector<int64_t> shape, strides;
  /// Returns the number behind that of the last element; `offset` for a tensor without elements.
  uint64_t end() const;
};

/// Returns `count` elements that begin at byte `offset` of `source`, seen through `layout`, which must lie inside: of
/// `dtype` and the layout's shape. Permuted, sliced and repeated axes are movements of the elements' row; overlapping
/// ones are gathered.
Tensor strided_view(const ByteSource& source, uint64_t offset, uint64_t count, DType dtype,
                    const StridedLayout& layout);
/// Does so for a tensor of one axis: the result is a view of it, of its type.
Tensor strided_view(const Tensor& row, const StridedLayout& layout);

}  // namespace tg::nn
