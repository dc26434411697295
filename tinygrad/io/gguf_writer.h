/// \file Writing GGUF files.
#pragma once
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "tinygrad/io/gguf.h"

namespace tg::io {

/// Collects metadata and tensors, and writes them as a file of version 3:
///
///     GgufWriter().add("general.architecture", "llama").add_tensor("w", w, GgmlType::kQ8_0).save("model.gguf");
///
/// ValueError for keys and names that occur twice, are empty, too long or have control characters.
class GgufWriter {
 public:
  /// `alignment` of the data: a power of two up to kMaxGgufAlignment.
  explicit GgufWriter(uint32_t alignment = 32);

  /// Adds a value of any type of metadata; strings and arrays are copied.
  GgufWriter& add(std::string_view key, const GgufValue& value);
  GgufWriter& add(std::string_view key, const char* value) { return add(key, GgufValue(std::string_view(value))); }
  GgufWriter& add(std::string_view key, const std::vector<std::string>& values);
  /// An array of numbers, of their type.
  template <class T>
    requires std::is_arithmetic_v<T>
  GgufWriter& add(std::string_view key, const std::vector<T>& values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(T));
    for (size_t i = 0; i < values.size(); i++) {
      const T v = values[i];
      std::memcpy(bytes.data() + i * sizeof v, &v, sizeof v);
    }
    const auto type = static_cast<GgufValueType>(GgufValue(T{}).index());
    return add(key, GgufArray{type, values.size(), bytes, {}, {}});
  }

  /// Adds a tensor, as `type` or as the native type of its dtype. Floats are packed by ggml_quantize. DTypeError for
  /// dtypes the format lacks; ShapeError for rows that are no whole blocks and more than kMaxGgufAxes axes.
  GgufWriter& add_tensor(std::string_view name, const Tensor& values, std::optional<GgmlType> type = {});
  /// Adds the bytes of blocks as they are, for example GgufFile::bytes. ShapeError when there are more or fewer than
  /// the shape takes.
  GgufWriter& add_packed(std::string_view name, const std::vector<int64_t>& shape, GgmlType type,
                         std::vector<uint8_t> bytes);

  /// Writes the file; the old one is replaced when the new one is complete. FileError when it cannot be written.
  void save(const std::filesystem::path& path) const;

 private:
  struct Item {
    std::string name;
    GgmlType type;
    std::vector<int64_t> shape;
    Tensor values;  ///< undefined: `bytes` has the data
    std::vector<uint8_t> bytes;
    uint64_t size = 0;  ///< in the file
  };
  Item& add_item(std::string_view name, std::vector<int64_t> shape, GgmlType type);
  std::string header() const;

  uint32_t alignment_;
  uint64_t entries_ = 0;
  std::string metadata_;
  std::unordered_set<std::string> keys_, names_;
  std::vector<Item> items_;
};

}  // namespace tg::io
