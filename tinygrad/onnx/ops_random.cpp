/// \file Operators that draw random numbers.
#include <algorithm>
#include <cmath>
#include <random>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

/// Returns the type to draw: the attribute, else that of the input if it is a float, else float32.
DType drawn_type(const NodeContext& c, bool like) {
  if (const std::optional<int64_t> t = c.optional_int("dtype")) return c.dtype_of(static_cast<ElemType>(*t));
  const DType d = like ? c.tensor(0).dtype() : dtypes::float32;
  return d.is_float() ? d : dtypes::float32;
}
Shape drawn_shape(const NodeContext& c, bool like) {
  return like ? c.value(0).shape() : shape_of(c.attr_ints("shape"));
}

Values normal(NodeContext& c) {
  const bool like = c.node().op.ends_with("Like");
  const Tensor t = Tensor::randn(drawn_shape(c, like), {.device = c.device()});
  return {(t * c.attr("scale", 1.0) + c.attr("mean", 0.0)).cast(drawn_type(c, like))};
}

Values uniform(NodeContext& c) {
  const bool like = c.node().op.ends_with("Like");
  const double low = c.attr("low", 0.0), high = c.attr("high", 1.0);
  const Tensor t = Tensor::rand(drawn_shape(c, like), {.device = c.device()});
  return {(t * (high - low) + low).cast(drawn_type(c, like))};
}

/// Draws true with the probabilities of the input.
Values bernoulli(NodeContext& c) {
  const Tensor p = c.tensor(0);
  const std::optional<int64_t> type = c.optional_int("dtype");
  const DType d = type ? c.dtype_of(static_cast<ElemType>(*type)) : p.dtype();
  return {Tensor::rand(p.shape(), {.device = c.device()}).lt(p).cast(d)};
}

Values multinomial(NodeContext& c) {
  const Tensor weights = c.tensor(0).cast(dtypes::float32).exp();
  const DType d = c.dtype_of(static_cast<ElemType>(c.attr("dtype", int64_t{6})));
  return {weights.multinomial(c.attr("sample_size", int64_t{1}), true).cast(d)};
}

/// Returns the numbers from 0 to 1 that the standard's reference draws for a seed: those of NumPy's RandomState, which
/// makes one of two words of a Mersenne Twister.
std::vector<double> reference_numbers(int64_t seed, size_t count) {
  std::mt19937 words(static_cast<uint32_t>(seed));
  std::vector<double> out(count);
  for (double& v : out) {
    const auto high = static_cast<double>(words() >> 5), low = static_cast<double>(words() >> 6);
    v = std::ldexp(high, -27) + std::ldexp(low, -53);
  }
  return out;
}

/// Draws which elements stay. With a seed they are the same in every call, and those of the standard's reference.
Tensor kept(const NodeContext& c, const Shape& shape, double ratio) {
  const std::optional<int64_t> seed = c.optional_int("seed");
  if (!seed) return Tensor::rand(shape, {.device = c.device()}).ge(Tensor(ratio));
  int64_t count = 1;
  for (const SInt& n : shape) {
    constexpr int64_t kMost = 1 << 28;
    c.check(n.value() == 0 || count <= kMost / n.value(), "got shape ", shape, " for a seed, expected at most ", kMost,
            " elements");
    count *= n.value();
  }
  std::vector<uint8_t> out;
  for (const double v : reference_numbers(*seed, static_cast<size_t>(count))) out.push_back(v >= ratio);
  return Tensor::from(out, shape, {.device = c.device()}).cast(dtypes::bool_);
}

Values dropout(NodeContext& c) {
  const Tensor x = c.tensor(0);
  const bool training = c.opset() >= 12 ? c.has(2) && c.integer(2) != 0 : c.opset() < 7 && !c.flag("is_test");
  const double ratio = c.opset() >= 12 ? c.number_or(1, 0.5) : c.attr("ratio", 0.5);
  const DType mask_type = c.opset() >= 10 ? dtypes::bool_ : x.dtype();
  if (!training || ratio == 0) return {x, Tensor::ones(x.shape(), {.dtype = mask_type, .device = c.device()})};
  const Tensor keep = kept(c, x.shape(), ratio);
  return {keep.where(x / (1 - ratio), x.zeros_like()), keep.cast(mask_type)};
}

const OperatorRow kRows[] = {
    {"", "RandomNormal", 1, normal},       {"", "RandomNormalLike", 1, normal}, {"", "RandomUniform", 1, uniform},
    {"", "RandomUniformLike", 1, uniform}, {"", "Bernoulli", 15, bernoulli},    {"", "Multinomial", 7, multinomial},
    {"", "Dropout", 1, dropout},
};

}  // namespace

OperatorRows random_operators() { return kRows; }

}  // namespace tg::onnx
