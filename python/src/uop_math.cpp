/// \file UOp: operators and functions of elements.
#include "bind.h"
#include "graph.h"
#include "tinygrad/uop/eval.h"
#include "tinygrad/uop/facts.h"

namespace tg::python {

namespace {
/// f(a, b) of operands brought to one type; NotImplemented for objects that are no operands.
template <class F> UOpObject binary(const PyUOp& a, nb::handle b, bool reflected, F f) {
  const std::optional<Literal> l = literal_from(b);
  if (!l) return nb::borrow<UOpObject>(Py_NotImplemented);
  return made([&] {
    UOp x = a.get(), y = l->node();
    promote(x, y);
    return reflected ? f(y, x) : f(x, y);
  });
}

UOp divide(UOp x, UOp y) {
  const DType d = least_upper_float(x.dtype());
  x = x.cast(d);
  y = y.cast(d);
  return UOp::alu(Ops::FDIV, {x, y});
}
UOp alu(Ops op, UOp x, UOp y) { return UOp::alu(op, {x, y}); }

/// Any ALU op over this node and others.
UOpObject alu_of(const PyUOp& u, nb::handle op_handle, const nb::args& rest) {
  const Ops op = require_op(op_handle);
  std::vector<Literal> more;
  for (nb::handle h : rest) {
    std::optional<Literal> l = literal_from(h);
    if (!l) throw nb::type_error(str("expected a UOp or a number, got ", nb::cast<std::string>(nb::repr(h))).c_str());
    more.push_back(*l);
  }
  return made([&] {
    UOps src{u.get()};
    for (const Literal& l : more) src.push_back(l.node());
    if (src.size() == 2) promote(src[0], src[1]);
    if (src.size() == 3) promote(src[1], src[2]);
    return UOp::alu(op, src);
  });
}

ConstValue value_from(nb::handle h) {
  const std::optional<Literal> l = literal_from(h);
  if (!l || l->u) throw nb::type_error("expected a number");
  return l->c;
}
}  // namespace

void bind_uop_math(nb::class_<PyUOp>& c) {
#define TG_UOP_OPERATOR(name, expr)                                                                           \
  c.def("__" name "__",                                                                                       \
        [](const PyUOp& a, nb::handle b) { return binary(a, b, false, [](UOp x, UOp y) { return expr; }); }); \
  c.def("__r" name "__",                                                                                      \
        [](const PyUOp& a, nb::handle b) { return binary(a, b, true, [](UOp x, UOp y) { return expr; }); })
#define TG_UOP_METHOD(name, expr)                                        \
  c.def(                                                                 \
      name,                                                              \
      [](const PyUOp& a, nb::handle b, bool reverse) {                   \
        return binary(a, b, reverse, [](UOp x, UOp y) { return expr; }); \
      },                                                                 \
      "x"_a, "reverse"_a = false)
  TG_UOP_OPERATOR("add", x + y);
  TG_UOP_OPERATOR("sub", x - y);
  TG_UOP_OPERATOR("mul", x * y);
  TG_UOP_OPERATOR("truediv", divide(x, y));
  TG_UOP_OPERATOR("floordiv", alu(Ops::FLOORDIV, x, y));
  TG_UOP_OPERATOR("mod", alu(Ops::FLOORMOD, x, y));
  TG_UOP_OPERATOR("and", x & y);
  TG_UOP_OPERATOR("or", x | y);
  TG_UOP_OPERATOR("xor", x ^ y);
  TG_UOP_OPERATOR("lshift", x << y);
  TG_UOP_OPERATOR("rshift", x >> y);
  TG_UOP_OPERATOR("pow", alu(Ops::POW, x, y));
  TG_UOP_METHOD("add", x + y);
  TG_UOP_METHOD("sub", x - y);
  TG_UOP_METHOD("mul", x * y);
  TG_UOP_METHOD("div", divide(x, y));
  TG_UOP_METHOD("mod", alu(Ops::FLOORMOD, x, y));
  TG_UOP_METHOD("bitwise_and", x & y);
  TG_UOP_METHOD("bitwise_or", x | y);
  TG_UOP_METHOD("bitwise_xor", x ^ y);
  TG_UOP_METHOD("lshift", x << y);
  TG_UOP_METHOD("rshift", x >> y);
  TG_UOP_METHOD("pow", alu(Ops::POW, x, y));
  TG_UOP_METHOD("maximum", x.maximum(y));
  TG_UOP_METHOD("minimum", x.minimum(y));
  TG_UOP_METHOD("ne", x.ne(y));
  TG_UOP_METHOD("eq", x.eq(y));
  TG_UOP_METHOD("threefry", alu(Ops::THREEFRY, x, y));
#undef TG_UOP_METHOD
#undef TG_UOP_OPERATOR
#define TG_UOP_COMPARE(name, expr) \
  c.def("__" name "__",            \
        [](const PyUOp& a, nb::handle b) { return binary(a, b, false, [](UOp x, UOp y) { return expr; }); })
  TG_UOP_COMPARE("lt", x.lt(y));
  TG_UOP_COMPARE("gt", y.lt(x));
  TG_UOP_COMPARE("ge", x.ge(y));
  TG_UOP_COMPARE("le", y.ge(x));
  TG_UOP_COMPARE("ne", x.ne(y));
#undef TG_UOP_COMPARE
#define TG_UOP_UNARY(name, expr)   \
  c.def(name, [](const PyUOp& a) { \
    return made([&] {              \
      UOp x = a.get();             \
      return expr;                 \
    });                            \
  })
  TG_UOP_UNARY("__neg__", x.neg());
  TG_UOP_UNARY("neg", x.neg());
  TG_UOP_UNARY("logical_not", x.logical_not());
  TG_UOP_UNARY("__invert__", x.dtype().is_bool() ? x.logical_not() : x ^ x.const_like(-1));
  TG_UOP_UNARY("bitwise_not", x.dtype().is_bool() ? x.logical_not() : x ^ x.const_like(-1));
#undef TG_UOP_UNARY
#define TG_UOP_FUNCTION(name, op) \
  c.def(name, [](const PyUOp& a) { return made([&] { return UOp::alu(Ops::op, {a.get()}); }); })
  TG_UOP_FUNCTION("exp2", EXP2);
  TG_UOP_FUNCTION("log2", LOG2);
  TG_UOP_FUNCTION("sin", SIN);
  TG_UOP_FUNCTION("sqrt", SQRT);
  TG_UOP_FUNCTION("reciprocal", RECIPROCAL);
  TG_UOP_FUNCTION("trunc", TRUNC);
#undef TG_UOP_FUNCTION
  c.def("alu", &alu_of, "op"_a, "src"_a, "Any operation over this node and others.");
  c.def(
      "where",
      [](const PyUOp& cond, nb::handle t, nb::handle f) {
        const std::optional<Literal> a = literal_from(t), b = literal_from(f);
        if (!a || !b) throw nb::type_error("where() takes UOps or numbers");
        return made([&] {
          UOp x = a->node(), y = b->node();
          promote(x, y);
          return cond.get().where(x, y);
        });
      },
      "x"_a, "y"_a, "x where this holds, else y.");
  c.def(
      "valid",
      [](const PyUOp& u, nb::handle cond) {
        const std::optional<Literal> l = literal_from(cond);
        if (!l) throw nb::type_error("valid() takes a UOp or a bool");
        return made([&] { return u.get().valid(l->node()); });
      },
      "cond"_a, "This where the condition holds, else Invalid.");
  c.def("get_idx", [](const PyUOp& u) {
    return made([&] { return u.get().is(Ops::WHERE) && u.get().src(2).is_invalid() ? u.get().src(1) : u.get(); });
  });
  c.def("get_valid", [](const PyUOp& u) {
    return made([&] {
      return u.get().is(Ops::WHERE) && u.get().src(2).is_invalid() ? u.get().src(0)
                                                                   : UOp::constant(!u.get().is_invalid());
    });
  });
  c.def("cast", [](const PyUOp& u, DType d) { return made([&] { return u.get().cast(d); }); }, "dtype"_a);
  c.def("bitcast", [](const PyUOp& u, DType d) { return made([&] { return u.get().bitcast(d); }); }, "dtype"_a);
  c.def(
      "const_like",
      [](const PyUOp& u, nb::handle value, std::optional<DType> d) {
        const std::optional<Literal> l = literal_from(value);
        if (!l) throw nb::type_error("const_like() takes a number");
        return made(
            [&] { return l->c.kind == ConstValue::kInvalid ? UOp::invalid() : l->like(d.value_or(u.get().dtype())); });
      },
      "b"_a, "dtype"_a = nb::none());
  c.def(
      "ufix",
      [](const PyUOp& u, nb::handle x) {
        const std::optional<Literal> l = literal_from(x);
        if (!l) throw nb::type_error("ufix() takes a UOp or a number");
        return made([&] { return l->like(u.get().dtype()); });
      },
      "x"_a);
  c.def("overflows", [](const PyUOp& u, DType d) {
    GraphScope g;
    return d.is_int() && (vmin(u.get()) < int_min(d) || vmax(u.get()) > int_max(d));
  });
  c.def_static(
      "_exec_alu",
      [](nb::handle op, DType dtype, nb::handle operands) {
        const Ops o = require_op(op);
        std::vector<ConstValue> v;
        for (nb::handle h : nb::iter(operands)) v.push_back(value_from(h));
        const bool ints = v.back().is_int() && !v.back().kind;
        const DType operand = groups::kComparison.has(o) ? (ints ? dtypes::weakint : dtypes::float64) : dtype;
        for (size_t i = o == Ops::WHERE ? 1 : 0; i < v.size(); i++)
          if (operand.is_float() && v[i].is_int()) v[i] = ConstValue(v[i].as_double());
        const ConstValue r = eval_alu(o, dtype, v, operand);
        return r.kind == ConstValue::kInvalid ? invalid_object() : to_python(r, dtype);
      },
      "op"_a, "dtype"_a, "operands"_a);
}

}  // namespace tg::python
