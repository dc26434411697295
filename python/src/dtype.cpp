/// \file DType objects: one for each scalar type, so that `is` works, and the promotion lattice.
#include "bind.h"
#include "casters.h"
#include "tinygrad/uop/eval.h"

namespace tg::python {

namespace {
struct PyDType {
  DType d;
};
/// Owned for the life of the interpreter.
nb::handle objects[static_cast<size_t>(DTypeId::kCount)];
}  // namespace

nb::handle dtype_object(DType d) { return objects[static_cast<size_t>(d.id())]; }

std::optional<DType> dtype_from(nb::handle h) {
  if (nb::isinstance<PyDType>(h)) return nb::cast<const PyDType&>(h).d;
  if (PyUnicode_Check(h.ptr())) return dtypes::from_name(nb::cast<std::string>(h));
  return {};
}

void bind_dtype(nb::module_& m) {
  nb::class_<PyDType> c(m, "DType", "A scalar type. There is one object of each.");
  c.def_prop_ro("name", [](const PyDType& d) { return std::string(d.d.name()); });
  c.def_prop_ro("itemsize", [](const PyDType& d) { return d.d.itemsize(); });
  c.def_prop_ro("bitsize", [](const PyDType& d) { return d.d.bitsize(); });
  c.def("__repr__", [](const PyDType& d) { return "dtypes." + std::string(d.d.name()); });
  c.def("__hash__", [](const PyDType& d) { return static_cast<int64_t>(d.d.id()); });
  c.def("__lt__", [](const PyDType& a, const PyDType& b) { return a.d < b.d; });
  c.def("__reduce__", [](const PyDType& d) {
    return nb::make_tuple(nb::module_::import_("tinygrad_cpp._core").attr("dtype_from_name"), nb::make_tuple(std::string(d.d.name())));
  });
  for (size_t i = 0; i < static_cast<size_t>(DTypeId::kCount); i++) objects[i] = nb::cast(PyDType{DType(static_cast<DTypeId>(i))}).release();
  m.def("dtype_from_name", [](const std::string& name) { return dtypes::from_name(name); });
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
  m.def("strong_dtype", &strong_dtype);
  m.def("least_upper_float", &least_upper_float);
  m.def("sum_acc_dtype", &sum_acc_dtype);
  m.def("can_lossless_cast", &can_lossless_cast);
  m.def("least_upper_dtype", [](nb::args types) {
    if (types.size() == 0) throw nb::type_error("least_upper_dtype() needs at least one type");
    DType d = nb::cast<DType>(types[0]);
    for (size_t i = 1; i < types.size(); i++) d = least_upper_dtype(d, nb::cast<DType>(types[i]));
    return d;
  });
}

}  // namespace tg::python
