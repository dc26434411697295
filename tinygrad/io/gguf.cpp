/// \file The parser of GGUF files.
#include "tinygrad/io/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <unordered_set>

#include "tinygrad/base/error.h"

namespace tg::io {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr std::string_view kCutOff = ": the file is cut off or damaged";
constexpr uint64_t kNoStringIsShorter = 8, kNoArrayIsShorter = 12;  // bytes in the file

/// Returns the bytes of a number; 0: strings and arrays.
uint64_t number_bytes(GgufValueType type) {
  using enum GgufValueType;
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool: return 1;
    case kUint16:
    case kInt16: return 2;
    case kUint32:
    case kInt32:
    case kFloat32: return 4;
    case kUint64:
    case kInt64:
    case kFloat64: return 8;
    case kString:
    case kArray: return 0;
  }
  return 0;
}

bool is_printable(std::string_view s) {
  return std::none_of(s.begin(), s.end(), [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

/// Reads the fields of a header one after the other.
class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  Gguf parse() {
    Gguf out;
    out.metadata.file_ = std::string(name_);
    out.version = version();
    const uint64_t tensors = count("count of tensors", kMaxGgufTensors, 8 + 4 + 4 + 8);
    const uint64_t entries = count("count of metadata", kMaxGgufEntries, 8 + 4 + 1);
    read_metadata(out.metadata, entries);
    out.alignment = alignment(out.metadata);
    out.tensors.reserve(tensors);
    std::unordered_set<std::string_view> names;
    for (uint64_t i = 0; i < tensors; i++) out.tensors.push_back(tensor(names));
    out.data_start = (at_ + out.alignment - 1) / out.alignment * out.alignment;
    if (tensors == 0) out.data_start = std::min<uint64_t>(out.data_start, bytes_.size());
    place(out);
    return out;
  }

 private:
  template <class... A> [[noreturn]] void fail(uint64_t at, std::string_view field, const A&... what) const {
    throw FormatError(str("[gguf] ", name_, ": byte ", at, " (", field, "): ", what...));
  }

  std::span<const uint8_t> take(uint64_t n, std::string_view field) {
    if (n > left()) fail(at_, field, "got ", left(), " bytes, expected ", n, ": the file is cut off");
    at_ += n;
    return bytes_.subspan(at_ - n, n);
  }
  template <class T> T number(std::string_view field) {
    T v;
    std::memcpy(&v, take(sizeof v, field).data(), sizeof v);
    return v;
  }
  uint64_t left() const { return bytes_.size() - at_; }

  std::string_view string(std::string_view field, uint64_t most = UINT64_MAX) {
    const uint64_t at = at_, n = number<uint64_t>(field);
    if (n > left() || n > most)
      fail(at, field, "got a length of ", n, " bytes, expected at most ", std::min(left(), most),
           n > left() ? kCutOff : std::string_view());
    const std::span<const uint8_t> s = take(n, field);
    return {reinterpret_cast<const char*>(s.data()), s.size()};
  }
  /// Reads a key or a name: it stands in messages.
  std::string_view label(std::string_view field, uint64_t most) {
    const uint64_t at = at_;
    const std::string_view s = string(field, most);
    if (s.empty() || !is_printable(s)) fail(at, field, "got an empty one or one with control characters");
    return s;
  }

  uint32_t version() {
    if (left() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) fail(0, "magic", "expected GGUF: it is no GGUF file");
    at_ = 4;
    const auto v = number<uint32_t>("version");
    if (v != 0 && (v & 0xffff) == 0) fail(4, "version", "the file is big endian, expected little endian");
    if (v != 2 && v != 3) fail(4, "version", "got ", v, ", expected 2 or 3");
    return v;
  }
  /// Reads how many things of at least `bytes` follow.
  uint64_t count(std::string_view field, uint64_t most, uint64_t bytes) {
    const uint64_t at = at_, n = number<uint64_t>(field);
    if (n > most || n > left() / bytes)
      fail(at, field, "got ", n, ", expected at most ", std::min(most, left() / bytes),
           n > left() / bytes ? kCutOff : std::string_view());
    return n;
  }

  void read_metadata(GgufMetadata& m, uint64_t entries) {
    m.entries_.reserve(entries);
    m.index_.reserve(entries);
    for (uint64_t i = 0; i < entries; i++) {
      const uint64_t at = at_;
      const std::string_view key = label("key of metadata", kMaxGgufKeyBytes);
      if (!m.index_.emplace(key, m.entries_.size()).second) fail(at, key, "the key stands twice");
      const GgufValueType type = value_type(key);
      m.entries_.push_back({key, at, value(type, key)});
    }
  }
  GgufValueType value_type(std::string_view field) {
    const uint64_t at = at_;
    const auto type = number<uint32_t>(field);
    if (type > static_cast<uint32_t>(GgufValueType::kFloat64))
      fail(at, field, "got the type ", type, " of values, expected at most 12");
    return static_cast<GgufValueType>(type);
  }
  GgufValue value(GgufValueType type, std::string_view key) {
    using enum GgufValueType;
    switch (type) {
      case kUint8: return number<uint8_t>(key);
      case kInt8: return number<int8_t>(key);
      case kUint16: return number<uint16_t>(key);
      case kInt16: return number<int16_t>(key);
      case kUint32: return number<uint32_t>(key);
      case kInt32: return number<int32_t>(key);
      case kFloat32: return number<float>(key);
      case kBool: return boolean(key);
      case kString: return string(key);
      case kArray: return array(key);
      case kUint64: return number<uint64_t>(key);
      case kInt64: return number<int64_t>(key);
      case kFloat64: return number<double>(key);
    }
    fail(at_, key, "unknown type");
  }
  bool boolean(std::string_view key) {
    const uint64_t at = at_;
    const auto v = number<uint8_t>(key);
    if (v > 1) fail(at, key, "got the bool ", int{v}, ", expected 0 or 1");
    return v != 0;
  }

  /// Reads an array; those within it are on a stack of our own.
  GgufArray array(std::string_view key) {
    GgufArray out;
    array_contents(out, key);
    std::vector<GgufArray*> open;
    if (out.type == GgufValueType::kArray) open.push_back(&out);
    while (!open.empty()) {
      GgufArray& a = *open.back();
      if (a.arrays.size() == a.count) {
        open.pop_back();
        continue;
      }
      GgufArray& inner = a.arrays.emplace_back();  // `a` grows again only when `inner` is complete
      array_contents(inner, key);
      if (inner.type != GgufValueType::kArray) continue;
      if (open.size() + 1 >= kMaxGgufArrayDepth) fail(at_, key, "got arrays more than ", kMaxGgufArrayDepth, " deep");
      open.push_back(&inner);
    }
    return out;
  }
  /// Reads type, count and, unless they are arrays, elements.
  void array_contents(GgufArray& a, std::string_view key) {
    a.type = value_type(key);
    const uint64_t at = at_, size = number_bytes(a.type);
    const bool strings = a.type == GgufValueType::kString;
    a.count = count(key, UINT64_MAX, size ? size : strings ? kNoStringIsShorter : kNoArrayIsShorter);
    if (size) a.numbers = take(a.count * size, key);  // no overflow: count() compared the quotient
    if (a.type == GgufValueType::kBool)
      for (size_t i = 0; i < a.numbers.size(); i++)
        if (a.numbers[i] > 1) fail(at + 8 + i, key, "got the bool ", int{a.numbers[i]}, ", expected 0 or 1");
    if (!strings) return;
    a.strings.reserve(a.count);
    for (uint64_t i = 0; i < a.count; i++) a.strings.push_back(string(key));
  }

  uint64_t alignment(const GgufMetadata& m) const {
    const GgufMetadata::Entry* e = m.find("general.alignment");
    if (!e) return kDefaultAlignment;
    const auto* n = std::get_if<uint32_t>(&e->value);
    if (!n || !std::has_single_bit(*n) || *n > kMaxGgufAlignment)
      fail(e->offset, e->key, "got ", n ? str(*n) : "another type than uint32", ", expected a power of two up to ",
           kMaxGgufAlignment);
    return *n;
  }

  GgufTensor tensor(std::unordered_set<std::string_view>& names) {
    const uint64_t at = at_;
    const std::string_view name = label("name of a tensor", kMaxGgufNameBytes);
    if (!names.insert(name).second) fail(at, name, "the tensor stands twice");
    GgufTensor t{std::string(name), {}, shape(name), 0, 0};
    const uint64_t type_at = at_;
    const auto type = number<uint32_t>(name);
    const GgmlTypeInfo* info = find_ggml_type(type);
    if (!info) fail(type_at, name, "got the type ", type, " of tensors, which is unknown");
    t.type = info->type;
    const int64_t row = t.shape.empty() ? 1 : t.shape.back();
    if (row % info->elements)
      fail(type_at, name, "got rows of ", row, " elements in ", info->name, " blocks of ", info->elements);
    t.bytes = data_bytes(t.shape, *info, type_at, name);
    const uint64_t offset_at = at_;
    t.offset = number<uint64_t>(name);
    if (t.offset > bytes_.size())
      fail(offset_at, name, "got the offset ", t.offset, " in a file of ", bytes_.size(), " bytes", kCutOff);
    return t;
  }
  std::vector<int64_t> shape(std::string_view name) {
    const uint64_t at = at_;
    const auto axes = number<uint32_t>(name);
    if (axes > kMaxGgufAxes) fail(at, name, "got ", axes, " axes, expected at most ", kMaxGgufAxes);
    std::vector<int64_t> out(axes);
    for (size_t i = axes; i > 0; i--) {
      const uint64_t size_at = at_, n = number<uint64_t>(name);
      if (n > INT64_MAX) fail(size_at, name, "got an axis of ", n);
      out[i - 1] = static_cast<int64_t>(n);
    }
    return out;
  }
  /// Returns the size of the data, which fits the file.
  uint64_t data_bytes(const std::vector<int64_t>& shape, const GgmlTypeInfo& info, uint64_t at,
                      std::string_view name) const {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
      int64_t others = 1;  // of the axes that are not empty: shapes are multiplied from any side
      for (const int64_t n : shape) {
        if (n > INT64_MAX / others) fail(at, name, "got an empty shape of axes too large to multiply");
        others *= std::max<int64_t>(n, 1);
      }
      return 0;
    }
    uint64_t bytes = static_cast<uint64_t>(info.bytes);
    for (size_t i = 0; i < shape.size(); i++) {
      const uint64_t n = static_cast<uint64_t>(i + 1 == shape.size() ? shape[i] / info.elements : shape[i]);
      if (n > bytes_.size() / bytes)
        fail(at, name, "got a shape of more bytes than the ", bytes_.size(), " of the file", kCutOff);
      bytes *= n;
    }
    return bytes;
  }

  /// Makes offsets absolute, and checks that data lies inside and is not shared.
  void place(Gguf& g) const {
    if (g.tensors.empty()) return;
    if (g.data_start > bytes_.size()) fail(at_, "data", "the file ends before the data: the file is cut off");
    std::vector<const GgufTensor*> order;
    for (GgufTensor& t : g.tensors) {
      if (t.offset % g.alignment)
        fail(g.data_start, t.name, "got the offset ", t.offset, ", expected a multiple of ", g.alignment);
      t.offset += g.data_start;  // no overflow: both are sizes of the file
      if (t.offset > bytes_.size() || t.bytes > bytes_.size() - t.offset)
        fail(g.data_start, t.name, "takes ", t.bytes, " bytes from ", t.offset, " on in a file of ", bytes_.size(),
             ": the file is cut off");
      if (t.bytes) order.push_back(&t);
    }
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); i++)
      if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
        fail(order[i]->offset, order[i]->name, "shares bytes with ", order[i - 1]->name);
  }

  std::span<const uint8_t> bytes_;
  std::string_view name_;
  uint64_t at_ = 0;
};

Gguf parse_gguf(std::span<const uint8_t> bytes, std::string_view name) { return GgufParser(bytes, name).parse(); }

int64_t GgufTensor::numel() const {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

}  // namespace tg::io
