/// \file Operators that work on each element by itself: arithmetic, comparisons, functions, activations.
#include <cmath>
#include <numbers>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// Aligns the second operand as versions before 7 do: equal axes from `axis` on, if `broadcast` is set.
Tensor aligned(const NodeContext& c, const Tensor& a, const Tensor& b) {
  if (c.opset() >= 7 || !c.flag("broadcast") || !c.has_attribute("axis")) return b;
  const int axis = normal_axis(c.required_int("axis"), a.ndim());
  Shape s = b.shape();
  c.check(static_cast<int64_t>(s.size()) + axis <= a.ndim(), "axis ", axis, " leaves no room for shape ", s);
  while (static_cast<int64_t>(s.size()) + axis < a.ndim()) s.push_back(1);
  return b.reshape(s);
}

using Combine = Tensor (*)(const Tensor&, const Tensor&);

/// Combines two inputs: on the host where it knows both.
Values binary(const NodeContext& c, Combine combine) {
  if (c.known(0) && c.known(1) && c.opset() >= 7)
    if (HostRef h = host_binary(c.node().op, *c.known(0), *c.known(1))) return {h};
  const Tensor a = c.tensor(0);
  return {combine(a, aligned(c, a, c.tensor(1)))};
}
template <Combine kCombine> Values binary_op(NodeContext& c) { return binary(c, kCombine); }

Tensor divide(const Tensor& a, const Tensor& b) { return a.is_floating_point() ? a / b : a.trunc_div(b); }
Tensor logical(const Tensor& t) { return t.dtype().is_bool() ? t : t.ne(Tensor(0)); }

Values mod(NodeContext& c) {
  if (c.flag("fmod")) return {c.tensor(0).fmod(c.tensor(1))};
  return binary(c, [](const Tensor& a, const Tensor& b) { return a.mod(b); });
}

/// The result has the type of the base, whatever the exponent's is.
Values power(NodeContext& c) {
  const Tensor base = c.tensor(0), exponent = aligned(c, base, c.tensor(1));
  const DType d = base.dtype();
  if (const std::optional<double> e = known_number(c.value(1)); e && d.is_float() && exponent.ndim() == 0) {
    if (*e == 2) return {base * base};
    if (*e == 0.5) return {base.sqrt()};
    return {base.pow(Tensor(*e)).cast(d)};
  }
  if (d.is_int() && exponent.is_floating_point()) return {base.cast(dtypes::float64).pow(exponent).cast(d)};
  return {base.pow(exponent.cast(d)).cast(d)};
}

using Fold = Tensor (*)(const Tensor&, const Tensor&);
template <Fold kFold> Values variadic(NodeContext& c) {
  if (c.count() == 2 && c.known(0) && c.known(1))
    if (HostRef h = host_binary(c.node().op, *c.known(0), *c.known(1))) return {h};
  const Tensors t = c.tensors();
  c.check(!t.empty(), "got no inputs, expected at least one");
  Tensor out = t[0];
  for (size_t i = 1; i < t.size(); i++) out = kFold(out, t[i]);
  return {out};
}

Values mean(NodeContext& c) {
  const Tensors t = c.tensors();
  c.check(!t.empty(), "got no inputs, expected at least one");
  Tensor sum = t[0];
  for (size_t i = 1; i < t.size(); i++) sum = sum + t[i];
  return {sum / static_cast<double>(t.size())};
}

Values shift(NodeContext& c) {
  const bool left = c.choice("direction", "", {"LEFT", "RIGHT"}) == "LEFT";
  const Tensor a = c.tensor(0), b = c.tensor(1);
  return {left ? a.lshift(b) : a.rshift(b)};
}

Values where(NodeContext& c) {
  if (c.known(0) && c.known(1) && c.known(2))
    if (HostRef h = host_where(*c.known(0), *c.known(1), *c.known(2))) return {h};
  if (c.value(1).strings()) {
    const HostRef condition = c.host(0);
    const StringArray &a = c.strings(1), &b = c.strings(2);
    std::optional<std::vector<int64_t>> s = broadcast_shape(a.shape, b.shape);
    if (s) s = broadcast_shape(*s, condition->shape);
    c.check(s.has_value(), "got inputs that do not broadcast");
    TextList out(c, element_count(*s));
    const auto i = broadcast_positions(a.shape, *s), j = broadcast_positions(b.shape, *s),
               k = broadcast_positions(condition->shape, *s);
    for (size_t n = 0; n < i.size(); n++) out.add(condition->number(k[n]) != 0 ? a.texts[i[n]] : b.texts[j[n]]);
    return {out.in_shape(*s)};
  }
  return {moved(c.value(1), c.tensor(0).where(c.tensor(1), c.tensor(2)))};
}

Values equal(NodeContext& c) {
  if (!c.value(0).strings()) return binary(c, [](const Tensor& a, const Tensor& b) { return a.eq(b); });
  const StringArray &a = c.strings(0), &b = c.strings(1);
  const std::optional<std::vector<int64_t>> s = broadcast_shape(a.shape, b.shape);
  c.check(s.has_value(), "got shapes that do not broadcast");
  c.run().count_bytes(element_count(*s), sizeof(HostInt));
  const auto i = broadcast_positions(a.shape, *s), j = broadcast_positions(b.shape, *s);
  std::vector<HostInt> out;
  for (size_t n = 0; n < i.size(); n++) out.emplace_back(int64_t{a.texts[i[n]] == b.texts[j[n]]});
  return {HostArray::of(dtypes::bool_, *s, {std::move(out), {}})};
}

/// Computes a function of 16-bit floats in float32, so that it is rounded once.
template <class F> Tensor in_float(const Tensor& x, F&& f) {
  if (!x.is_floating_point() || x.dtype().itemsize() >= 4) return f(x);
  const Tensor y = f(x.cast(dtypes::float32));
  return y.dtype() == dtypes::float32 ? y.cast(x.dtype()) : y;
}

using Function = Tensor (*)(const Tensor&);
template <Function kFunction> Values unary_op(NodeContext& c) {
  if (c.known(0))
    if (HostRef h = host_unary(c.node().op, *c.known(0))) return {h};
  return {in_float(c.tensor(0), kFunction)};
}
/// A function with one or two parameters from attributes.
using Activation = Tensor (*)(const Tensor&, const NodeContext&);
template <Activation kActivation> Values activation(NodeContext& c) {
  return {in_float(c.tensor(0), [&](const Tensor& x) { return kActivation(x, c); })};
}

Values identity(NodeContext& c) { return {c.values().empty() ? Value() : c.values()[0]}; }

Tensor round_even(const Tensor& t) { return t.is_floating_point() ? t.round() : t; }

Values is_inf(NodeContext& c) {
  return {c.tensor(0).isinf(c.flag("detect_positive", true), c.flag("detect_negative", true))};
}

/// Bounds are attributes before version 11, inputs since then.
Values clip(NodeContext& c) {
  Tensor x = c.tensor(0);
  if (c.opset() < 11) {
    if (c.has_attribute("min")) x = x.maximum(x.ufix(c.attr("min", 0.0)));
    if (c.has_attribute("max")) x = x.minimum(x.ufix(c.attr("max", 0.0)));
    return {x};
  }
  const DType d = x.dtype();
  if (c.has(1)) x = x.maximum(c.tensor(1).reshape(Shape{}));
  if (c.has(2)) x = x.minimum(c.tensor(2).reshape(Shape{}));
  return {x.cast(d)};
}

Tensor leaky(const Tensor& x, double slope) { return x.lt(Tensor(0)).where(x * slope, x); }
Tensor elu(const Tensor& x, double alpha) { return x.lt(Tensor(0)).where((x.exp() - 1) * alpha, x); }

Tensor gelu_exact(const Tensor& x) { return x * 0.5 * ((x * std::numbers::sqrt2 / 2).erf() + 1); }
Tensor gelu(const Tensor& x, const NodeContext& c) {
  return c.choice("approximate", "none", {"none", "tanh"}) == "tanh" ? x.gelu(true) : gelu_exact(x);
}

Values prelu(NodeContext& c) {
  const Tensor x = c.tensor(0), slope = c.tensor(1);
  if (c.opset() < 7 && slope.ndim() == 1 && x.ndim() > 1)
    return {x.lt(Tensor(0)).where(x * along_axis(slope, slope.numel() == 1 ? 0 : 1, x.ndim()), x)};
  return {x.lt(Tensor(0)).where(x * slope, x)};
}

Tensor shrink(const Tensor& x, const NodeContext& c) {
  const double lambd = c.attr("lambd", 0.5), bias = c.attr("bias", 0.0);
  return x.lt(Tensor(-lambd)).where(x + bias, x.gt(Tensor(lambd)).where(x - bias, x.zeros_like())).cast(x.dtype());
}

Tensor softplus(const Tensor& x) { return x.maximum(Tensor(0)) + ((-x.abs()).exp() + 1).log(); }

/// The product of the input and a gate: x * sigmoid(alpha x) of one half, times the other.
Values swiglu(NodeContext& c) {
  const Tensor x = c.tensor(0), gate = c.tensor(1);
  return {x * (x * c.attr("alpha", 1.0)).sigmoid() * gate};
}

#define TG_F(expression) [](const Tensor& x) -> Tensor { return expression; }
#define TG_A(expression) [](const Tensor& x, const NodeContext& c) -> Tensor { return expression; }
#define TG_B(expression) [](const Tensor& a, const Tensor& b) -> Tensor { return expression; }
const OperatorRow kRows[] = {
    {"", "Add", 1, binary_op<TG_B(a + b)>},
    {"", "Sub", 1, binary_op<TG_B(a - b)>},
    {"", "Mul", 1, binary_op<TG_B(a* b)>},
    {"", "Div", 1, binary_op<divide>},
    {"", "Mod", 10, mod},
    {"", "Pow", 1, power},
    {"", "And", 1, binary_op<TG_B(logical(a).bitwise_and(logical(b)))>},
    {"", "Or", 1, binary_op<TG_B(logical(a).bitwise_or(logical(b)))>},
    {"", "Xor", 1, binary_op<TG_B(logical(a).ne(logical(b)))>},
    {"", "Equal", 1, equal},
    {"", "Less", 1, binary_op<TG_B(a.lt(b))>},
    {"", "Greater", 1, binary_op<TG_B(a.gt(b))>},
    {"", "LessOrEqual", 12, binary_op<TG_B(a.le(b))>},
    {"", "GreaterOrEqual", 12, binary_op<TG_B(a.ge(b))>},
    {"", "BitwiseAnd", 18, binary_op<TG_B(a.bitwise_and(b))>},
    {"", "BitwiseOr", 18, binary_op<TG_B(a.bitwise_or(b))>},
    {"", "BitwiseXor", 18, binary_op<TG_B(a.bitwise_xor(b))>},
    {"", "BitwiseNot", 18, unary_op<TG_F(x.bitwise_not())>},
    {"", "BitShift", 11, shift},
    {"", "Where", 9, where},
    {"", "Max", 1, variadic<TG_B(a.maximum(b))>},
    {"", "Min", 1, variadic<TG_B(a.minimum(b))>},
    {"", "Sum", 1, variadic<TG_B(a + b)>},
    {"", "Mean", 1, mean},
    {"", "Identity", 1, identity},
    {"", "Abs", 1, unary_op<TG_F(x.abs())>},
    {"", "Neg", 1, unary_op<TG_F(-x)>},
    {"", "Not", 1, unary_op<TG_F(!x)>},
    {"", "Sign", 9, unary_op<TG_F(x.sign())>},
    {"", "Reciprocal", 1, unary_op<TG_F(x.reciprocal())>},
    {"", "Floor", 1, unary_op<TG_F(x.floor())>},
    {"", "Ceil", 1, unary_op<TG_F(x.ceil())>},
    {"", "Round", 11, unary_op<round_even>},
    {"", "Sqrt", 1, unary_op<TG_F(x.sqrt())>},
    {"", "Exp", 1, unary_op<TG_F(x.exp())>},
    {"", "Log", 1, unary_op<TG_F(x.log())>},
    {"", "Sin", 7, unary_op<TG_F(x.sin())>},
    {"", "Cos", 7, unary_op<TG_F(x.cos())>},
    {"", "Tan", 7, unary_op<TG_F(x.tan())>},
    {"", "Asin", 7, unary_op<TG_F(x.asin())>},
    {"", "Acos", 7, unary_op<TG_F(x.acos())>},
    {"", "Atan", 7, unary_op<TG_F(x.atan())>},
    {"", "Sinh", 9, unary_op<TG_F(x.sinh())>},
    {"", "Cosh", 9, unary_op<TG_F(x.cosh())>},
    {"", "Tanh", 1, unary_op<TG_F(x.tanh())>},
    {"", "Asinh", 9, unary_op<TG_F(x.asinh())>},
    {"", "Acosh", 9, unary_op<TG_F(x.acosh())>},
    {"", "Atanh", 9, unary_op<TG_F(x.atanh())>},
    {"", "Erf", 9, unary_op<TG_F(x.erf())>},
    {"", "IsNaN", 9, unary_op<TG_F(x.isnan())>},
    {"", "IsInf", 10, is_inf},
    {"", "Relu", 1, unary_op<TG_F(x.relu())>},
    {"", "Sigmoid", 1, unary_op<TG_F(x.sigmoid())>},
    {"", "Softplus", 1, unary_op<softplus>},
    {"", "Softsign", 1, unary_op<TG_F(x / (x.abs() + 1))>},
    {"", "Mish", 18, unary_op<TG_F(x* softplus(x).tanh())>},
    {"", "HardSwish", 14, unary_op<TG_F(x*(x / 6 + 0.5).maximum(Tensor(0)).minimum(Tensor(1)))>},
    {"", "Clip", 1, clip},
    {"", "PRelu", 1, prelu},
    {"", "SwiGLU", 1, swiglu},
    {"", "LeakyRelu", 1, activation<TG_A(leaky(x, c.attr("alpha", 0.01)))>},
    {"", "ThresholdedRelu", 10, activation<TG_A(x.gt(Tensor(c.attr("alpha", 1.0))).where(x, x.zeros_like()))>},
    {"", "Elu", 1, activation<TG_A(elu(x, c.attr("alpha", 1.0)))>},
    {"", "Celu", 12,
     activation<TG_A(
         x.maximum(Tensor(0)) +
         ((x / c.attr("alpha", 1.0)).exp() * c.attr("alpha", 1.0) - c.attr("alpha", 1.0)).minimum(Tensor(0)))>},
    {"", "Selu", 1,
     activation<TG_A(elu(x, c.attr("alpha", 1.6732632423543772)) * c.attr("gamma", 1.0507009873554805))>},
    {"", "HardSigmoid", 1,
     activation<TG_A((x * c.attr("alpha", 0.2) + c.attr("beta", 0.5)).maximum(Tensor(0)).minimum(Tensor(1)))>},
    {"", "Gelu", 20, activation<gelu>},
    {"", "Shrink", 9, activation<shrink>},
    {"", "Swish", 24, activation<TG_A(x*(x* c.attr("alpha", 1.0)).sigmoid())>},
    {"com.microsoft", "Gelu", 1, unary_op<gelu_exact>},
    {"com.microsoft", "QuickGelu", 1, activation<TG_A(x*(x* c.attr("alpha", 1.702)).sigmoid())>},
};
#undef TG_F
#undef TG_A
#undef TG_B

}  // namespace

OperatorRows elementwise_operators() { return kRows; }

}  // namespace tg::onnx
