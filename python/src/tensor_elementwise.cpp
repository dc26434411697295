/// \file Elementwise methods and operators.
#include "bind.h"
#include "casters.h"

namespace tg::python {

namespace {
using Method = Tensor (Tensor::*)(const Tensor&) const;

/// x.name(y, reverse=False)
void binary(TensorClass& c, const char* name, Method f, const char* argument = "x") {
  c.def(
      name,
      [f](const Tensor& a, const Operand& b, bool reverse) { return reverse ? (b.tensor.*f)(a) : (a.*f)(b.tensor); },
      nb::arg(argument), "reverse"_a = false);
}

/// a op b, b op a, a op= b. In place means assignment to the same storage.
void operators(TensorClass& c, const char* op, Method f, bool in_place = true) {
  c.def(
      str("__", op, "__").c_str(), [f](const Tensor& a, const Operand& b) { return (a.*f)(b.tensor); },
      nb::is_operator());
  c.def(
      str("__r", op, "__").c_str(), [f](const Tensor& a, const Operand& b) { return (b.tensor.*f)(a); },
      nb::is_operator());
  if (in_place)
    c.def(
        str("__i", op, "__").c_str(),
        [f](nb::object self, const Operand& b) {
          Tensor& t = nb::cast<Tensor&>(self);
          const GraphScope scope;  // of several threads each counts
          t.assign((t.*f)(b.tensor));
          return self;
        },
        nb::is_operator());
}
/// Of a tensor the exponent is a value like others, of a number it is checked: a whole number to the power of -1 is a
/// mistake.
struct Power {
  static Tensor exponent(nb::handle given, const Tensor& t) {
    return nb::isinstance<Tensor>(given) && t.dtype() == dtypes::weakint ? t.cast(dtypes::default_int()) : t;
  }
  static nb::object raised(nb::handle a, nb::handle b) {
    const std::optional<Tensor> base = operand_from(a), power = operand_from(b);
    return base && power ? nb::cast(base->pow(exponent(b, *power))) : nb::borrow(Py_NotImplemented);
  }
};
}  // namespace

void bind_tensor_elementwise(TensorClass& c) {
#define TG_UNARY(name) c.def(#name, &Tensor::name)
  TG_UNARY(neg);
  TG_UNARY(logical_not);
  TG_UNARY(bitwise_not);
  TG_UNARY(reciprocal);
  TG_UNARY(trunc);
  TG_UNARY(sqrt);
  TG_UNARY(rsqrt);
  TG_UNARY(sin);
  TG_UNARY(cos);
  TG_UNARY(tan);
  TG_UNARY(asin);
  TG_UNARY(acos);
  TG_UNARY(atan);
  TG_UNARY(sinh);
  TG_UNARY(cosh);
  TG_UNARY(asinh);
  TG_UNARY(acosh);
  TG_UNARY(atanh);
  TG_UNARY(exp);
  TG_UNARY(exp2);
  TG_UNARY(log);
  TG_UNARY(log2);
  TG_UNARY(log10);
  TG_UNARY(square);
  TG_UNARY(abs);
  TG_UNARY(sign);
  TG_UNARY(ceil);
  TG_UNARY(floor);
  TG_UNARY(round);
  TG_UNARY(isnan);
  TG_UNARY(isfinite);
  TG_UNARY(erf);
  TG_UNARY(relu);
  TG_UNARY(relu6);
  TG_UNARY(sigmoid);
  TG_UNARY(tanh);
  TG_UNARY(silu);
  TG_UNARY(swish);
  TG_UNARY(quick_gelu);
  TG_UNARY(hardswish);
  TG_UNARY(softsign);
  TG_UNARY(logsigmoid);
  TG_UNARY(mish);
#undef TG_UNARY
  c.def("isinf", &Tensor::isinf, "detect_positive"_a = true, "detect_negative"_a = true);
  c.def(
      "gelu",
      [](const Tensor& t, const std::string& approximate) {
        TG_CHECK(ValueError, approximate == "tanh" || approximate == "none", "[gelu] got approximate='", approximate,
                 "', expected 'tanh' or 'none'");
        return t.gelu(approximate == "tanh");
      },
      "approximate"_a = "tanh");
  c.def("elu", &Tensor::elu, "alpha"_a = 1.0);
  c.def("celu", &Tensor::celu, "alpha"_a = 1.0);
  c.def("selu", &Tensor::selu, "alpha"_a = 1.67326, "gamma"_a = 1.0507);
  c.def("leaky_relu", &Tensor::leaky_relu, "neg_slope"_a = 0.01);
  c.def("hardtanh", &Tensor::hardtanh, "min_val"_a = -1.0, "max_val"_a = 1.0);
  c.def("hardsigmoid", &Tensor::hardsigmoid, "alpha"_a = 1.0 / 6, "beta"_a = 0.5);
  c.def("softplus", &Tensor::softplus, "beta"_a = 1.0);
  auto clamp = [](const Tensor& t, std::optional<Operand> lo, std::optional<Operand> hi) {
    auto side = [](const std::optional<Operand>& o) { return o ? std::optional<Tensor>(o->tensor) : std::nullopt; };
    return t.clamp(side(lo), side(hi));
  };
  c.def("clamp", clamp, "min_"_a = nb::none(), "max_"_a = nb::none());
  c.def("clip", clamp, "min_"_a = nb::none(), "max_"_a = nb::none());
  c.def(
      "isclose",
      [](const Tensor& a, const Operand& b, double rtol, double atol, bool equal_nan) {
        return a.isclose(b.tensor, rtol, atol, equal_nan);
      },
      "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false);
  c.def(
      "allclose",
      [](const Tensor& a, const Operand& b, double rtol, double atol, bool equal_nan) {
        return a.allclose(b.tensor, rtol, atol, equal_nan);
      },
      "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false);

  binary(c, "add", &Tensor::add);
  binary(c, "sub", &Tensor::sub);
  binary(c, "mul", &Tensor::mul);
  c.def(
      "pow",
      [](nb::handle a, nb::handle b, bool reverse) { return reverse ? Power::raised(b, a) : Power::raised(a, b); },
      "x"_a, "reverse"_a = false);
  binary(c, "mod", &Tensor::mod);
  binary(c, "fmod", &Tensor::fmod);
  binary(c, "bitwise_and", &Tensor::bitwise_and);
  binary(c, "bitwise_or", &Tensor::bitwise_or);
  binary(c, "bitwise_xor", &Tensor::bitwise_xor);
  binary(c, "lshift", &Tensor::lshift);
  binary(c, "rshift", &Tensor::rshift);
  binary(c, "eq", &Tensor::eq);
  binary(c, "ne", &Tensor::ne);
  binary(c, "maximum", &Tensor::maximum);
  binary(c, "minimum", &Tensor::minimum);
  binary(c, "copysign", &Tensor::copysign, "other");
  binary(c, "logaddexp", &Tensor::logaddexp, "other");
  binary(c, "idiv", &Tensor::trunc_div);
  c.def(
      "div",
      [](const Tensor& a, const Operand& b, bool reverse, std::optional<std::string> mode) {
        const Tensor &x = reverse ? b.tensor : a, &y = reverse ? a : b.tensor;
        if (!mode) return x.div(y);
        TG_CHECK(ValueError, *mode == "trunc" || *mode == "floor", "[div] got rounding_mode '", *mode,
                 "', expected 'trunc', 'floor' or None");
        return *mode == "trunc" ? x.trunc_div(y) : x.floor_div(y);
      },
      "x"_a, "reverse"_a = false, "rounding_mode"_a = nb::none());
  c.def("threefry", &Tensor::threefry, "seed"_a);
  auto operands = [](const nb::args& args) {
    Tensors t;
    for (nb::handle h : args) {
      if (PyList_Check(h.ptr()) || PyTuple_Check(h.ptr()))
        for (nb::handle x : nb::iter(h)) t.push_back(nb::cast<Operand>(x).tensor);
      else t.push_back(nb::cast<Operand>(h).tensor);
    }
    return t;
  };
  c.def(
      "alu",
      [operands](const Tensor& t, nb::object op, nb::args src) {
        const std::string name = nb::cast<std::string>(op.attr("name"));
        for (size_t i = 0; i < static_cast<size_t>(kOpCount); i++)
          if (name_of(static_cast<Ops>(i)) == name) return t.alu(static_cast<Ops>(i), operands(src));
        throw ValueError(str("[alu] got ", name, ", expected a member of Ops"));
      },
      "op"_a, "src"_a);
  c.def("usum", [operands](const Tensor& a, nb::args others) { return a.usum(operands(others)); }, "uops"_a);
  c.def("uprod", [operands](const Tensor& a, nb::args others) { return a.uprod(operands(others)); }, "uops"_a);
  c.def(
      "ufix",
      [](const Tensor& t, nb::object x) {
        return nb::isinstance<Tensor>(x) ? x : nb::cast(t.ufix(nb::cast<Scalar>(x)));
      },
      "x"_a);
  c.def(
      "lerp", [](const Tensor& a, const Operand& end, const Operand& w) { return a.lerp(end.tensor, w.tensor); },
      "end"_a, "weight"_a);
  c.def(
      "where", [](const Tensor& a, const Operand& x, const Operand& y) { return a.where(x.tensor, y.tensor); }, "x"_a,
      "y"_a);
  c.def(
      "masked_fill",
      [](const Tensor& a, const Operand& mask, const Operand& v) { return a.masked_fill(mask.tensor, v.tensor); },
      "mask"_a, "value"_a);

  operators(c, "add", &Tensor::add);
  operators(c, "sub", &Tensor::sub);
  operators(c, "mul", &Tensor::mul);
  operators(c, "truediv", &Tensor::div);
  operators(c, "floordiv", &Tensor::floor_div);
  operators(c, "mod", &Tensor::mod);
  c.def("__pow__", [](nb::handle a, nb::handle b) { return Power::raised(a, b); });
  c.def("__rpow__", [](nb::handle a, nb::handle b) { return Power::raised(b, a); });
  c.def("__ipow__", [](nb::object a, nb::handle b) {
    const nb::object r = Power::raised(a, b);
    if (r.is(nb::borrow(Py_NotImplemented))) return r;
    nb::cast<Tensor&>(a).assign(nb::cast<Tensor&>(r));
    return a;
  });
  operators(c, "and", &Tensor::bitwise_and);
  operators(c, "or", &Tensor::bitwise_or);
  operators(c, "xor", &Tensor::bitwise_xor);
  operators(c, "lshift", &Tensor::lshift);
  operators(c, "rshift", &Tensor::rshift);
  auto compare = [&c](const char* name, Method f) {
    c.def(name, [f](const Tensor& a, const Operand& b) { return (a.*f)(b.tensor); }, nb::is_operator());
  };
  compare("__lt__", &Tensor::lt);
  compare("__gt__", &Tensor::gt);
  compare("__le__", &Tensor::le);
  compare("__ge__", &Tensor::ge);
  // Equal to nothing else: what is no operand goes to the other side's own comparison.
  auto equal = [&c](const char* name, Method f) {
    c.def(
        name,
        [f](const Tensor& a, nb::handle b) -> nb::object {
          std::optional<Tensor> t = operand_from(b);
          if (!t) refuse_array(b);
          return t ? nb::cast((a.*f)(*t)) : nb::borrow(Py_NotImplemented);
        },
        nb::arg("other").none());
  };
  equal("__eq__", &Tensor::eq);
  equal("__ne__", &Tensor::ne);
  // Python would take a product with a list for its repetition.
  auto refuse = [](const Tensor&, nb::handle h) -> Tensor {
    throw nb::type_error(str("expected a Tensor or number, got ", Py_TYPE(h.ptr())->tp_name,
                             PyUnicode_Check(h.ptr()) ? "" : ": write Tensor([...])")
                             .c_str());
  };
  for (const char* name : {"__mul__", "__rmul__", "__imul__"}) {
    c.def(name, [refuse](const Tensor& t, nb::str s) { return refuse(t, s); }, nb::is_operator());
    c.def(name, [refuse](const Tensor& t, nb::list s) { return refuse(t, s); }, nb::is_operator());
    c.def(name, [refuse](const Tensor& t, nb::tuple s) { return refuse(t, s); }, nb::is_operator());
  }
  c.def("__neg__", &Tensor::neg);
  c.def("__invert__", &Tensor::bitwise_not);
  c.def("__abs__", &Tensor::abs);
}

}  // namespace tg::python
