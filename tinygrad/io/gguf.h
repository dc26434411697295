/// \file GGUF files: metadata, and tensors by name. Nothing in a file is trusted.
///
/// Source: the specification of GGUF (docs/gguf.md of the ggml project), versions 2 and 3, little endian.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "tinygrad/io/ggml_types.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::io {

// Limits, checked before anything is allocated. Counts are also bounded by the bytes that are left.
inline constexpr uint64_t kMaxGgufEntries = 1 << 16;          ///< pairs of metadata
inline constexpr uint64_t kMaxGgufTensors = 1 << 18;          ///< tensors of a file
inline constexpr uint64_t kMaxGgufKeyBytes = (1 << 16) - 1;   ///< bytes of a key
inline constexpr uint64_t kMaxGgufNameBytes = (1 << 12) - 1;  ///< bytes of the name of a tensor
inline constexpr uint32_t kMaxGgufAxes = 8;                   ///< axes of a tensor
inline constexpr uint64_t kMaxGgufAlignment = uint64_t{1} << 20;
inline constexpr size_t kMaxGgufArrayDepth = 4;    ///< arrays within arrays
inline constexpr uint64_t kMaxGgufParts = 99'999;  ///< files of a model

/// Types of metadata, with their numbers in files.
enum class GgufValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

/// An array as it lies in the file: only the member of its type is filled.
struct GgufArray {
  GgufValueType type = GgufValueType::kUint8;  ///< of the elements
  uint64_t count = 0;
  std::span<const uint8_t> numbers;       ///< little endian, at any address
  std::vector<std::string_view> strings;  ///< of kString
  std::vector<GgufArray> arrays;          ///< of kArray
};

/// A value: the index of the alternative is the number of GgufValueType. Strings are bytes of the file, which need not
/// be UTF-8.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string_view,
                               GgufArray, uint64_t, int64_t, double>;

/// The metadata of a file, with typed access. Each accessor throws FormatError, naming the file, the offset and the
/// key, when the key is missing (unless a fallback is given), of another type or out of range. Integers may have any
/// integer type in the file.
class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    uint64_t offset;  ///< of the key in the file
    GgufValue value;
  };

  bool contains(std::string_view key) const { return find(key) != nullptr; }
  /// Returns nullptr when there is no such key.
  const Entry* find(std::string_view key) const;
  /// All entries, in the order of the file.
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

  int64_t integer(std::string_view key, int64_t least, int64_t most) const;
  int64_t integer_or(std::string_view key, int64_t fallback, int64_t least, int64_t most) const;
  /// A finite number; float32, float64 or an integer in the file.
  double real(std::string_view key) const;
  double real_or(std::string_view key, double fallback) const;
  bool flag(std::string_view key) const;
  bool flag_or(std::string_view key, bool fallback) const;
  /// Bytes of the file; valid as long as it is mapped.
  std::string_view string(std::string_view key) const;
  std::string_view string_or(std::string_view key, std::string_view fallback) const;
  std::span<const std::string_view> strings(std::string_view key) const;
  /// The integers of an array; a single integer gives one element.
  std::vector<int64_t> integers(std::string_view key, int64_t least, int64_t most) const;
  /// The numbers of an array, none of them NaN; a single number gives one element.
  std::vector<double> reals(std::string_view key) const;

  const std::string& file() const { return file_; }

 private:
  friend class GgufParser;
  const Entry& required(std::string_view key) const;

  std::string file_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
};

/// A row of the table of tensors.
struct GgufTensor {
  std::string name;
  GgmlType type;
  std::vector<int64_t> shape;  ///< the slowest axis first, as in Tensor: the reverse of what the file says
  uint64_t offset;             ///< of the data in the file
  uint64_t bytes;              ///< of the data
  size_t part = 0;             ///< number of the file, of a model in several

  int64_t numel() const;
};

/// A parsed file. Strings and arrays of the metadata are views of its bytes.
struct Gguf {
  uint32_t version = 0;
  uint64_t alignment = 0;
  uint64_t data_start = 0;
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  ///< in the order of the file
};

/// Parses a whole file, named `name` in errors. FormatError that names offset and field for anything that is not as
/// specified: unknown versions and types, counts and lengths beyond the end, keys or names that occur twice, alignments
/// that are no power of two, shapes whose sizes overflow, and data that is misaligned, overlaps or lies outside.
Gguf parse_gguf(std::span<const uint8_t> bytes, std::string_view name);

/// A model in one file or several, mapped into memory; tensors are its pages, read when they are used. Copies share
/// the mapping, and tensors keep it.
class GgufFile {
 public:
  /// Maps `path` and, where `split.count` says so, the other parts NAME-00002-of-0000N.gguf beside it; `path` must be
  /// the first. FileError for a file that is missing, FormatError as parse_gguf, and for parts that do not belong
  /// together.
  static GgufFile open(const std::filesystem::path& path);
  /// Wraps bytes in memory that `owner` keeps; `name` is for errors. ValueError when it is one part of several.
  static GgufFile from_memory(std::span<uint8_t> bytes, std::shared_ptr<void> owner, std::string_view name);

  /// The metadata of the first part.
  const GgufMetadata& metadata() const;
  /// The tensors of all parts.
  const std::vector<GgufTensor>& tensors() const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Returns nullptr when there is no such tensor.
  const GgufTensor* find(std::string_view name) const;
  /// The bytes of a tensor of this file.
  std::span<const uint8_t> bytes(const GgufTensor& t) const;

  /// Returns the blocks of a tensor as uint8 of shape (..., blocks of a row, bytes of a block), without a copy on the
  /// CPU; `device` copies them. Native types have blocks of one element.
  Tensor packed(const GgufTensor& t, const std::string& device = "CPU") const;
  /// Returns the values of a tensor: native types in their own dtype, without a copy on the CPU; packed blocks as
  /// float32 that the kernels which use it compute from packed(), so that only those bytes are kept. IndexError when
  /// there is no such tensor.
  Tensor tensor(std::string_view name, const std::string& device = "CPU") const;
  Tensor tensor(const GgufTensor& t, const std::string& device = "CPU") const;

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

}  // namespace tg::io
