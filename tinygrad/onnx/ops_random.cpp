/// \file Operators that draw random numbers.
#include <algorithm>

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

const OperatorRow kRows[] = {
    {"", "RandomNormal", 1, normal},       {"", "RandomNormalLike", 1, normal}, {"", "RandomUniform", 1, uniform},
    {"", "RandomUniformLike", 1, uniform}, {"", "Bernoulli", 15, bernoulli},    {"", "Multinomial", 7, multinomial},
};

}  // namespace

OperatorRows random_operators() { return kRows; }

}  // namespace tg::onnx
