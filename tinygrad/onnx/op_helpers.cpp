/// \file What builders of operators share.
#include "tinygrad/onnx/op_helpers.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/onnx/run.h"
#include "tinygrad/uop/symbolic.h"

namespace tg::onnx {

TextList::TextList(const NodeContext& c, int64_t count) : run_(c.run()) {
  run_.count_bytes(count, sizeof(std::string));
}
void TextList::add(std::string s) {
  run_.count_bytes(static_cast<int64_t>(s.size()), 1);
  texts_.push_back(std::move(s));
}

Value moved(const Value& v, Tensor t) {
  const ElemType e = v.elem();
  const bool wider = packed_bits(e) != 0 || e == ElemType::kFloat8E8M0;
  return {std::move(t), wider ? e : ElemType::kUndefined};
}

DType wide_float(DType d) { return d == dtypes::float64 ? d : dtypes::float32; }

Shape shape_of(const std::vector<int64_t>& v) { return Shape{std::span<const int64_t>(v)}; }

SInt product(const Shape& s, size_t from, size_t to) {
  TG_CHECK(ShapeError, from <= to && to <= s.size(), "got axes ", from, " to ", to, " of shape ", s);
  const Shape part(s.begin() + static_cast<long>(from), s.begin() + static_cast<long>(to));
  if (!part.symbolic()) return part.numel();
  UOp n = UOp::constant(int64_t{1});
  for (const SInt& v : part) n = n * v.uop();
  return SInt(simplify(n));
}

Tensor along_axis(const Tensor& t, int64_t axis, int64_t rank) {
  Shape s;
  for (int64_t i = 0; i < rank; i++) s.push_back(i == axis ? t.shape()[0] : SInt(1));
  return t.reshape(s);
}

Tensor count_along(int64_t n, int64_t axis, int64_t rank, DType d, const std::string& device) {
  return along_axis(Tensor::arange(0, n, 1, {.dtype = d, .device = device}), axis, rank);
}

Tensors equal_parts(const Tensor& t, int64_t n, int axis) {
  const int64_t size = t.shape(axis);
  TG_CHECK(ShapeError, size > 0 && size % n == 0, "got ", size, " elements along axis ", axis, " of shape ", t.shape(),
           ", expected ", n, " equal parts");
  return t.split(size / n, axis);
}

std::vector<int> moved_axis(int64_t rank, int64_t from, int64_t to) {
  std::vector<int> order;
  for (int64_t i = 0; i < rank; i++)
    if (i != from) order.push_back(static_cast<int>(i));
  order.insert(order.begin() + to, static_cast<int>(from));
  return order;
}

std::pair<int64_t, int64_t> integer_range(ElemType t) {
  if (const int bits = packed_bits(t); bits && t != ElemType::kFloat4E2M1) {
    const bool is_signed = t == ElemType::kInt4 || t == ElemType::kInt2;
    const int64_t n = int64_t{1} << bits;
    return is_signed ? std::pair(-n / 2, n / 2 - 1) : std::pair(int64_t{0}, n - 1);
  }
  const DType d = number_dtype(t);
  return {static_cast<int64_t>(int_min(d)), static_cast<int64_t>(std::min(int_max(d), int128{INT64_MAX}))};
}

Value saturated(const Tensor& t, ElemType to) {
  const auto [lo, hi] = integer_range(to);
  const Tensor rounded = t.is_floating_point() ? t.round() : t;
  const Tensor kept = t.is_floating_point()
                          ? rounded.clamp(Tensor(static_cast<double>(lo)), Tensor(static_cast<double>(hi)))
                          : rounded.clamp(Tensor(lo), Tensor(hi));
  return {kept.cast(number_dtype(to)), packed_bits(to) ? to : ElemType::kUndefined};
}

namespace {

/// Rounds to the values of FLOAT4E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, half to even.
Tensor rounded_float4(const Tensor& x) {
  struct Step {
    double from;
    bool included;
    double adds;
  };
  constexpr Step kSteps[] = {{0.25, false, 0.5}, {0.75, true, 0.5}, {1.25, false, 0.5}, {1.75, true, 0.5},
                             {2.5, false, 1},    {3.5, true, 1},    {5, false, 2}};
  const Tensor size = x.cast(dtypes::float32).abs();
  Tensor sum = size.zeros_like();
  for (const Step& s : kSteps)
    sum = sum + (s.included ? size.ge(Tensor(s.from)) : size.gt(Tensor(s.from))).cast(dtypes::float32) * s.adds;
  return sum.copysign(x.cast(dtypes::float32));
}

/// Rounds to powers of two: those of FLOAT8E8M0.
Tensor rounded_e8m0(const Tensor& x, const std::string& mode) {
  const Tensor bits = x.cast(dtypes::float32).bitcast(dtypes::int32);
  const Tensor mantissa = bits.bitwise_and(Tensor(0x7fffff)),
               exponent = bits.rshift(Tensor(23)).bitwise_and(Tensor(255));
  const Tensor up = mode == "up"     ? mantissa.gt(Tensor(0))
                    : mode == "down" ? mantissa.lt(Tensor(0))
                                     : mantissa.ge(Tensor(0x400000));
  const Tensor rounded = (exponent + up.cast(dtypes::int32)).minimum(Tensor(254));
  const Tensor power = rounded.eq(Tensor(0)).where(Tensor(0x00400000), rounded.lshift(Tensor(23)));
  return exponent.eq(Tensor(255)).where(Tensor(0x7fc00000), power).cast(dtypes::int32).bitcast(dtypes::float32);
}

/// Makes what is too large for an 8-bit float NaN, or infinite where the type has infinities.
Tensor overflowed(const Tensor& x, const Tensor& cast, DType d) {
  const double limit = d == dtypes::fp8e4m3 ? 464 : d == dtypes::fp8e4m3fnuz ? 248 : 61440;
  const Tensor size = x.cast(dtypes::float32).abs();
  const Tensor outside = d == dtypes::fp8e4m3 ? size.gt(Tensor(limit)) : size.ge(Tensor(limit));
  const int nan = d == dtypes::fp8e4m3 ? 0x7f : d == dtypes::fp8e5m2 ? 0x7c : 0x80;
  const bool keeps_sign = d == dtypes::fp8e4m3 || d == dtypes::fp8e5m2;
  const Tensor bits = cast.bitcast(dtypes::uint8);
  const Tensor code = keeps_sign ? bits.bitwise_and(Tensor(0x80)).bitwise_or(Tensor(nan)) : bits.full_like(nan);
  return outside.where(code, bits).cast(dtypes::uint8).bitcast(d);
}

}  // namespace

Value cast_value(const Tensor& t, ElemType to, DType stored, bool saturate, const std::string& round_mode) {
  if (to == ElemType::kFloat4E2M1) return {rounded_float4(t), to};
  if (to == ElemType::kFloat8E8M0) return {rounded_e8m0(t, round_mode), to};
  if (const int bits = packed_bits(to)) {
    const Tensor code = t.cast(dtypes::int32).bitwise_and(Tensor((1 << bits) - 1));
    if (to == ElemType::kUInt4 || to == ElemType::kUInt2) return {code.cast(stored), to};
    const int half = 1 << (bits - 1);
    return {(code.bitwise_xor(Tensor(half)) - half).cast(stored), to};
  }
  if (!stored.is_fp8()) return t.cast(stored);
  if (!saturate) return overflowed(t, t.cast(stored), stored);
  const double most = stored == dtypes::fp8e4m3 ? 448 : stored == dtypes::fp8e4m3fnuz ? 240 : 57344;
  return t.clamp(Tensor(-most), Tensor(most)).cast(stored);  // infinities as well
}

int64_t whole(double v) {
  constexpr double kMost = 0x1p60;
  return std::isnan(v) ? 0 : static_cast<int64_t>(std::clamp(v, -kMost, kMost));
}

std::optional<double> known_number(const Value& v) {
  const HostArray* h = v.host();
  if (!h || h->count() != 1 || h->symbolic()) return {};
  return h->number(0);
}

int64_t Window::output_size(size_t i, int64_t size) const {
  const int64_t room = size + pads[i].first + pads[i].second - dilations[i] * (kernel[i] - 1) - 1;
  int64_t n = (ceil_mode ? room + strides[i] - 1 : room) / strides[i] + 1;
  // A window must begin inside of the input or the padding before it.
  if (ceil_mode && (n - 1) * strides[i] >= size + pads[i].first) n--;
  return n;
}

SInt Window::output_size(size_t i, const SInt& size) const {
  if (!size.symbolic()) return output_size(i, size.value());
  TG_CHECK(ShapeError, !ceil_mode, "got the symbolic size ", size, " with ceil_mode, expected a number");
  const UOp room = size.uop() + UOp::constant(pads[i].first + pads[i].second - dilations[i] * (kernel[i] - 1) - 1);
  return SInt(simplify(room / UOp::constant(strides[i]) + UOp::constant(int64_t{1})));
}

namespace {

/// Returns the padding that makes the output as large as the input divided by the stride.
std::pair<int64_t, int64_t> same_pads(int64_t size, int64_t kernel, int64_t stride, int64_t dilation, bool upper) {
  const int64_t out = (size + stride - 1) / stride;
  const int64_t total = std::max<int64_t>(0, (out - 1) * stride + dilation * (kernel - 1) + 1 - size);
  return upper ? std::pair(total / 2, total - total / 2) : std::pair(total - total / 2, total / 2);
}

}  // namespace

Window window_of(const NodeContext& c, const Shape& x, std::vector<int64_t> kernel) {
  Window w;
  w.kernel = c.attr_ints("kernel_shape", std::move(kernel));
  const size_t n = w.kernel.size();
  c.check(n + 2 == x.size(), "kernel_shape has ", n, " sizes for an input of shape ", x);
  w.strides = c.attr_ints("strides", std::vector<int64_t>(n, 1));
  w.dilations = c.attr_ints("dilations", std::vector<int64_t>(n, 1));
  std::vector<int64_t> pads = c.attr_ints("pads", std::vector<int64_t>(2 * n, 0));
  c.check(w.strides.size() == n && w.dilations.size() == n && pads.size() == 2 * n, "strides, dilations and pads have ",
          w.strides.size(), ", ", w.dilations.size(), " and ", pads.size(), " numbers for ", n, " axes");
  w.ceil_mode = c.flag("ceil_mode");
  const std::string automatic = c.choice("auto_pad", "NOTSET", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
  for (size_t i = 0; i < n; i++) {
    const auto sane = [](int64_t v) { return v > 0 && v <= INT32_MAX; };
    c.check(std::abs(pads[i]) <= INT32_MAX && std::abs(pads[n + i]) <= INT32_MAX, "pads has ", pads[i], " and ",
            pads[n + i]);
    c.check(sane(w.kernel[i]) && sane(w.strides[i]) && sane(w.dilations[i]),
            "kernel_shape, strides and dilations have ", w.kernel[i], ", ", w.strides[i], " and ", w.dilations[i],
            " for axis ", i, ", expected 1 or more");
    if (automatic == "NOTSET") w.pads.emplace_back(pads[i], pads[n + i]);
    else if (automatic == "VALID") w.pads.emplace_back(0, 0);
    else
      w.pads.push_back(
          same_pads(x[i + 2].value(), w.kernel[i], w.strides[i], w.dilations[i], automatic == "SAME_UPPER"));
  }
  return w;
}

Ints pads_last_first(const Pads& pads) {
  Ints out;
  for (size_t i = pads.size(); i-- > 0;) {
    out.push_back(pads[i].first);
    out.push_back(pads[i].second);
  }
  return out;
}

std::vector<std::pair<int64_t, int64_t>> pads_with_lead(const Pads& pads, int64_t rank) {
  std::vector<std::pair<int64_t, int64_t>> out(static_cast<size_t>(rank) - pads.size(), {0, 0});
  out.insert(out.end(), pads.begin(), pads.end());
  return out;
}

}  // namespace tg::onnx
