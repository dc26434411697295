#include "casters.h"

#include <cmath>
#include <cstring>

#include "graph.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/uop/graph.h"

namespace tg::python {

namespace {
/// Signed, up to 128 bits.
int128 int_from(nb::handle h) {
  int overflow = 0;
  long long v = PyLong_AsLongLongAndOverflow(h.ptr(), &overflow);
  if (!overflow) {
    if (v == -1 && PyErr_Occurred()) throw nb::python_error();
    return v;
  }
  nb::object low = nb::steal(PyNumber_And(h.ptr(), nb::int_(UINT64_MAX).ptr()));
  nb::object high = nb::steal(PyNumber_Rshift(h.ptr(), nb::int_(64).ptr()));
  long long hi = PyLong_AsLongLong(high.ptr());
  if (hi == -1 && PyErr_Occurred()) throw nb::python_error();
  return static_cast<int128>(hi) * (static_cast<int128>(1) << 64) +
         static_cast<int128>(PyLong_AsUnsignedLongLong(low.ptr()));
}

bool is_numpy(nb::handle h) { return std::strncmp(Py_TYPE(h.ptr())->tp_name, "numpy.", 6) == 0; }
}  // namespace

std::string device_name(std::string name) {
  if (name.size() < 3 || (name[0] | 32) != 'g' || (name[1] | 32) != 'p' || (name[2] | 32) != 'u' ||
      (name.size() > 3 && name[3] != ':'))
    return name;
  try {
    return Device::canonical(name);
  } catch (const DeviceError&) { return Device::default_name() + name.substr(3); }
}

std::optional<SInt> sint_from(nb::handle h) {
  if (nb::isinstance<PyUOp>(h)) return SInt(nb::cast<const PyUOp&>(h).get());
  if (!PyIndex_Check(h.ptr()) || nb::isinstance<Tensor>(h)) return {};
  nb::object i = nb::steal(PyNumber_Index(h.ptr()));
  if (!i.is_valid()) {
    PyErr_Clear();
    return {};
  }
  int128 v = int_from(i);
  if (v > INT64_MAX || v < INT64_MIN) {
    PyErr_SetString(PyExc_OverflowError, "size does not fit in 64 bits");
    throw nb::python_error();
  }
  return SInt(static_cast<int64_t>(v));
}

nb::object to_python(const SInt& s) {
  if (s.symbolic()) return wrap(UOpRef(s.uop()));
  return nb::int_(s.value());
}

nb::tuple to_python(const Shape& s) {
  nb::list l;
  for (const SInt& d : s) l.append(to_python(d));
  return nb::tuple(l);
}

nb::object to_python(const ConstValue& v, DType d) {
  if (d.is_bool()) return nb::bool_(v.i != 0);
  if (v.kind == ConstValue::kFloat) return nb::float_(v.f);
  if (v.i >= INT64_MIN && v.i <= INT64_MAX) return nb::int_(static_cast<int64_t>(v.i));
  nb::object high = nb::int_(static_cast<int64_t>(v.i >> 64)), low = nb::int_(static_cast<uint64_t>(v.i));
  nb::object shifted = nb::steal(PyNumber_Lshift(high.ptr(), nb::int_(64).ptr()));
  return nb::steal(PyNumber_Or(shifted.ptr(), low.ptr()));
}

std::optional<Scalar> scalar_from(nb::handle h) {
  if (PyBool_Check(h.ptr())) return Scalar(h.ptr() == Py_True);
  if (PyFloat_Check(h.ptr())) return Scalar(PyFloat_AS_DOUBLE(h.ptr()));
  if (PyLong_Check(h.ptr())) {
    Scalar s;
    s.value = ConstValue(int_from(h));
    return s;
  }
  if (is_numpy(h) && nb::hasattr(h, "item") && nb::hasattr(h, "ndim") && nb::cast<int>(h.attr("ndim")) == 0) {
    nb::object plain = h.attr("item")();
    if (PyBool_Check(plain.ptr()) || PyFloat_Check(plain.ptr()) || PyLong_Check(plain.ptr())) return scalar_from(plain);
  }
  return {};
}

std::optional<Tensor> operand_from(nb::handle h) {
  if (nb::isinstance<Tensor>(h)) return nb::cast<const Tensor&>(h);
  if (std::optional<Scalar> s = scalar_from(h)) return Tensor::scalar(*s);
  if (nb::isinstance<PyUOp>(h)) {
    GraphScope g;
    return Tensor::from_uop(nb::cast<const PyUOp&>(h).get());
  }
  return {};
}

DType dtype_or_refuse(nb::handle h) {
  try {
    if (std::optional<DType> d = dtype_from(h)) return *d;
  } catch (const DTypeError& e) { throw nb::attribute_error(e.what()); }
  auto is = [h](PyTypeObject& type) { return h.ptr() == reinterpret_cast<PyObject*>(&type); };
  const char* hint = is(PyFloat_Type)  ? ": write dtypes.float32"
                     : is(PyLong_Type) ? ": write dtypes.int32"
                     : is(PyBool_Type) ? ": write dtypes.bool"
                                       : "";
  const std::string message =
      str("expected a DType or the name of one, got ", nb::cast<std::string>(nb::repr(h)), hint);
  if (PyType_Check(h.ptr())) throw nb::type_error(message.c_str());  // int, float: where other libraries take them
  throw nb::attribute_error(message.c_str());
}

void refuse_array(nb::handle h) {
  if (is_numpy(h) && nb::hasattr(h, "__array__"))
    throw nb::type_error("expected a Tensor or number, got a NumPy array: write Tensor(array)");
}

void refuse_operand(nb::handle h) {
  refuse_array(h);
  if (!PyCallable_Check(h.ptr()) || nb::hasattr(h, "__array__")) return;
  std::string name = PyType_Check(h.ptr()) ? nb::cast<std::string>(h.attr("__name__")) : Py_TYPE(h.ptr())->tp_name;
  name = name.substr(name.rfind('.') + 1);
  throw nb::type_error(str("expected a Tensor or number, got ", name,
                           ": call a layer or function on the tensor, layer(x), or use its layer.weight")
                           .c_str());
}

Shape shape_from(nb::handle sequence, bool none_keeps) {
  Shape shape;
  for (nb::handle h : nb::iter(sequence)) {
    std::optional<SInt> s;
    if (none_keeps && h.is_none()) s = SInt(-1);
    else s = sint_from(h);
    if (!s)
      throw ValueError(
          str("[shape] got ", nb::cast<std::string>(nb::repr(h)), ", expected sizes: shape must be int or UOp")
              .c_str());
    shape.push_back(*s);
  }
  return shape;
}

Shape shape_from_args(const nb::args& args, bool none_keeps) {
  if (args.size() == 1 && (PyTuple_Check(args[0].ptr()) || PyList_Check(args[0].ptr())))
    return shape_from(args[0], none_keeps);
  TG_CHECK(ValueError, args.size() < 2 || !(PyTuple_Check(args[0].ptr()) || PyList_Check(args[0].ptr())),
           "[shape] got a tuple and ", args.size() - 1, " more arguments, expected one tuple, or sizes");
  return shape_from(args, none_keeps);
}

std::vector<int64_t> ints_from_args(const nb::args& args) {
  std::vector<int64_t> v;
  for (const SInt& s : shape_from_args(args)) v.push_back(s.value());
  return v;
}

TensorOptions options_from(const nb::kwargs& kwargs, const char* function) {
  TensorOptions o;
  for (auto [key, value] : kwargs) {
    std::string name = nb::cast<std::string>(key);
    if (name == "dtype") {
      if (!value.is_none()) o.dtype = dtype_or_refuse(value);
    } else if (name == "device") o.device = nb::cast<DeviceName>(value).name;
    else if (name == "requires_grad") {
      if (!value.is_none()) o.requires_grad = nb::cast<bool>(value);
    } else if (name != "buffer" && name != "contiguous" && name != "name")
      throw nb::type_error(
          str("[", function, "] got an unknown argument ", name, ", expected its own, dtype, device or requires_grad")
              .c_str());
  }
  return o;
}

}  // namespace tg::python
