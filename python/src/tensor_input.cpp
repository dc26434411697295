#include "tensor_input.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "casters.h"
#include "tinygrad/tensor/impl.h"
#include "tinygrad/tensor/node_ops.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/graph.h"

namespace tg::python {

namespace {

/// Numbers of nested lists, row-major, each as wide as needed.
struct Flat {
  std::vector<int64_t> shape;
  std::vector<double> floats;  ///< all values, once one is a float
  std::vector<int128> ints;    ///< all values before that
  bool any_float = false, all_bool = true, any = false;
};

void push(Flat& f, const Scalar& s) {
  f.any = true;
  if (!s.dtype.is_bool()) f.all_bool = false;
  if (s.dtype.is_float() && !f.any_float) {
    f.any_float = true;
    f.floats.assign(f.ints.begin(), f.ints.end());
    f.ints.clear();
  }
  if (f.any_float) f.floats.push_back(s.value.as_double());
  else f.ints.push_back(s.value.i);
}

bool is_sequence(nb::handle h) { return PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()); }

/// Bytes as a list of numbers, anything else as it is.
nb::object unpacked(nb::handle h) {
  return PyBytes_Check(h.ptr()) ? nb::steal(PySequence_List(h.ptr())) : nb::borrow(h);
}

const char* element_hint(nb::handle h) {
  if (nb::isinstance<Tensor>(h)) return ": write Tensor.stack(...)";
  if (nb::hasattr(h, "__array__")) return ": write Tensor(np.array([...])), or give a dtype";
  return "";
}

void flatten(nb::handle element, size_t depth, bool typed, Flat& f) {
  const nb::object h = unpacked(element);
  if (!is_sequence(h)) {
    TG_CHECK(ValueError, depth == f.shape.size(),
             "[Tensor] got lists of different depth, expected all elements at depth ", f.shape.size());
    const bool plain = PyBool_Check(h.ptr()) || PyFloat_Check(h.ptr()) || PyLong_Check(h.ptr());
    std::optional<Scalar> s;
    if (plain || typed) s = scalar_from(h);  // NumPy's numbers have a type of their own: the user says which counts
    TG_CHECK(DTypeError, s, "[Tensor] got an element of type ", Py_TYPE(h.ptr())->tp_name,
             ", expected bool, int or float", element_hint(h));
    return push(f, *s);
  }
  int64_t n = PySequence_Size(h.ptr());
  TG_CHECK(ValueError, depth < f.shape.size() && n == f.shape[depth],
           "[Tensor] got lists of different length, expected ", depth < f.shape.size() ? f.shape[depth] : 0,
           " elements");
  PyObject** items = PySequence_Fast_ITEMS(h.ptr());
  for (int64_t i = 0; i < n; i++) flatten(items[i], depth + 1, typed, f);
}

Tensor from_list(nb::handle data, TensorOptions o) {
  Flat f;
  for (nb::object h = nb::borrow(data); is_sequence(h);) {
    int64_t n = PySequence_Size(h.ptr());
    f.shape.push_back(n);
    TG_CHECK(ShapeError, f.shape.size() <= 64, "[Tensor] got lists nested deeper than 64");
    if (n == 0) break;
    h = unpacked(PySequence_Fast_ITEMS(h.ptr())[0]);
  }
  flatten(data, 0, o.dtype.has_value(), f);
  DType d = o.dtype ? *o.dtype : dtypes::default_float();
  if (!o.dtype && f.any && !f.any_float) {
    d = f.all_bool ? dtypes::bool_ : dtypes::default_int();
    if (!f.all_bool && !f.ints.empty()) {
      const auto [lo, hi] = std::minmax_element(f.ints.begin(), f.ints.end());
      d = least_upper_dtype(ops::strong_type(*lo, dtypes::weakint), ops::strong_type(*hi, dtypes::weakint));
    }
  }
  TG_CHECK(DTypeError, !d.is_weak() && !d.is_void(), "[Tensor] got dtype ", d, ", expected one with a size");
  size_t n = f.any_float ? f.floats.size() : f.ints.size(), size = static_cast<size_t>(d.itemsize());
  std::vector<std::byte> bytes(n * size);
  for (size_t i = 0; i < n; i++) {
    ConstValue v = f.any_float ? ConstValue(f.floats[i]) : ConstValue(f.ints[i]);
    store_const(&bytes[i * size], eval_cast(v, f.any_float ? dtypes::weakfloat : dtypes::weakint, d), d);
  }
  o.dtype = {};
  return Tensor::from_bytes(bytes, d, Shape(std::span<const int64_t>(f.shape)), o);
}

/// The type a buffer's format spells, in native byte order.
std::optional<DType> dtype_of_format(const char* format, Py_ssize_t itemsize) {
  std::string f = format ? format : "B";
  if (!f.empty() && (f[0] == '@' || f[0] == '=' || f[0] == '<')) f.erase(0, 1);
  if (f.size() != 1) return {};
  // clang-format off
  switch (f[0]) {
    case '?': return dtypes::bool_;
    case 'e': return dtypes::float16;
    case 'f': return dtypes::float32;
    case 'd': return dtypes::float64;
    case 'b': case 'h': case 'i': case 'l': case 'q': case 'n':
      return itemsize == 1 ? dtypes::int8 : itemsize == 2 ? dtypes::int16 : itemsize == 4 ? dtypes::int32
                                                                                          : dtypes::int64;
    case 'c': case 'B': case 'H': case 'I': case 'L': case 'Q': case 'N':
      return itemsize == 1 ? dtypes::uint8 : itemsize == 2 ? dtypes::uint16 : itemsize == 4 ? dtypes::uint32
                                                                                            : dtypes::uint64;
    default: return {};
  }
  // clang-format on
}

/// Dates, texts and objects of NumPy: some of them would give their bytes.
void refuse_other_elements(nb::handle data) {
  if (!nb::hasattr(data, "dtype") || !nb::hasattr(data.attr("dtype"), "kind")) return;
  const nb::object dtype = data.attr("dtype"), kind = dtype.attr("kind");
  const auto letter = nb::cast<std::string>(kind);
  TG_CHECK(DTypeError, letter.find_first_of("mMSUO") == std::string::npos, "[Tensor] got an array of ",
           nb::cast<std::string>(nb::str(dtype)), ", expected bool, an integer or a float type");
}

Tensor from_buffer(nb::handle data, const TensorOptions& o) {
  refuse_other_elements(data);
  Py_buffer view;
  if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_FULL_RO) != 0) throw nb::python_error();
  struct Release {
    Py_buffer* v;
    ~Release() { PyBuffer_Release(v); }
  } release{&view};
  std::optional<DType> d = dtype_of_format(view.format, view.itemsize);
  if (!d && view.format && (view.format[0] == '>' || view.format[0] == '!') && nb::hasattr(data, "byteswap"))
    return from_buffer(data.attr("astype")(data.attr("dtype").attr("newbyteorder")("=")), o);
  TG_CHECK(DTypeError, d, "[Tensor] got an array of format '", view.format ? view.format : "",
           "', expected bool, an integer or a float type");
  Shape shape;
  for (int i = 0; i < view.ndim; i++) shape.push_back(SInt(static_cast<int64_t>(view.shape[i])));
  if (PyBuffer_IsContiguous(&view, 'C'))
    return Tensor::from_bytes({static_cast<const std::byte*>(view.buf), static_cast<size_t>(view.len)}, *d, shape, o);
  std::vector<std::byte> bytes(static_cast<size_t>(view.len));
  if (PyBuffer_ToContiguous(bytes.data(), &view, view.len, 'C') != 0) throw nb::python_error();
  return Tensor::from_bytes(bytes, *d, shape, o);
}

Tensor from_path(nb::handle path, const TensorOptions& o) {
  std::filesystem::path p = nb::cast<std::string>(nb::str(path.attr("resolve")()));
  std::error_code ec;
  uintmax_t bytes = std::filesystem::file_size(p, ec);
  TG_CHECK(FileError, !ec, "[Tensor] cannot read ", p.string(), ": ", ec.message());
  DType d = o.dtype.value_or(dtypes::uint8);
  Tensor t = Tensor::empty({static_cast<int64_t>(bytes) / d.itemsize()}, {.dtype = d, .device = "DISK:" + p.string()});
  return o.device.empty() ? t : t.to(o.device);
}

Tensor configured(Tensor t, const TensorOptions& o) {
  if (o.dtype) t = t.cast(*o.dtype);
  if (!o.device.empty()) t = t.to(o.device);
  if (o.requires_grad) t.requires_grad_(*o.requires_grad);
  return t;
}

}  // namespace

Tensor tensor_from(nb::handle data, const TensorOptions& o) {
  if (data.is_none()) return configured(tensor_detail::leaf_scalar(0.0, o.dtype), {{}, {}, o.requires_grad});
  if (std::optional<Scalar> s = scalar_from(data)) {
    bool numpy = !PyBool_Check(data.ptr()) && !PyFloat_CheckExact(data.ptr()) && !PyLong_CheckExact(data.ptr()) &&
                 nb::hasattr(data, "dtype");
    std::optional<DType> d = o.dtype;
    // A number of NumPy is an array without axes: data in storage, of its own type.
    if (numpy && !d && PyObject_CheckBuffer(data.ptr())) return from_buffer(data, o);
    if (numpy && !d) d = dtypes::from_name(nb::cast<std::string>(data.attr("dtype").attr("name")));
    // A type that is asked for wraps integers, as it does those of lists and arrays.
    const bool wraps = d && d->is_int() && s->value.is_int();
    return configured(wraps ? Tensor::scalar(*s).cast(*d) : tensor_detail::leaf_scalar(*s, d),
                      {{}, {}, o.requires_grad});
  }
  if (nb::isinstance<PyUOp>(data)) {
    GraphScope g;
    return configured(Tensor::from_uop(nb::cast<const PyUOp&>(data).get()), o);
  }
  if (is_sequence(data)) return from_list(data, o);
  if (PyBytes_Check(data.ptr()) || PyByteArray_Check(data.ptr()) || PyMemoryView_Check(data.ptr())) {
    if (!o.dtype || PyMemoryView_Check(data.ptr())) return from_buffer(data, o);
    Py_buffer view;
    if (PyObject_GetBuffer(data.ptr(), &view, PyBUF_SIMPLE) != 0) throw nb::python_error();
    std::span<const std::byte> bytes(static_cast<const std::byte*>(view.buf), static_cast<size_t>(view.len));
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    PyBuffer_Release(&view);
    TG_CHECK(ShapeError, copy.size() % static_cast<size_t>(o.dtype->itemsize()) == 0, "[Tensor] got ", copy.size(),
             " bytes, expected a multiple of ", o.dtype->itemsize());
    return Tensor::from_bytes(copy, *o.dtype, {static_cast<int64_t>(copy.size()) / o.dtype->itemsize()},
                              {{}, o.device, o.requires_grad});
  }
  if (nb::hasattr(data, "__fspath__")) return from_path(data, o);
  if (PyObject_CheckBuffer(data.ptr()) && !nb::isinstance<Tensor>(data)) return from_buffer(data, o);
  if (nb::hasattr(data, "__array__") && !nb::isinstance<Tensor>(data)) return from_buffer(data.attr("__array__")(), o);
  throw DTypeError(str("[Tensor] can't create a Tensor from an object of type ", Py_TYPE(data.ptr())->tp_name,
                       ", expected a number, list, bytes, array, path or UOp",
                       nb::isinstance<Tensor>(data) ? ": a copy is x.clone()" : ""));
}

}  // namespace tg::python
