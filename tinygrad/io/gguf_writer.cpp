/// \file The writer of GGUF files.
#include "tinygrad/io/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <unordered_set>

#include "tinygrad/base/error.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/ggml_quantize.h"

namespace tg::io {
namespace {

template <class T>
  requires std::is_arithmetic_v<T>
void put(std::string& to, T v) {
  char bytes[sizeof v];
  std::memcpy(bytes, &v, sizeof v);
  to.append(bytes, sizeof v);
}
void put(std::string& to, std::string_view s) {
  put<uint64_t>(to, s.size());
  to.append(s);
}

/// Writes type, count and elements; arrays in arrays are on a stack of our own.
void put(std::string& to, const GgufArray& array) {
  std::vector<const GgufArray*> rest{&array};
  while (!rest.empty()) {
    const GgufArray& a = *rest.back();
    rest.pop_back();
    put(to, static_cast<uint32_t>(a.type));
    put<uint64_t>(to, a.count);
    to.append(reinterpret_cast<const char*>(a.numbers.data()), a.numbers.size());
    for (std::string_view s : a.strings) put(to, s);
    for (size_t i = a.arrays.size(); i > 0; i--) rest.push_back(&a.arrays[i - 1]);
  }
}

void check_label(std::string_view what, std::string_view s, uint64_t most, std::unordered_set<std::string>& known) {
  const bool printable =
      std::none_of(s.begin(), s.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; });
  TG_CHECK(ValueError, !s.empty() && s.size() <= most && printable, "[gguf] got a ", what, " of ", s.size(),
           " bytes, expected 1 to ", most, " without control characters");
  TG_CHECK(ValueError, known.emplace(s).second, "[gguf] got the ", what, " ", s, " twice");
}

/// Returns the bytes of a tensor's blocks. ShapeError when its rows are not made of whole ones.
uint64_t size_of(std::string_view name, const std::vector<int64_t>& shape, const GgmlTypeInfo& info) {
  const int64_t row = shape.empty() ? 1 : shape.back();
  TG_CHECK(ShapeError, row % info.elements == 0, "[gguf] ", name, ": got rows of ", row, " elements in ", info.name,
           " blocks of ", info.elements);
  TG_CHECK(ShapeError, shape.size() <= kMaxGgufAxes, "[gguf] ", name, ": got ", shape.size(),
           " axes, expected at most ", kMaxGgufAxes);
  uint64_t bytes = static_cast<uint64_t>(info.bytes);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (size_t i = 0; i < shape.size(); i++) {
    const auto n = static_cast<uint64_t>(i + 1 == shape.size() ? row / info.elements : shape[i]);
    TG_CHECK(ShapeError, shape[i] >= 0 && n <= INT64_MAX / bytes, "[gguf] ", name, ": got an axis of ", shape[i]);
    bytes *= n;
  }
  return bytes;
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  TG_CHECK(ValueError, std::has_single_bit(alignment) && alignment <= kMaxGgufAlignment, "[gguf] got an alignment of ",
           alignment, ", expected a power of two up to ", kMaxGgufAlignment);
  if (alignment != 32) add("general.alignment", alignment);
  keys_.insert("general.alignment");
}

GgufWriter& GgufWriter::add(std::string_view key, const GgufValue& value) {
  check_label("key", key, kMaxGgufKeyBytes, keys_);
  put(metadata_, key);
  put(metadata_, static_cast<uint32_t>(value.index()));
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (std::is_same_v<T, bool>) put<uint8_t>(metadata_, v);
        else put(metadata_, v);
      },
      value);
  entries_++;
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, const std::vector<std::string>& values) {
  GgufArray a{GgufValueType::kString, values.size(), {}, {values.begin(), values.end()}, {}};
  return add(key, a);
}

GgufWriter::Item& GgufWriter::add_item(std::string_view name, std::vector<int64_t> shape, GgmlType type) {
  const uint64_t size = size_of(name, shape, ggml_type_info(type));
  check_label("name", name, kMaxGgufNameBytes, names_);
  items_.push_back({std::string(name), type, std::move(shape), {}, {}, size});
  return items_.back();
}

GgufWriter& GgufWriter::add_tensor(std::string_view name, const Tensor& values, std::optional<GgmlType> type) {
  TG_CHECK(ValueError, values.defined(), "[gguf] got an undefined tensor for ", name);
  const std::optional<GgmlType> native = native_ggml_type(values.dtype());
  TG_CHECK(DTypeError, native || type, "[gguf] got ", name, " of ", values.dtype(), ", a type the format has not");
  const GgmlType as = type.value_or(native.value_or(GgmlType::kF32));
  TG_CHECK(DTypeError, as == native || (values.dtype().is_float() && can_quantize(as)), "[gguf] got ", name, " of ",
           values.dtype(), ", which cannot be written as ", ggml_type_info(as).name);
  std::vector<int64_t> shape;
  for (const SInt& n : values.shape()) shape.push_back(n.value());
  add_item(name, std::move(shape), as).values = values.detach();
  return *this;
}

GgufWriter& GgufWriter::add_packed(std::string_view name, const std::vector<int64_t>& shape, GgmlType type,
                                   std::vector<uint8_t> bytes) {
  const uint64_t size = size_of(name, shape, ggml_type_info(type));
  TG_CHECK(ShapeError, size == bytes.size(), "[gguf] ", name, ": got ", bytes.size(), " bytes, expected ", size);
  add_item(name, shape, type).bytes = std::move(bytes);
  return *this;
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, items_.size());
  put<uint64_t>(out, entries_);
  out += metadata_;
  uint64_t at = 0;
  for (const Item& i : items_) {
    put(out, i.name);
    put(out, static_cast<uint32_t>(i.shape.size()));
    for (size_t a = i.shape.size(); a > 0; a--) put(out, static_cast<uint64_t>(i.shape[a - 1]));
    put(out, static_cast<uint32_t>(i.type));
    put(out, at);
    at += (i.size + alignment_ - 1) / alignment_ * alignment_;
  }
  return out;
}

void GgufWriter::save(const std::filesystem::path& path) const {
  std::string head = header();
  head.append((alignment_ - head.size() % alignment_) % alignment_, '\0');
  const std::vector<uint8_t> padding(alignment_);
  std::vector<std::vector<uint8_t>> packed;  // what had to be converted
  packed.reserve(items_.size());
  Tensors kept;
  std::vector<std::span<const uint8_t>> parts{{reinterpret_cast<const uint8_t*>(head.data()), head.size()}};
  for (const Item& i : items_) {
    std::span<const uint8_t> data = i.bytes;
    if (i.values.defined() && i.size) {
      const bool as_is = native_ggml_type(i.values.dtype()) == i.type;
      kept.push_back((as_is ? i.values : i.values.to_float()).contiguous().realize());
      const std::span<const std::byte> raw = kept.back().bytes();
      data = {reinterpret_cast<const uint8_t*>(raw.data()), raw.size()};
      if (!as_is) {
        packed.push_back(
            ggml_quantize({reinterpret_cast<const float*>(raw.data()), raw.size() / sizeof(float)}, i.type));
        data = packed.back();
        kept.pop_back();
      }
    }
    TG_ASSERT(data.size() == i.size, "size of ", i.name);
    parts.push_back(data);
    parts.push_back(std::span(padding).first((alignment_ - i.size % alignment_) % alignment_));
  }
  write_file_atomic(path, parts, "gguf_save");
}

}  // namespace tg::io
