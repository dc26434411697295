/// \file How Python values become arguments: types by object or name, sizes that may be symbolic, axes, numbers and
/// tensors as operands.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tinygrad/tensor/tensor.h"

namespace tg::python {

namespace nb = nanobind;

/// What Python's class UOp holds: a node with an owner. Made by wrap() (graph.h) alone.
struct PyUOp {
  explicit PyUOp(UOpRef r) : ref(std::move(r)) {}
  PyUOp(PyUOp&&) = default;
  PyUOp(const PyUOp&) = delete;
  ~PyUOp();
  UOpRef ref;
  bool interned = false;  ///< the node's one object, not a temporary
  UOp get() const { return ref.get(); }
};

/// A tensor, or a number converted to one: the right side of an operator.
struct Operand {
  Tensor tensor;
};
/// A device: a name, or nothing for the default.
struct DeviceName {
  std::string name;
};
/// The name the library uses. "GPU", from the days before there was one name per runtime, is the first GPU, on a
/// machine without one the default.
std::string device_name(std::string name);
/// A name, a tuple of names for several devices, None for "".
nb::object device_object(const std::string& device);

/// The Python object of a type; the same object each time.
nb::handle dtype_object(DType d);
/// The type a Python object stands for: a DType or its name. Nothing for other objects; DTypeError for an unknown name.
std::optional<DType> dtype_from(nb::handle h);
/// An integer or an integer UOp; nothing for other objects.
std::optional<SInt> sint_from(nb::handle h);
nb::object to_python(const SInt& s);
nb::tuple to_python(const Shape& s);
/// A Python number of a literal of type `d`.
nb::object to_python(const ConstValue& v, DType d);
/// bool, int, float (NumPy's scalars too); nothing for other objects. Integers beyond 128 bits are an OverflowError.
std::optional<Scalar> scalar_from(nb::handle h);
/// A Tensor, UOp or number; nothing for other objects.
std::optional<Tensor> operand_from(nb::handle h);
/// AttributeError for what is no type, as `dtypes.nothing` gives.
DType dtype_or_refuse(nb::handle h);
/// An operator with a NumPy array is a TypeError that says what to write: NumPy would take the tensor for an array and
/// drop its gradient.
void refuse_array(nb::handle h);
/// A layer, function or array where a tensor belongs is a TypeError that says what to write.
void refuse_operand(nb::handle h);
/// Elements of a list or tuple as sizes; `None` gives -1 where `none_keeps`. TypeError for anything else.
Shape shape_from(nb::handle sequence, bool none_keeps = false);
/// The arguments of f(2, 3) or f((2, 3)).
Shape shape_from_args(const nb::args& args, bool none_keeps = false);
std::vector<int64_t> ints_from_args(const nb::args& args);
/// dtype, device, requires_grad; names without a meaning here (buffer, contiguous, name) are accepted and ignored,
/// others are a TypeError.
TensorOptions options_from(const nb::kwargs& kwargs, const char* function);

inline nb::object none_or(const Tensor& t) { return t.defined() ? nb::cast(t) : nb::none(); }
inline Tensor tensor_or_none(const std::optional<Tensor>& t) { return t ? *t : Tensor(); }
inline Tensor operand_or_none(const std::optional<Operand>& t) { return t ? t->tensor : Tensor(); }

}  // namespace tg::python

namespace nanobind::detail {

template <> struct type_caster<tg::DType> {
  NB_TYPE_CASTER(tg::DType, const_name("DType"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    value = tg::python::dtype_or_refuse(src);
    return true;
  }
  static handle from_cpp(tg::DType d, rv_policy, cleanup_list*) noexcept {
    return tg::python::dtype_object(d).inc_ref();
  }
};

template <> struct type_caster<tg::SInt> {
  NB_TYPE_CASTER(tg::SInt, const_name("int | UOp"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    std::optional<tg::SInt> s = tg::python::sint_from(src);
    if (s) value = *s;
    return s.has_value();
  }
  static handle from_cpp(const tg::SInt& s, rv_policy, cleanup_list*) { return tg::python::to_python(s).release(); }
};

template <> struct type_caster<tg::Shape> {
  NB_TYPE_CASTER(tg::Shape, const_name("tuple[int | UOp, ...]"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    if (std::optional<tg::SInt> one = tg::python::sint_from(src)) {
      value.push_back(*one);
      return true;
    }
    if (!PyTuple_Check(src.ptr()) && !PyList_Check(src.ptr())) return false;
    value = tg::python::shape_from(src);
    return true;
  }
  static handle from_cpp(const tg::Shape& s, rv_policy, cleanup_list*) { return tg::python::to_python(s).release(); }
};

template <> struct type_caster<tg::Ints> {
  NB_TYPE_CASTER(tg::Ints, const_name("int | Sequence[int]"))
  bool from_python(handle src, uint8_t flags, cleanup_list* cleanup) {
    if (PyIndex_Check(src.ptr())) {
      int64_t v = PyNumber_AsSsize_t(src.ptr(), PyExc_OverflowError);
      if (v == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
      }
      value = tg::Ints(v);
      return true;
    }
    make_caster<std::vector<int64_t>> list;
    if (PyUnicode_Check(src.ptr()) || !list.from_python(src, flags, cleanup)) return false;
    value = tg::Ints(std::move(list.value));
    return true;
  }
  static handle from_cpp(const tg::Ints& v, rv_policy p, cleanup_list* c) {
    return make_caster<std::vector<int64_t>>::from_cpp(v, p, c);
  }
};

template <> struct type_caster<tg::Axes> {
  NB_TYPE_CASTER(tg::Axes, const_name("int | Sequence[int] | None"))
  bool from_python(handle src, uint8_t flags, cleanup_list* cleanup) {
    value = tg::Axes();
    if (src.is_none()) return true;
    make_caster<tg::Ints> ints;
    if (!ints.from_python(src, flags, cleanup)) return false;
    value.all = false;
    for (int64_t i : ints.value) value.list.push_back(static_cast<int>(std::clamp<int64_t>(i, INT32_MIN, INT32_MAX)));
    return true;
  }
  static handle from_cpp(const tg::Axes& a, rv_policy p, cleanup_list* c) {
    return a.all ? handle(Py_None).inc_ref() : make_caster<std::vector<int>>::from_cpp(a.list, p, c);
  }
};

template <> struct type_caster<tg::python::Operand> {
  NB_TYPE_CASTER(tg::python::Operand, const_name("Tensor | UOp | bool | int | float"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    std::optional<tg::Tensor> t = tg::python::operand_from(src);
    if (!t) tg::python::refuse_operand(src);
    if (t) value.tensor = std::move(*t);
    return t.has_value();
  }
};

template <> struct type_caster<tg::Scalar> {
  NB_TYPE_CASTER(tg::Scalar, const_name("bool | int | float"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    std::optional<tg::Scalar> s = tg::python::scalar_from(src);
    if (s) value = *s;
    return s.has_value();
  }
};

template <> struct type_caster<tg::python::DeviceName> {
  NB_TYPE_CASTER(tg::python::DeviceName, const_name("str | tuple[str, ...] | None"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    value.name.clear();
    if (src.is_none()) return true;
    if ((PyTuple_Check(src.ptr()) || PyList_Check(src.ptr())) && PySequence_Size(src.ptr()) == 1)
      src = nanobind::object(src[0]);
    if (PyTuple_Check(src.ptr()) || PyList_Check(src.ptr())) {  // several devices: a list of names
      for (nanobind::handle h : nanobind::borrow<nanobind::sequence>(src)) {
        if (!PyUnicode_Check(h.ptr())) return false;
        value.name += (value.name.empty() ? "" : ",") + tg::python::device_name(nanobind::cast<std::string>(h));
      }
      return !value.name.empty();
    }
    if (!PyUnicode_Check(src.ptr())) return false;
    value.name = tg::python::device_name(nanobind::cast<std::string>(src));
    return true;
  }
};

/// nanobind's own caster of optionals may not throw; these say what is wrong.
template <class T> struct ThrowingOptional {
  NB_TYPE_CASTER(std::optional<T>, optional_name(make_caster<T>::Name))
  bool from_python(handle src, uint8_t flags, cleanup_list* cleanup) {
    value.reset();
    if (src.is_none()) return true;
    make_caster<T> inner;
    if (!inner.from_python(src, flags, cleanup)) return false;
    value = std::move(inner.value);
    return true;
  }
  static handle from_cpp(const std::optional<T>& v, rv_policy p, cleanup_list* c) {
    return v ? make_caster<T>::from_cpp(*v, p, c) : handle(Py_None).inc_ref();
  }
};
template <> struct type_caster<std::optional<tg::DType>> : ThrowingOptional<tg::DType> {};
template <> struct type_caster<std::optional<tg::SInt>> : ThrowingOptional<tg::SInt> {};
template <> struct type_caster<std::optional<tg::Scalar>> : ThrowingOptional<tg::Scalar> {};

}  // namespace nanobind::detail
