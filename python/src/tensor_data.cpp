/// \file Values out of tensors: realize, item, tolist, numpy, memoryviews (the buffer protocol), assign and devices.
#include <cstring>

#include "bind.h"
#include "casters.h"
#include "interrupt.h"
#include "tensor_input.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/eval.h"

namespace tg::python {

namespace {

/// Format of struct and memoryview; types Python does not know have none.
const char* format_of(DType d) {
  // clang-format off
  switch (strong_dtype(d).id()) {
    case DTypeId::kBool: return "?";
    case DTypeId::kInt8: return "b";
    case DTypeId::kUInt8: return "B";
    case DTypeId::kInt16: return "h";
    case DTypeId::kUInt16: return "H";
    case DTypeId::kInt32: return "i";
    case DTypeId::kUInt32: return "I";
    case DTypeId::kInt64: return "q";
    case DTypeId::kUInt64: return "Q";
    case DTypeId::kFloat16: return "e";
    case DTypeId::kFloat32: return "f";
    case DTypeId::kFloat64: return "d";
    default: return nullptr;
  }
  // clang-format on
}

std::span<const std::byte> bytes_of(const Tensor& t) {
  Unlocked work;
  return t.bytes();
}

/// In a type Python and NumPy have.
Tensor native(const Tensor& t) { return format_of(t.dtype()) ? t : t.cast(dtypes::float32); }

/// What an exported buffer needs as long as it lives.
struct Exported {
  Tensor tensor;
  std::shared_ptr<void> keep;
  std::vector<Py_ssize_t> shape, strides;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  try {
    const Tensor& t = nb::cast<const Tensor&>(nb::handle(self));
    const char* format = format_of(t.dtype());
    if (!format) {
      PyErr_SetString(PyExc_TypeError, str("no buffer format for ", t.dtype(), ": cast to float32 first").c_str());
      return -1;
    }
    auto e = std::make_unique<Exported>();
    e->tensor = t;
    std::span<const std::byte> bytes = bytes_of(t);
    int64_t size = t.element_size(), stride = size;
    for (int64_t d : t.shape().ints()) e->shape.push_back(d);
    e->strides.resize(e->shape.size());
    for (size_t i = e->shape.size(); i-- > 0;) {
      e->strides[i] = stride;
      stride *= e->shape[i];
    }
    static char empty;
    view->buf = bytes.empty() ? static_cast<void*>(&empty) : const_cast<std::byte*>(bytes.data());
    view->obj = self;
    Py_INCREF(self);
    view->len = static_cast<Py_ssize_t>(bytes.size());
    view->itemsize = size;
    view->readonly = 0;
    view->ndim = static_cast<int>(e->shape.size());
    view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
    view->shape = e->shape.data();
    view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? e->strides.data() : nullptr;
    view->suboffsets = nullptr;
    view->internal = e.release();
    return 0;
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_BufferError, e.what());
    return -1;
  }
}
void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Exported*>(view->internal); }

nb::object to_list(const std::byte*& p, DType d, size_t size, const std::vector<int64_t>& shape, size_t axis) {
  if (axis == shape.size()) {
    nb::object v = to_python(load_const(p, d), d);
    p += size;
    return v;
  }
  nb::object list = nb::steal(PyList_New(shape[axis]));
  for (int64_t i = 0; i < shape[axis]; i++)
    PyList_SET_ITEM(list.ptr(), i, to_list(p, d, size, shape, axis + 1).release().ptr());
  return list;
}

nb::object to_numpy(const Tensor& tensor) {
  Tensor t = native(with_values(tensor));
  DType d = t.stored_dtype();
  std::span<const std::byte> bytes = bytes_of(t);
  nb::object a = nb::module_::import_("numpy").attr("empty")(to_python(t.shape()), std::string(d.name()));
  Py_buffer view;
  if (PyObject_GetBuffer(a.ptr(), &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
  if (!bytes.empty()) std::memcpy(view.buf, bytes.data(), bytes.size());
  PyBuffer_Release(&view);
  return a;
}

Tensor value_of(const nb::object& x, const Tensor& like) {
  if (std::optional<Scalar> v = scalar_from(x)) return Tensor::scalar(*v, like.stored_dtype());
  if (std::optional<Tensor> t = operand_from(x)) return *t;
  return tensor_from(x, {.dtype = like.dtype(), .device = like.device().starts_with("DISK") ? "" : like.device()});
}

}  // namespace

PyType_Slot tensor_buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                     {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                     {0, nullptr}};

void bind_tensor_data(TensorClass& c) {
  c.def(
      "realize",
      [](nb::object self, nb::args others, bool) {
        Tensors all{nb::cast<Tensor>(self)};
        for (nb::handle h : others) all.push_back(nb::cast<Tensor>(h));
        {
          Unlocked work;
          realize(all);
        }
        return self;
      },
      "lst"_a, "do_update_stats"_a = true);
  c.def_prop_ro("is_realized", &Tensor::is_realized);
  c.def("item", [](const Tensor& tensor) {
    Tensor t = with_values(tensor);
    TG_CHECK(ShapeError, t.numel() == 1, "[item] got shape ", t.shape(),
             ", expected a tensor with one element: use tolist() or numpy()");
    DType d = t.stored_dtype();
    return to_python(load_const(bytes_of(t).data(), d), d);
  });
  c.def("tolist", [](const Tensor& tensor) {
    Tensor t = with_values(tensor);
    DType d = t.stored_dtype();
    std::span<const std::byte> bytes = bytes_of(t);
    const std::byte* p = bytes.data();
    return to_list(p, d, static_cast<size_t>(t.element_size()), t.shape().ints(), 0);
  });
  c.def("numpy", &to_numpy);
  c.def(
      "__array__",
      [](const Tensor& t, nb::object dtype, nb::object) {
        nb::object a = to_numpy(t);
        return dtype.is_none() ? a : a.attr("astype")(dtype);
      },
      "dtype"_a = nb::none(), "copy"_a = nb::none());
  c.attr("__array_priority__") = 1000;  // np.float32(2) * tensor asks the tensor
  auto number = [](const Tensor& tensor, const char* to) {
    Tensor t = with_values(tensor);
    if (t.numel() != 1)
      throw nb::type_error(
          str("[", to, "] got shape ", t.shape(), ", expected a tensor with one element: use tolist() or numpy()")
              .c_str());
    DType d = t.stored_dtype();
    return to_python(load_const(bytes_of(t).data(), d), d);
  };
  c.def("__float__", [number](const Tensor& t) { return nb::steal(PyNumber_Float(number(t, "float").ptr())); });
  c.def("__int__", [number](const Tensor& t) { return nb::steal(PyNumber_Long(number(t, "int").ptr())); });
  c.def("data", [](const Tensor& tensor) {
    Tensor t = with_values(tensor);
    if (t.numel() == 0) {  // a memoryview with a size of 0 cannot be read
      nb::object none = nb::steal(PyMemoryView_FromObject(nb::bytes("", 0).ptr()));
      return none.attr("cast")(format_of(native(t).dtype()));
    }
    const DType d = t.stored_dtype();
    if (!format_of(d)) throw nb::type_error(str("no buffer format for ", d, ": cast to float32 first").c_str());
    // A copy: later writes to either do not show in the other.
    nb::object copy =
        nb::cast(Tensor::from_bytes(bytes_of(t), d, t.shape(), {.dtype = {}, .device = "CPU", .requires_grad = {}}));
    PyObject* v = PyMemoryView_FromObject(copy.ptr());
    if (!v) throw nb::python_error();
    return nb::steal(v);
  });
  c.def(
      "assign",
      [](nb::object self, nb::object x) {
        Tensor& t = nb::cast<Tensor&>(self);
        t.assign(value_of(x, t));
        return self;
      },
      "x"_a);
  c.def(
      "replace",
      [](nb::object self, const Tensor& x) {
        nb::cast<Tensor&>(self).replace(x);
        return self;
      },
      "x"_a);
  c.def("detach", &Tensor::detach);
  c.def("contiguous", [](const Tensor& t, nb::kwargs) { return t.contiguous(); });
  c.def("contiguous_backward", &Tensor::contiguous_backward);
  c.def("to", [](const Tensor& t, const DeviceName& d) { return t.to(d.name); }, "device"_a.none());
  c.def(
      "to_",
      [](nb::object self, const DeviceName& d) {
        nb::cast<Tensor&>(self).to_(d.name);
        return self;
      },
      "device"_a.none());
  c.def("clone", [](const Tensor& t, const DeviceName& d) { return t.clone(d.name); }, "device"_a = nb::none());
  c.def("cast", nb::overload_cast<DType>(&Tensor::cast, nb::const_), "dtype"_a);
  c.def("bitcast", &Tensor::bitcast, "dtype"_a);
  c.def("float", &Tensor::to_float);
  c.def("half", &Tensor::half);
  c.def("bfloat16", &Tensor::bfloat16);
  c.def("double", &Tensor::to_double);
  c.def("long", &Tensor::to_long);
  c.def("short", &Tensor::to_short);
  c.def("int", &Tensor::to_int);
  c.def("bool", &Tensor::to_bool);
}

}  // namespace tg::python
