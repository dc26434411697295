/// \file GGUF files and GGML's blocks.
#include "tinygrad/io/gguf.h"

#include "bind.h"
#include "casters.h"
#include "interrupt.h"
#include "tinygrad/io/ggml_dequantize.h"
#include "tinygrad/io/ggml_quantize.h"
#include "tinygrad/io/gguf_writer.h"

namespace tg::python {

namespace {

nb::object text(std::string_view s) {
  PyObject* o = PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace");
  if (!o) throw nb::python_error();
  return nb::steal(o);
}

template <class T> void append_numbers(nb::list& to, const io::GgufArray& a) {
  for (uint64_t i = 0; i < a.count; i++) {
    T v;
    std::memcpy(&v, a.numbers.data() + i * sizeof v, sizeof v);
    to.append(v);
  }
}
/// Returns a list; arrays are at most kMaxGgufArrayDepth deep.
nb::list to_list(const io::GgufArray& a) {
  nb::list out;
  using enum io::GgufValueType;
  switch (a.type) {
    case kUint8: append_numbers<uint8_t>(out, a); break;
    case kInt8: append_numbers<int8_t>(out, a); break;
    case kUint16: append_numbers<uint16_t>(out, a); break;
    case kInt16: append_numbers<int16_t>(out, a); break;
    case kUint32: append_numbers<uint32_t>(out, a); break;
    case kInt32: append_numbers<int32_t>(out, a); break;
    case kFloat32: append_numbers<float>(out, a); break;
    case kBool: append_numbers<bool>(out, a); break;
    case kUint64: append_numbers<uint64_t>(out, a); break;
    case kInt64: append_numbers<int64_t>(out, a); break;
    case kFloat64: append_numbers<double>(out, a); break;
    case kString:
      for (std::string_view s : a.strings) out.append(text(s));
      break;
    case kArray:
      for (const io::GgufArray& inner : a.arrays) out.append(to_list(inner));
      break;
  }
  return out;
}

/// Returns (metadata, tensors) as dictionaries.
nb::tuple contents(const io::GgufFile& file, const std::string& device) {
  nb::dict pairs, tensors;
  for (const io::GgufMetadata::Entry& e : file.metadata().entries())
    pairs[text(e.key)] = std::visit(
        []<class T>(const T& v) -> nb::object {
          if constexpr (std::is_same_v<T, std::string_view>) return text(v);
          else if constexpr (std::is_same_v<T, io::GgufArray>) return to_list(v);
          else return nb::cast(v);
        },
        e.value);
  for (const io::GgufTensor& t : file.tensors()) tensors[text(t.name)] = file.tensor(t, device);
  return nb::make_tuple(pairs, tensors);
}

template <class T> T number(nb::handle value) {
  T out;
  if (!nb::try_cast<T>(value, out))
    throw ValueError(str("[gguf] got ", nb::repr(value).c_str(), ", which the type of the value cannot hold"));
  return out;
}
template <class T> void add_number(io::GgufWriter& w, const std::string& key, nb::handle value, bool array) {
  if (!array) {
    w.add(key, io::GgufValue(number<T>(value)));
    return;
  }
  std::vector<T> all;
  for (nb::handle v : value) all.push_back(number<T>(v));
  w.add(key, all);
}
/// Adds a value of type number `type`, or a list of such values.
void add_value(io::GgufWriter& w, const std::string& key, uint32_t type, nb::handle value) {
  const bool array = nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value);
  using enum io::GgufValueType;
  switch (static_cast<io::GgufValueType>(type)) {
    case kUint8: return add_number<uint8_t>(w, key, value, array);
    case kInt8: return add_number<int8_t>(w, key, value, array);
    case kUint16: return add_number<uint16_t>(w, key, value, array);
    case kInt16: return add_number<int16_t>(w, key, value, array);
    case kUint32: return add_number<uint32_t>(w, key, value, array);
    case kInt32: return add_number<int32_t>(w, key, value, array);
    case kFloat32: return add_number<float>(w, key, value, array);
    case kBool: return add_number<bool>(w, key, value, array);
    case kUint64: return add_number<uint64_t>(w, key, value, array);
    case kInt64: return add_number<int64_t>(w, key, value, array);
    case kFloat64: return add_number<double>(w, key, value, array);
    case kString:
      if (array) w.add(key, nb::cast<std::vector<std::string>>(value));
      else w.add(key, io::GgufValue(std::string_view(nb::cast<std::string>(value))));
      return;
    case kArray: break;
  }
  throw ValueError(str("[gguf] got the type ", type, " of values, expected the type of a number, bool or string"));
}

using NamedTensor = std::tuple<std::string, Tensor, std::optional<uint32_t>>;

/// Adds values, or blocks that are packed already: bytes of shape (..., bytes of a row).
void add_tensor(io::GgufWriter& w, const std::string& name, const Tensor& t, std::optional<uint32_t> type) {
  const std::optional<io::GgmlType> as = type ? std::optional(static_cast<io::GgmlType>(*type)) : std::nullopt;
  if (!as || t.dtype() != dtypes::uint8 || t.ndim() == 0) {
    w.add_tensor(name, t, as);
    return;
  }
  const io::GgmlTypeInfo& info = io::ggml_type_info(*as);
  TG_CHECK(ShapeError, t.shape(-1) % info.bytes == 0, "[gguf] ", name, ": got rows of ", t.shape(-1), " bytes in ",
           info.name, " blocks of ", info.bytes);
  std::vector<int64_t> shape;
  for (const SInt& n : t.shape()) shape.push_back(n.value());
  shape.back() = shape.back() / info.bytes * info.elements;
  const std::vector<uint8_t> bytes = t.to("CPU").to_vector<uint8_t>();
  w.add_packed(name, shape, *as, bytes);
}

/// Returns the blocks of a tensor's rows: (..., bytes of a row).
Tensor quantized(const Tensor& t, uint32_t type) {
  const auto as = static_cast<io::GgmlType>(type);
  const io::GgmlTypeInfo& info = io::ggml_type_info(as);
  const int64_t row = t.ndim() ? t.shape(-1) : 1;
  TG_CHECK(ShapeError, row % info.elements == 0, "[ggml_quantize] got rows of ", row, " elements in ", info.name,
           " blocks of ", info.elements);
  const Tensor values = t.to("CPU").to_float().contiguous().realize();
  std::vector<int64_t> shape;
  for (const SInt& n : t.shape()) shape.push_back(n.value());
  if (shape.empty()) shape.push_back(1);
  shape.back() = info.size(row);
  const std::vector<uint8_t> bytes = io::ggml_quantize(values.data<float>(), as);
  return Tensor::from_bytes(std::as_bytes(std::span(bytes)), dtypes::uint8, Shape(std::span<const int64_t>(shape)));
}

}  // namespace

void bind_gguf(nb::module_& m) {
  m.def("gguf_load", [](const std::string& path, const DeviceName& device) {
    const io::GgufFile file = io::GgufFile::open(path);
    return contents(file, device.name);
  });
  m.def("gguf_parse", [](const Tensor& bytes) {
    return contents(io::GgufFile::from_tensor(bytes), bytes.device().starts_with("DISK") ? "CPU" : bytes.device());
  });
  m.def("gguf_save", [](const std::string& path, const std::vector<NamedTensor>& tensors,
                        const std::vector<std::tuple<std::string, uint32_t, nb::object>>& pairs, uint32_t alignment) {
    io::GgufWriter w(alignment);
    for (const auto& [key, type, value] : pairs) add_value(w, key, type, value);
    for (const auto& [name, t, type] : tensors) add_tensor(w, name, t, type);
    Unlocked work;
    w.save(path);
  });
  m.def("ggml_data_to_tensor", [](const Tensor& t, int64_t n, uint32_t type) {
    return io::ggml_data_to_tensor(t, n, static_cast<io::GgmlType>(type));
  });
  m.def("ggml_quantize", quantized);
  // [(number, name, elements of a block, bytes of a block)]
  m.def("ggml_types", [] {
    nb::list out;
    for (const io::GgmlTypeInfo& t : io::ggml_types())
      out.append(nb::make_tuple(static_cast<uint32_t>(t.type), std::string(t.name), t.elements, t.bytes));
    return out;
  });
}

}  // namespace tg::python
