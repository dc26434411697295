/// \file Values out of tensors: realize, item, tolist, numpy, memoryviews, assign and devices.
#include <cstring>

#include "bind.h"
#include "casters.h"
#include "host_memory.h"
#include "interrupt.h"
#include "tensor_input.h"
#include "tinygrad/tensor/host_memory.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/eval.h"

namespace tg::python {

namespace {

/// In a type Python and NumPy have.
Tensor native(const Tensor& t) { return buffer_format(t.dtype()) ? t : t.cast(dtypes::float32); }

/// A consistent copy of the elements.
HostBytes snapshot(const Tensor& t) {
  Unlocked work;
  return copied_bytes(t);
}

/// Redirects to an object that pins the storage, as the tensor may get another one.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  try {
    const nb::object memory = nb::cast(HostMemory::of_tensor(nb::cast<const Tensor&>(nb::handle(self))));
    return PyObject_GetBuffer(memory.ptr(), view, flags);
  } catch (nb::python_error& e) { e.restore(); } catch (const nb::builtin_exception& e) {
    PyErr_SetString(e.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_BufferError, e.what());
  } catch (const std::exception& e) { PyErr_SetString(PyExc_BufferError, e.what()); }
  return -1;
}

nb::object value_of_one(const Tensor& t) {
  const DType d = t.stored_dtype();
  ConstValue value;
  {
    Unlocked work;
    read_bytes(t, [&](std::span<const std::byte> bytes) { value = load_const(bytes.data(), d); });
  }
  return to_python(value, d);
}

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
  nb::object a = nb::module_::import_("numpy").attr("empty")(to_python(t.shape()), std::string(d.name()));
  Py_buffer view;
  if (PyObject_GetBuffer(a.ptr(), &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
  struct Release {
    Py_buffer* v;
    ~Release() { PyBuffer_Release(v); }
  } release{&view};
  auto* to = static_cast<std::byte*>(view.buf);
  {
    Unlocked work;
    read_bytes(t, [&](std::span<const std::byte> bytes) {
      if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    });
  }
  return a;
}

Tensor value_of(const nb::object& x, const Tensor& like) {
  if (std::optional<Scalar> v = scalar_from(x)) return Tensor::scalar(*v, like.stored_dtype());
  if (std::optional<Tensor> t = operand_from(x)) return *t;
  return tensor_from(x, {.dtype = like.dtype(), .device = like.device().starts_with("DISK") ? "" : like.device()});
}

}  // namespace

PyType_Slot tensor_buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

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
    return value_of_one(t);
  });
  c.def("tolist", [](const Tensor& tensor) {
    Tensor t = with_values(tensor);
    DType d = t.stored_dtype();
    const HostBytes memory = snapshot(t);
    const std::byte* p = memory.bytes.data();
    return to_list(p, d, static_cast<size_t>(t.element_size()), t.shape().ints(), 0);
  });
  c.def("numpy", &to_numpy);
  c.def(
      "__array__",
      [](const Tensor& t, nb::object dtype, nb::object copy) {
        if (copy.is(nb::bool_(false)))
          throw nb::value_error("[__array__] got copy=False, but values of a tensor are copied: take memoryview()");
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
    return value_of_one(t);
  };
  c.def("__float__", [number](const Tensor& t) { return nb::steal(PyNumber_Float(number(t, "float").ptr())); });
  c.def("__int__", [number](const Tensor& t) { return nb::steal(PyNumber_Long(number(t, "int").ptr())); });
  c.def("data", [](const Tensor& tensor) {
    Tensor t = with_values(tensor);
    if (t.numel() == 0) {  // a memoryview with a size of 0 cannot be read
      nb::object none = nb::steal(PyMemoryView_FromObject(nb::bytes("", 0).ptr()));
      return none.attr("cast")(buffer_format(native(t).dtype()));
    }
    const DType d = t.stored_dtype();
    if (!buffer_format(d)) throw nb::type_error(str("no buffer format for ", d, ": cast to float32 first").c_str());
    // A copy: later writes to either do not show in the other.
    nb::object copy = nb::cast(HostMemory(snapshot(t), d, t.shape().ints(), true));
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
