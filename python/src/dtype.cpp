/// \file DType objects: one for each scalar type, so that `is` works; the promotion lattice; rounding of Python numbers
/// to a type.
#include <cmath>
#include <iterator>

#include "bind.h"
#include "casters.h"

namespace tg::python {

namespace {
struct PyDType {
  DType d;
};
/// Owned for the life of the interpreter.
nb::handle objects[static_cast<size_t>(DTypeId::kCount)];

/// The attributes of tinygrad's DType in addition to its size.
struct Shown {
  int priority;
  const char *name, *fmt;
};
constexpr Shown kShown[] = {
    {-1, "void", nullptr},
    {0, "bool", "?"},
    {0, "weakint", nullptr},
    {1, "signed char", "b"},
    {2, "unsigned char", "B"},
    {3, "short", "h"},
    {4, "unsigned short", "H"},
    {5, "int", "i"},
    {6, "unsigned int", "I"},
    {7, "long", "q"},
    {8, "unsigned long", "Q"},
    {9, "weakfloat", nullptr},
    {10, "float8_e4m3", nullptr},
    {10, "float8_e4m3fnuz", nullptr},
    {11, "float8_e5m2", nullptr},
    {11, "float8_e5m2fnuz", nullptr},
    {12, "half", "e"},
    {13, "__bf16", nullptr},
    {14, "float", "f"},
    {15, "double", "d"},
};
static_assert(std::size(kShown) == static_cast<size_t>(DTypeId::kCount));
const Shown& shown(DType d) { return kShown[static_cast<size_t>(d.id())]; }

nb::object least(DType d) {
  if (d.is_bool()) return nb::bool_(false);
  if (d.is_float()) return nb::float_(lowest_float(d));
  if (d == dtypes::weakint) return nb::steal(PyNumber_Negative(nb::int_(1).attr("__lshift__")(d.bitsize() - 1).ptr()));
  return d.is_int() ? to_python(ConstValue(int_min(d)), d) : nb::bool_(false);
}
nb::object maximum(DType d) {
  if (d.is_bool()) return nb::bool_(true);
  if (d.is_float()) return nb::float_(highest_float(d));
  if (d == dtypes::weakint) return nb::int_(1).attr("__lshift__")(d.bitsize() - 1).attr("__sub__")(1);
  return d.is_int() ? to_python(ConstValue(int_max(d)), d) : nb::bool_(true);
}

/// The nearest value of the type, as a Python number: integers wrap.
nb::object truncated(DType d, nb::handle x) {
  if (d.is_bool()) return nb::bool_(nb::cast<bool>(nb::bool_(nb::borrow(x))));
  if (d.is_float()) {
    const double v = PyFloat_AsDouble(x.ptr());
    if (v == -1 && PyErr_Occurred()) throw nb::python_error();
    return nb::float_(truncate_float(v, d));
  }
  nb::object i = nb::steal(PyNumber_Index(x.ptr()));
  if (!i.is_valid()) throw nb::python_error();
  if (d == dtypes::weakint) return i;
  nb::object low = nb::steal(PyNumber_And(i.ptr(), nb::int_(UINT64_MAX).ptr()));
  return to_python(ConstValue(truncate_int(static_cast<int128>(PyLong_AsUnsignedLongLong(low.ptr())), d)), d);
}

void check_fp8(DType d) { TG_CHECK(DTypeError, d.is_fp8(), "[fp8] got ", d, ", expected one of dtypes.fp8s"); }
}  // namespace

nb::handle dtype_object(DType d) { return objects[static_cast<size_t>(d.id())]; }

std::optional<DType> dtype_from(nb::handle h) {
  if (nb::isinstance<PyDType>(h)) return nb::cast<const PyDType&>(h).d;
  if (PyUnicode_Check(h.ptr())) {
    try {
      return dtypes::from_name(nb::cast<std::string>(h));
    } catch (const DTypeError& e) { throw nb::attribute_error(e.what()); }
  }
  return {};
}

void bind_dtype(nb::module_& m) {
  nb::class_<PyDType> c(m, "DType", "A scalar type. There is one object of each.");
  c.def_prop_ro("priority", [](const PyDType& d) { return shown(d.d).priority; }, "Place in the order of promotion.");
  c.def_prop_ro("bitsize", [](const PyDType& d) { return d.d.bitsize(); });
  c.def_prop_ro("itemsize", [](const PyDType& d) { return (d.d.bitsize() + 7) / 8; }, "Bytes of an element.");
  c.def_prop_ro("name", [](const PyDType& d) { return shown(d.d).name; }, "The name in C.");
  c.def_prop_ro(
      "fmt", [](const PyDType& d) { return shown(d.d).fmt; }, "Format of the module struct, None where it has none.");
  c.def_prop_ro(
      "spelling", [](const PyDType& d) { return std::string(d.d.name()); },
      "The name with its width: float32, int8, ...");
  c.def_prop_ro("min", [](const PyDType& d) { return least(d.d); });
  c.def_prop_ro("max", [](const PyDType& d) { return maximum(d.d); });
  c.def("__repr__", [](nb::handle self) {
    return "dtypes." + nb::cast<std::string>(
                           nb::module_::import_("tinygrad_cpp.dtype").attr("INVERSE_DTYPES_DICT")[self.attr("name")]);
  });
  c.def("__hash__", [](const PyDType& d) { return static_cast<int64_t>(d.d.id()); });
  c.def("__eq__", [](nb::handle a, nb::handle b) { return a.is(b); }, nb::arg("other").none());
  c.def("__lt__", [](const PyDType& a, const PyDType& b) { return a.d < b.d; });
  c.def("__gt__", [](const PyDType& a, const PyDType& b) { return a.d > b.d; });
  c.def("__le__", [](const PyDType& a, const PyDType& b) { return a.d <= b.d; });
  c.def("__ge__", [](const PyDType& a, const PyDType& b) { return a.d >= b.d; });
  c.def("__reduce__", [](const PyDType& d) {
    return nb::make_tuple(nb::module_::import_("tinygrad_cpp._core").attr("dtype_from_name"),
                          nb::make_tuple(std::string(d.d.name())));
  });
  c.def("__copy__", [](nb::handle self) { return self; });
  c.def("__deepcopy__", [](nb::handle self, nb::handle) { return self; });
  for (size_t i = 0; i < static_cast<size_t>(DTypeId::kCount); i++)
    objects[i] = nb::cast(PyDType{DType(static_cast<DTypeId>(i))}).release();
  m.def(
      "dtype_from_name", [](nb::str name) { return *dtype_from(name); },
      "The type of a name; AttributeError for an unknown one.");
  m.def("all_dtypes", [] {
    nb::list l;
    for (nb::handle h : objects) l.append(h);
    return l;
  });
  m.def("default_float", [] { return dtypes::default_float(); });
  m.def("default_int", [] { return dtypes::default_int(); });
  m.def("is_int", [](DType d) { return d.is_int(); });
  m.def("is_float", [](DType d) { return d.is_float(); });
  m.def("is_unsigned", [](DType d) { return d.is_unsigned(); });
  m.def("strong_dtype", &strong_dtype, "dtype"_a, "The type a weak type is stored in; others unchanged.");
  m.def("least_upper_float", &least_upper_float, "dt"_a,
        "A float type as it is; for others the join with the default float.");
  m.def("sum_acc_dtype", &sum_acc_dtype, "dt"_a, "The type in which sums accumulate.");
  m.def("can_lossless_cast", &can_lossless_cast, "dt0"_a, "dt1"_a, "Whether every value of dt0 is one of dt1.");
  m.def(
      "least_upper_dtype",
      [](nb::args types) {
        if (types.size() == 0) throw nb::type_error("least_upper_dtype() needs at least one type");
        std::vector<DType> all;
        for (nb::handle t : types) all.push_back(nb::cast<DType>(t));
        return least_upper_dtype(all);
      },
      "The least type all of them convert to.");
  m.def("finfo", [](DType d) {
    const FloatInfo f = finfo(d);
    return nb::make_tuple(f.exponent, f.mantissa);
  });
  m.def("truncate", &truncated, "dtype"_a, "x"_a);
  m.def(
      "float_to_fp8",
      [](double x, DType d) {
        check_fp8(d);
        return static_cast<int>(float_to_fp8(static_cast<float>(std::isfinite(x) ? truncate_float(x, d) : x), d));
      },
      "x"_a, "dtype"_a, "The code of the nearest value of an 8-bit float.");
  m.def(
      "fp8_to_float",
      [](int x, DType d) {
        check_fp8(d);
        return static_cast<double>(fp8_to_float(static_cast<uint8_t>(x), d));
      },
      "x"_a, "dtype"_a, "The value an 8-bit code stands for.");
}

}  // namespace tg::python
