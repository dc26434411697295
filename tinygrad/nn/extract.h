/// \file Archives as tensors of bytes, and a tensor of bytes as a file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "tinygrad/nn/byte_source.h"
#include "tinygrad/nn/state.h"

namespace tg::nn {

/// Most bytes that a compressed file may unpack to, unless a caller says otherwise.
inline constexpr uint64_t kMaxUnpacked = uint64_t{16} << 30;

/// Returns the regular files of a tar archive by name, as uint8 tensors that are parts of it, read when they are used;
/// a gzipped archive is unpacked first. Names are keys, never paths to write to. The last file of a name counts.
/// FileError, FormatError (io/tar.h).
StateDict tar_extract(const std::filesystem::path& path);
StateDict tar_extract(const ByteSource& source);
/// Returns the files of a zip archive by name: stored ones are parts of it, deflated ones are unpacked at once, at most
/// `max_bytes` together. FormatError (io/zip.h).
StateDict zip_extract(const std::filesystem::path& path, uint64_t max_bytes = kMaxUnpacked);
StateDict zip_extract(const ByteSource& source, uint64_t max_bytes = kMaxUnpacked);
/// Returns the content of a gzip file: (bytes,), uint8. FormatError when it is corrupt or larger than `max_bytes`.
Tensor gz_extract(const std::filesystem::path& path, uint64_t max_bytes = kMaxUnpacked);
Tensor gz_extract(const ByteSource& source, uint64_t max_bytes = kMaxUnpacked);

/// Reads a tensor of bytes as a file.
class TensorIO {
 public:
  /// ValueError unless the tensor has one axis of uint8.
  explicit TensorIO(const Tensor& t);
  enum class From { kBegin, kHere, kEnd };

  /// Fills as much of `out` as is left, and returns how much that was.
  size_t read(std::span<uint8_t> out);
  /// Moves to a place, at least 0 and at most the size, and returns it.
  uint64_t seek(int64_t offset, From from = From::kBegin);
  uint64_t position() const { return at_; }
  uint64_t size() const { return source_.bytes().size(); }

 private:
  ByteSource source_;
  uint64_t at_ = 0;
};

}  // namespace tg::nn
