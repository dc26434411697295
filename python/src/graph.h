/// \file Nodes as Python objects: one object per node while it lives, and the conversions of operations, arguments and
/// tags. No function here may be called under a GraphScope unless it says so: whoever runs Python code may lose the GIL
/// to a thread that waits for the graph.
#pragma once
#include <nanobind/nanobind.h>

#include "casters.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/rewrite.h"

namespace tg::python {

inline bool is_uop_object(PyObject* o) { return nb::isinstance<PyUOp>(nb::handle(o)); }
/// A Python object that is a UOp, for signatures.
class UOpObject : public nb::object {
  NB_OBJECT_DEFAULT(UOpObject, nb::object, "UOp", is_uop_object)
};

/// The Python object of a node; the same one as long as somebody holds it, so that `is` compares nodes.
UOpObject wrap(UOpRef u);
/// Builds a node under the graph's lock and wraps it. `f` must not touch Python.
template <class F> UOpObject made(F&& f) {
  UOpRef r;
  {
    GraphScope g;
    r = UOpRef(f());
  }
  return wrap(std::move(r));
}
/// The node of a Python object; TypeError when it is none.
UOp node_of(nb::handle h);
bool is_uop(nb::handle h);
/// What several Python objects hold, to be used under a lock. Valid while the sequence is.
UOps nodes_of(nb::handle sequence);
nb::tuple wrap_all(std::vector<UOpRef> us);

/// A node, or a Python literal that becomes a CONST of weak type (bool for a bool).
struct Literal {
  UOp u;
  ConstValue c;
  DType type;
  UOp node() const { return u ? u : UOp::constant(c, type); }      ///< under a GraphScope
  UOp like(DType d) const { return u ? u : UOp::constant(c, d); }  ///< a literal of type d
};
/// Nothing for other objects.
std::optional<Literal> literal_from(nb::handle h);
/// Casts both to their least common type; Invalid stays. Under a GraphScope.
void promote(UOp& a, UOp& b);

nb::object op_object(Ops op);
std::optional<Ops> op_from(nb::handle h);
Ops require_op(nb::handle h);
nb::object axis_object(AxisType t);
nb::object invalid_object();

nb::object arg_object(UOp u);
/// The argument of a node of `op`; `dtype` is set where the argument names it.
Arg arg_from(Ops op, nb::handle h, std::optional<DType>& dtype);
nb::object tag_object(uint64_t tag);
uint64_t tag_from(nb::handle h);

void bind_uop_args(nb::module_& m);
void bind_uop_math(nb::class_<PyUOp>& c);
void bind_uop_build(nb::class_<PyUOp>& c);
void bind_uop_multi(nb::class_<PyUOp>& c);

}  // namespace tg::python
