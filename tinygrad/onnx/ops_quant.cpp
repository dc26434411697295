/// \file Quantization, and products of quantized numbers, which are summed as integers.
#include <algorithm>
#include <cmath>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

/// Returns scales or zero points as they broadcast to `x`: one for all, one for each place of an axis, or one for each
/// block along it.
Tensor spread(const NodeContext& c, const Tensor& t, const Tensor& x) {
  if (t.numel() == 1) return t.reshape(Shape{});
  const int axis = normal_axis(c.attr("axis", int64_t{1}), x.ndim());
  if (t.ndim() == 1 && x.ndim() >= 1) return along_axis(t, axis, x.ndim());
  const int64_t block = c.attr("block_size", int64_t{0});
  c.check(t.ndim() == x.ndim() && t.numel() > 0, "got scales of shape ", t.shape(), " for shape ", x.shape());
  const int64_t each = block > 0 ? block : (x.shape(axis) + t.shape(axis) - 1) / t.shape(axis);
  const Tensor repeated = t.repeat_interleave(each, axis);
  return repeated.shape(axis) == x.shape(axis) ? repeated : repeated.slice(axis, 0, x.shape(axis));
}

bool is_integer(ElemType t) { return packed_bits(t) ? t != ElemType::kFloat4E2M1 : storage_dtype(t)->is_int(); }

Values quantize(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const std::optional<int64_t> named = c.optional_int("output_dtype");
  const ElemType to = c.has(2)               ? c.value(2).elem()
                      : named && *named != 0 ? static_cast<ElemType>(*named)
                                             : ElemType::kUInt8;
  const DType d = wide_float(x.is_floating_point() ? x.dtype() : dtypes::float32);
  const Tensor scaled = x.cast(d) / spread(c, c.tensor(1).cast(d), x);
  const bool shifted = c.has(2) && is_integer(to);
  if (!is_integer(to)) return {cast_value(scaled, to, c.dtype_of(to), c.flag("saturate", true))};
  const Tensor rounded = scaled.round();
  return {saturated(shifted ? rounded + spread(c, c.tensor(2).cast(d), x) : rounded, to)};
}

Values dequantize(NodeContext& c) {
  const Tensor x = c.tensor(0), scale = c.tensor(1);
  const std::optional<int64_t> named = c.optional_int("output_dtype");
  const DType out = named && *named != 0 ? c.dtype_of(static_cast<ElemType>(*named)) : scale.dtype();
  Tensor v = x;
  if (c.has(2) && is_integer(c.value(2).elem()))
    v = x.cast(dtypes::int32) - spread(c, c.tensor(2).cast(dtypes::int32), x);
  return {(v.cast(wide_float(out)) * spread(c, scale.cast(wide_float(out)), x)).cast(out)};
}

/// Quantizes to uint8 with a scale of the input's own range, which includes 0.
Values dynamic_quantize(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const Tensor low = x.min().minimum(Tensor(0.0)), high = x.max().maximum(Tensor(0.0));
  const Tensor scale = ((high - low) / 255).cast(dtypes::float32);
  const Tensor divisor = scale.eq(Tensor(0.0)).where(Tensor(1.0), scale);
  const Tensor zero = (-low / divisor).round().clamp(Tensor(0.0), Tensor(255.0));
  return {saturated((x / divisor).round() + zero, ElemType::kUInt8), scale, zero.cast(dtypes::uint8)};
}

/// Returns whether a zero point is known to be 0 everywhere.
bool is_zero(const NodeContext& c, size_t i) {
  if (!c.has(i)) return true;
  const HostArray* h = c.known(i);
  return h && std::ranges::all_of(h->ints, [](const HostInt& v) { return v.value == 0; });
}

/// Returns an operand without its zero point, in the narrowest type that has its values. `axis`: along which zero
/// points of several rows or columns lie.
Tensor centered(const NodeContext& c, size_t i, size_t zero, int axis) {
  const Tensor x = c.tensor(i);
  if (is_zero(c, zero)) return x;
  Tensor z = c.tensor(zero).cast(dtypes::int16);
  if (z.numel() == 1) z = z.reshape(Shape{});
  else if (z.ndim() == 1) z = along_axis(z, normal_axis(axis, x.ndim()), x.ndim());
  return x.cast(dtypes::int16) - z;
}

Tensor integer_product(const Tensor& a, const Tensor& b) { return a.dot(b, dtypes::int32).cast(dtypes::int32); }

Values matmul_integer(NodeContext& c) { return {integer_product(centered(c, 0, 2, -2), centered(c, 1, 3, -1))}; }

/// Returns a scale for the result: one number, or one for each place along an axis from the end.
Tensor factor(const NodeContext& c, size_t i, int64_t rank, int axis) {
  const Tensor t = c.tensor(i).cast(dtypes::float32);
  if (t.numel() == 1) return t.reshape(Shape{});
  return t.ndim() == 1 ? along_axis(t, normal_axis(axis, rank), rank) : t;
}

/// Brings sums of integers to the scale and zero point of the result.
Value requantized(const NodeContext& c, const Tensor& sum, const Tensor& scale, size_t out_scale, size_t out_zero) {
  const Tensor v = sum.cast(dtypes::float32) * (scale / c.tensor(out_scale).cast(dtypes::float32).reshape(Shape{}));
  return saturated(v.round() + c.tensor(out_zero).cast(dtypes::float32).reshape(Shape{}), c.value(out_zero).elem());
}

Values qlinear_matmul(NodeContext& c) {
  const Tensor sum = integer_product(centered(c, 0, 2, -2), centered(c, 3, 5, -1));
  return {requantized(c, sum, factor(c, 1, sum.ndim(), -2) * factor(c, 4, sum.ndim(), -1), 6, 7)};
}

/// The convolution of integers, summed in 32 bits.
Tensor integer_conv(const NodeContext& c, const Tensor& x, const Tensor& weight) {
  std::vector<int64_t> kernel;
  for (int i = 2; i < weight.ndim(); i++) kernel.push_back(weight.shape(i));
  const Window w = window_of(c, x.shape(), kernel);
  return x.conv2d(weight, Tensor(),
                  {.groups = c.attr("group", int64_t{1}),
                   .stride = Ints(w.strides),
                   .dilation = Ints(w.dilations),
                   .padding = pads_last_first(w.pads),
                   .dtype = dtypes::int32});
}

Values conv_integer(NodeContext& c) { return {integer_conv(c, centered(c, 0, 2, 1), centered(c, 1, 3, 0))}; }

Values qlinear_conv(NodeContext& c) {
  Tensor sum = integer_conv(c, centered(c, 0, 2, 1), centered(c, 3, 5, 0));
  if (c.has(8)) sum = sum + along_axis(c.tensor(8), 1, sum.ndim());
  return {requantized(c, sum, factor(c, 1, sum.ndim(), 1) * factor(c, 4, sum.ndim(), 1), 6, 7)};
}

/// Returns a quantized input's values: input `i`, its scale and its zero point follow each other.
Tensor dequantized(const NodeContext& c, size_t i) {
  const Tensor x = c.tensor(i).cast(dtypes::float32);
  const Tensor zero = c.has(i + 2) ? c.tensor(i + 2).cast(dtypes::float32).reshape(Shape{}) : Tensor(0.0);
  return (x - zero) * c.tensor(i + 1).reshape(Shape{});
}
/// Quantizes a result by the scale and zero point in inputs `i` and the one after it.
Value quantized(const NodeContext& c, const Tensor& v, size_t i, size_t like = 0) {
  const Tensor scaled = (v / c.tensor(i).reshape(Shape{})).round();
  if (!c.has(i + 1)) return saturated(scaled, c.value(like).elem());
  return saturated(scaled + c.tensor(i + 1).cast(dtypes::float32).reshape(Shape{}), c.value(i + 1).elem());
}

Values qlinear_add(NodeContext& c) { return {quantized(c, dequantized(c, 0) + dequantized(c, 3), 6)}; }
Values qlinear_mul(NodeContext& c) { return {quantized(c, dequantized(c, 0) * dequantized(c, 3), 6)}; }
Values qlinear_sigmoid(NodeContext& c) { return {quantized(c, dequantized(c, 0).sigmoid(), 3)}; }
Values qlinear_leaky_relu(NodeContext& c) {
  return {quantized(c, dequantized(c, 0).leaky_relu(c.attr("alpha", 0.01)), 3)};
}
Values qlinear_global_average(NodeContext& c) {
  const Tensor x = dequantized(c, 0);
  const int first = c.flag("channels_last") ? 1 : 2;
  std::vector<int> axes;
  for (int i = first; i < x.ndim() - 2 + first; i++) axes.push_back(i);
  return {quantized(c, x.mean({.axis = Axes(axes), .keepdim = true}), 3)};
}
/// Scale and zero point of the result come first, then three inputs for each part.
Values qlinear_concat(NodeContext& c) {
  Tensors parts;
  for (size_t i = 2; i + 1 < c.count(); i += 3) parts.push_back(dequantized(c, i));
  c.check(!parts.empty(), "got ", c.count(), " inputs, expected 5 or more");
  return {quantized(c, Tensor::cat(parts, normal_axis(c.required_int("axis"), parts[0].ndim())), 0, 2)};
}

/// A product of integers, scaled: A B a_scale b_scale + bias.
Values matmul_integer_to_float(NodeContext& c) {
  const Tensor sum = integer_product(centered(c, 0, 4, -2), centered(c, 1, 5, -1));
  Tensor out = sum.cast(dtypes::float32) * (factor(c, 2, sum.ndim(), -2) * factor(c, 3, sum.ndim(), -1));
  if (c.has(6)) out = out + c.tensor(6);
  return {out};
}

/// Quantizes A by its own range, multiplies by B as integers, and scales.
Values dynamic_quantize_matmul(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const Tensor low = x.min().minimum(Tensor(0.0)), high = x.max().maximum(Tensor(0.0));
  const Tensor scale = (high - low) / 255, divisor = scale.eq(Tensor(0.0)).where(Tensor(1.0), scale);
  const Tensor zero = (-low / divisor).round().clamp(Tensor(0.0), Tensor(255.0));
  const Tensor code = ((x / divisor).round() + zero).clamp(Tensor(0.0), Tensor(255.0));
  const Tensor a = (code - zero).cast(dtypes::int16);
  const Tensor sum = integer_product(a, centered(c, 1, 3, -1));
  Tensor out = sum.cast(dtypes::float32) * (scale * factor(c, 2, sum.ndim(), -1));
  if (c.has(4)) out = out + c.tensor(4);
  return {out};
}

/// A times a matrix whose rows, one for each column of the result, are blocks of 4-bit (or 2- or 8-bit) numbers.
Values matmul_nbits(NodeContext& c) {
  const int64_t k = c.required_int("K"), n = c.required_int("N"), bits = c.attr("bits", int64_t{4});
  const int64_t block = c.required_int("block_size");
  c.check(bits == 2 || bits == 4 || bits == 8, "attribute bits is ", bits, ", expected 2, 4 or 8");
  c.check(!c.has(4), "input g_idx is not supported");
  c.check(k > 0 && n > 0 && block > 0 && k <= INT32_MAX && block <= INT32_MAX, "attributes K, N and block_size are ", k,
          ", ", n, " and ", block);
  const int64_t blocks = (k + block - 1) / block, each = 8 / bits;
  const auto unpacked = [&](const Tensor& bytes, const Shape& to) {  // the first number in the lowest bits
    Tensors parts;
    for (int64_t i = 0; i < each; i++)
      parts.push_back(bytes.rshift(Tensor(i * bits)).bitwise_and(Tensor((1 << bits) - 1)).cast(dtypes::uint8));
    return Tensor::stack(parts, -1).reshape(to);
  };
  const Tensor a = c.tensor(0);
  const DType d = a.dtype();
  const Tensor codes = unpacked(c.tensor(1), Shape{n, blocks, block}).cast(d);
  Tensor zero = Tensor(static_cast<double>(1 << (bits - 1)));
  if (c.has(3)) {
    const Tensor z = c.tensor(3);
    const int64_t row = (blocks + each - 1) / each;
    zero = z.is_floating_point()
               ? z.reshape(Shape{n, blocks, 1})
               : unpacked(z.reshape(Shape{n, row}), Shape{n, row * each}).slice(1, 0, blocks).unsqueeze(2).cast(d);
  }
  const Tensor weight = ((codes - zero) * c.tensor(2).reshape(Shape{n, blocks, 1})).reshape(Shape{n, blocks * block});
  Tensor out = a.dot(weight.slice(1, 0, k).transpose(0, 1));
  if (c.has(5)) out = out + c.tensor(5);
  return {out.cast(d)};
}

const OperatorRow kRows[] = {
    {"", "QuantizeLinear", 10, quantize},
    {"", "DequantizeLinear", 10, dequantize},
    {"", "DynamicQuantizeLinear", 11, dynamic_quantize},
    {"", "MatMulInteger", 10, matmul_integer},
    {"", "ConvInteger", 10, conv_integer},
    {"", "QLinearMatMul", 10, qlinear_matmul},
    {"", "QLinearConv", 10, qlinear_conv},
    {"com.microsoft", "QuantizeLinear", 1, quantize},
    {"com.microsoft", "DequantizeLinear", 1, dequantize},
    {"com.microsoft", "QLinearAdd", 1, qlinear_add},
    {"com.microsoft", "QLinearMul", 1, qlinear_mul},
    {"com.microsoft", "QLinearSigmoid", 1, qlinear_sigmoid},
    {"com.microsoft", "QLinearLeakyRelu", 1, qlinear_leaky_relu},
    {"com.microsoft", "QLinearGlobalAveragePool", 1, qlinear_global_average},
    {"com.microsoft", "QLinearConcat", 1, qlinear_concat},
    {"com.microsoft", "MatMulIntegerToFloat", 1, matmul_integer_to_float},
    {"com.microsoft", "DynamicQuantizeMatMul", 1, dynamic_quantize_matmul},
    {"com.microsoft", "MatMulNBits", 1, matmul_nbits},
};

}  // namespace

OperatorRows quant_operators() { return kRows; }

}  // namespace tg::onnx
