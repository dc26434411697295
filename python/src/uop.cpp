/// \file UOp: the graph as Python sees it.
#include <sstream>

#include "bind.h"
#include "casters.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/uop/graph.h"

namespace tg::python {

namespace {
PyUOp own(UOp u) { return {UOpRef(u)}; }

/// A UOp or an integer, in the type of literals. Under a GraphScope.
std::optional<UOp> index_operand(nb::handle h) {
  std::optional<SInt> s = sint_from(h);
  if (!s) return {};
  return s->uop();
}

template <class F> nb::object binary(const PyUOp& a, nb::handle b, bool reflected, F f) {
  GraphScope g;
  std::optional<UOp> o = index_operand(b);
  if (!o) return nb::borrow(Py_NotImplemented);
  return nb::cast(own(reflected ? f(*o, a.get()) : f(a.get(), *o)));
}
}  // namespace

void bind_uop(nb::module_& m) {
  nb::class_<PyUOp> c(m, "UOp", "A node of the graph: op, dtype, sources, argument.");
#define TG_UOP_BINARY(name, expr)                                                                                             \
  c.def("__" name "__", [](const PyUOp& a, nb::handle b) { return binary(a, b, false, [](UOp x, UOp y) { return expr; }); }); \
  c.def("__r" name "__", [](const PyUOp& a, nb::handle b) { return binary(a, b, true, [](UOp x, UOp y) { return expr; }); })
  TG_UOP_BINARY("add", x + y);
  TG_UOP_BINARY("sub", x - y);
  TG_UOP_BINARY("mul", x * y);
  TG_UOP_BINARY("floordiv", x / y);
  TG_UOP_BINARY("mod", x % y);
#undef TG_UOP_BINARY
  c.def("__neg__", [](const PyUOp& a) {
    GraphScope g;
    return own(a.get().neg());
  });
  c.def("__eq__", [](const PyUOp& a, nb::handle b) { return nb::isinstance<PyUOp>(b) && nb::cast<const PyUOp&>(b).get() == a.get(); });
  c.def("__hash__", [](const PyUOp& a) { return static_cast<int64_t>(std::hash<UOp>{}(a.get()) >> 1); });
  c.def("__repr__", [](const PyUOp& a) {
    GraphScope g;
    std::ostringstream s;
    s << a.get();
    return s.str();
  });
  c.def_static(
      "variable",
      [](const std::string& name, int64_t vmin, int64_t vmax, nb::args, nb::kwargs) {
        Variable(name, vmin, vmax);  // checks
        GraphScope g;
        return own(UOp::variable(name, vmin, vmax));
      },
      "name"_a, "min_val"_a, "max_val"_a, "args"_a, "kwargs"_a);
  c.def("bind", [](const PyUOp& v, int64_t value) {
    GraphScope g;
    UOp u = v.get();
    Bounds b = bounds_of(u);
    TG_CHECK(ValueError, value >= b.lo && value <= b.hi, "[bind] got ", value, ", expected ", static_cast<int64_t>(b.lo), " to ",
             static_cast<int64_t>(b.hi));
    return own(u.after({u.store(UOp::constant(value))}));
  });
  c.def_prop_ro("vmin", [](const PyUOp& a) {
    GraphScope g;
    return static_cast<int64_t>(vmin(a.get()));
  });
  c.def_prop_ro("vmax", [](const PyUOp& a) {
    GraphScope g;
    return static_cast<int64_t>(vmax(a.get()));
  });
}

}  // namespace tg::python
