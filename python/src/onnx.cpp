/// \file Models of ONNX files: what nn/onnx.py makes OnnxRunner of.
#include <nanobind/stl/function.h>

#include <array>

#include "bind.h"
#include "casters.h"
#include "host_memory.h"
#include "interrupt.h"
#include "tinygrad/onnx/captured_model.h"
#include "tinygrad/onnx/model.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/tensor_data.h"
#include "tinygrad/tensor/host_memory.h"

namespace tg::python {

namespace {

using onnx::Model, onnx::Value;

/// Names and texts in files need not be UTF-8.
nb::object text(std::string_view s) {
  return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "surrogateescape"));
}
std::string text_from(nb::handle h) {
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(h.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr()))};
}

/// Makes a map of a dict with keys and items that are numbers or texts. Integers among floats become floats.
onnx::ValueMap map_from(const nb::dict& d) {
  using Item = onnx::ValueMap::Item;
  onnx::ValueMap out;
  std::array<bool, 3> kinds{};  // by the place in Item
  for (const auto& [k, v] : d) {
    const Item item = PyUnicode_Check(v.ptr()) ? Item(text_from(v))
                      : PyLong_Check(v.ptr())  ? Item(nb::cast<int64_t>(v))
                                               : Item(nb::cast<double>(nb::float_(v)));
    kinds.at(item.index()) = true;
    if (PyUnicode_Check(k.ptr())) out.items.insert_or_assign(text_from(k), item);
    else out.items.insert_or_assign(nb::cast<int64_t>(nb::int_(k)), item);
  }
  TG_CHECK(ValueError, !kinds[2] || !(kinds[0] || kinds[1]), "[onnx] got a dict of texts and numbers");
  if (kinds[1])
    for (auto& [k, v] : out.items)
      if (const auto* whole = std::get_if<int64_t>(&v)) v = static_cast<double>(*whole);
  out.elem = kinds[2]                ? onnx::ElemType::kString
             : kinds[0] && !kinds[1] ? onnx::ElemType::kInt64
                                     : onnx::ElemType::kFloat;
  return out;
}
nb::dict dict_of(const onnx::ValueMap& m) {
  nb::dict out;
  const auto object = [](const auto& v) {
    return std::visit(
        [](const auto& x) -> nb::object {
          if constexpr (std::is_same_v<std::decay_t<decltype(x)>, std::string>) return text(x);
          else return nb::cast(x);
        },
        v);
  };
  for (const auto& [k, v] : m.items) out[object(k)] = object(v);
  return out;
}

/// A tensor, None, a list of values, a dict, or texts as (shape, list). `elem`: of a tensor that is stored wider.
Value value_from(nb::handle h) {
  if (h.is_none()) return {};
  if (nb::isinstance<Tensor>(h)) return nb::cast<Tensor>(h);
  if (PyList_Check(h.ptr())) {
    onnx::Sequence s;
    for (const nb::handle item : nb::borrow<nb::list>(h)) s.items.push_back(value_from(item));
    if (!s.items.empty()) s.elem = s.items[0].elem();
    return s;
  }
  if (PyDict_Check(h.ptr())) return map_from(nb::borrow<nb::dict>(h));
  const auto [shape, texts] = nb::cast<std::pair<std::vector<int64_t>, nb::list>>(h);
  std::vector<std::string> out;
  for (const nb::handle item : texts) out.push_back(text_from(item));
  return onnx::StringArray::of(shape, std::move(out));
}

/// The same the other way: a tensor comes with the name of its element type.
nb::object object_of(const Value& v, const std::string& device) {
  if (v.is_none()) return nb::none();
  if (const onnx::Sequence* s = v.sequence()) {
    nb::list out;
    for (const Value& item : s->items) out.append(object_of(item, device));
    return out;
  }
  if (const onnx::StringArray* s = v.strings()) {
    nb::list out;
    for (const std::string& t : s->texts) out.append(text(t));
    return nb::make_tuple(nb::cast(s->shape), out);
  }
  if (const onnx::ValueMap* m = v.map()) return dict_of(*m);
  return nb::make_tuple(v.as_tensor(device), onnx::elem_name(v.elem()));
}

/// (shape or None, element type as a number, is_optional, is_sequence)
nb::object type_object(const onnx::TypeInfo& type) {
  const onnx::TypeInfo* t = &type;
  bool optional = false, sequence = false;
  for (; t->inner; t = t->inner.get()) {
    optional |= t->kind == onnx::TypeInfo::kOptional;
    sequence |= t->kind == onnx::TypeInfo::kSequence;
  }
  nb::object shape = nb::none();
  if (t->shape) {
    nb::list sizes;
    for (const onnx::Dimension& d : *t->shape) sizes.append(d.value ? nb::object(nb::int_(*d.value)) : text(d.name));
    shape = nb::tuple(sizes);
  }
  return nb::make_tuple(shape, static_cast<int>(t->elem), optional, sequence);
}

nb::dict infos(const std::vector<onnx::ValueInfo>& values) {
  nb::dict out;
  for (const onnx::ValueInfo& v : values) out[text(v.name)] = type_object(v.type);
  return out;
}

nb::object constant_object(const onnx::TensorProto& t) {
  if (t.type == onnx::ElemType::kString) {
    nb::list out;
    for (const std::string_view s : t.strings) out.append(text(s));
    return out;
  }
  return nb::cast(onnx::tensor_of(t));
}

nb::object attribute_object(const onnx::Attribute& a) {
  using A = onnx::Attribute;
  switch (a.type) {
    case A::kFloat: return nb::float_(static_cast<double>(a.f));
    case A::kInt: return nb::int_(a.i);
    case A::kString: return text(a.s);
    case A::kFloats: return nb::tuple(nb::cast(a.floats));
    case A::kInts: return nb::tuple(nb::cast(a.ints));
    case A::kTensor: return a.tensor ? constant_object(*a.tensor) : nb::none();
    case A::kGraph: return a.graph ? text(a.graph->name) : nb::none();
    case A::kStrings: {
      nb::list out;
      for (const std::string_view s : a.strings) out.append(text(s));
      return nb::tuple(out);
    }
    default: return nb::none();
  }
}

nb::list texts(const std::vector<std::string_view>& v) {
  nb::list out;
  for (const std::string_view s : v) out.append(text(s));
  return out;
}

/// (op, domain, version, inputs, outputs, attributes) of each node.
nb::list nodes(const Model& m) {
  nb::list out;
  for (const onnx::Node& n : m.proto().graph.nodes) {
    int64_t version = 1;
    for (const auto& [domain, v] : m.proto().opsets)
      if (domain == n.domain) version = v;
    nb::dict attributes;
    for (const onnx::Attribute& a : n.attributes) attributes[text(a.name)] = attribute_object(a);
    out.append(nb::make_tuple(text(n.op), text(n.domain), version, nb::tuple(texts(n.inputs)),
                              nb::tuple(texts(n.outputs)), attributes));
  }
  return out;
}

nb::dict initializers(const Model& m) {
  nb::dict out;
  for (const onnx::TensorProto& t : m.proto().graph.initializers) out[text(t.name)] = constant_object(t);
  return out;
}

nb::dict run(const Model& m, const nb::dict& inputs, const std::string& device) {
  Model::NamedValues given;
  for (const auto& [name, v] : inputs) given.emplace_back(text_from(name), value_from(v));
  Model::NamedValues got;
  {
    Unlocked work;
    got = m.run(given);
  }
  nb::dict out;
  for (const auto& [name, v] : got) out[text(name)] = object_of(v, device);
  return out;
}

nb::dict run_captured(onnx::CapturedModel& m, const nb::dict& inputs) {
  std::map<std::string, Tensor> given, got;
  for (const auto& [name, t] : inputs) given.emplace(text_from(name), nb::cast<Tensor>(t));
  {
    Unlocked work;
    got = m(given);
  }
  nb::dict out;
  for (const onnx::ValueInfo& v : m.model().outputs()) out[text(v.name)] = got.at(std::string(v.name));
  return out;
}

onnx::ModelOptions options(const std::string& device, std::optional<DType> dtype, bool trainable) {
  return {.device = device, .float_type = dtype, .trainable = trainable};
}

}  // namespace

void bind_onnx(nb::module_& m) {
  nb::class_<Model>(m, "OnnxModel")
      .def_static(
          "from_file",
          [](const std::string& path, const DeviceName& device, std::optional<DType> dtype, bool trainable) {
            Unlocked work;
            return Model::from_file(path, options(device.name, dtype, trainable));
          },
          "path"_a, "device"_a.none(), "dtype"_a.none(), "trainable"_a)
      .def_static(
          "from_tensor",
          [](const Tensor& t, const DeviceName& device, std::optional<DType> dtype, bool trainable,
             const std::string& folder) {
            TG_CHECK(ValueError, t.dtype() == dtypes::uint8 && t.ndim() == 1, "[onnx] got a tensor of shape ",
                     t.shape(), " and type ", t.dtype(), ", expected the bytes of a model: uint8 of one axis");
            Unlocked work;
            return Model::from_bytes(host_bytes(t), options(device.name, dtype, trainable), folder);
          },
          "bytes"_a, "device"_a.none(), "dtype"_a.none(), "trainable"_a, "folder"_a)
      .def_static(
          "from_buffer",
          [](nb::handle bytes, const DeviceName& device, std::optional<DType> dtype, bool trainable) {
            HostBytes memory = memory_of_object(bytes);
            Unlocked work;
            return Model::from_bytes(std::move(memory), options(device.name, dtype, trainable));
          },
          "bytes"_a, "device"_a.none(), "dtype"_a.none(), "trainable"_a)
      .def("inputs", [](const Model& x) { return infos(x.inputs()); })
      .def("outputs", [](const Model& x) { return infos(x.outputs()); })
      .def("nodes", &nodes)
      .def("initializers", &initializers)
      .def("metadata",
           [](const Model& x) {
             nb::dict out;
             for (const auto& [key, v] : x.proto().metadata) out[text(key)] = text(v);
             return out;
           })
      .def("parameters",
           [](const Model& x) {
             nb::dict out;
             for (const auto& [name, t] : x.parameters()) out[text(name)] = t;
             return out;
           })
      .def(
          "to", [](const Model& x, const DeviceName& device) { return x.to(device.name); }, "device"_a.none())
      .def("debug", &Model::debug, "trace"_a, "limit"_a)
      .def("run", &run, "inputs"_a, "device"_a);
  nb::class_<onnx::CapturedModel>(m, "OnnxCapturedModel")
      .def(
          "__init__",
          [](onnx::CapturedModel* x, const Model& model, const nb::dict& sizes) {
            std::map<std::string, onnx::SizeRange> ranges;
            for (const auto& [name, r] : sizes) {
              const auto [least, most] = nb::cast<std::pair<int64_t, int64_t>>(r);
              ranges.emplace(text_from(name), onnx::SizeRange{least, most});
            }
            new (x) onnx::CapturedModel(model, std::move(ranges));
          },
          "model"_a, "sizes"_a)
      .def("run", &run_captured, "inputs"_a);
  // The memory of an array as a tensor, which is not copied.
  m.def(
      "onnx_tensor_over",
      [](nb::handle array, DType dtype, const Shape& shape) {
        return from_host_bytes(memory_of_object(array), shape, dtype);
      },
      "array"_a, "dtype"_a, "shape"_a);
  m.def("onnx_operators", [] {
    nb::list out;
    for (const onnx::OperatorRow& row : onnx::all_operators())
      out.append(nb::make_tuple(text(row.domain), text(row.name), row.since));
    return out;
  });
}

}  // namespace tg::python
