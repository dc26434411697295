/// \file Scores of classifiers as results.
#include "tinygrad/onnx/ml_scores.h"

#include <cmath>
#include <numbers>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// Returns an approximation of the inverse of the error function.
Tensor inverse_erf(const Tensor& x) {
  constexpr double a = 0.147;
  const Tensor log = ((1 - x) * (x + 1)).log(), v = log * 0.5 + 2 / (std::numbers::pi * a);
  const Tensor size = ((v * v - log / a).sqrt() - v).sqrt();
  return x.lt(Tensor(0.0)).where(-size, size);
}

}  // namespace

Tensor post_transformed(const NodeContext& c, const Tensor& scores) {
  const std::string how = c.choice("post_transform", "NONE", {"NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"});
  if (how == "LOGISTIC") return scores.sigmoid();
  if (how == "SOFTMAX") return scores.softmax(1);
  if (how == "PROBIT") return inverse_erf(scores * 2 - 1) * std::numbers::sqrt2;
  if (how == "NONE") return scores;
  // Scores of 0 stay 0.
  const Tensor zero = scores.abs().le(Tensor(1e-7)), top = scores.max(1, true);
  const Tensor e = zero.where(scores * (-top).exp(), (scores - top).exp()), sum = e.sum(1, true);
  return sum.eq(Tensor(0.0)).where(Tensor(0.5), e / sum);
}

Value labels_of(const NodeContext& c, const Tensor& numbers, const char* ints, const char* texts) {
  const std::vector<std::string> words = c.attr_strings(texts);
  const std::vector<int64_t> labels = c.attr_ints(ints);
  if (words.empty()) {
    if (labels.empty()) return numbers.cast(dtypes::int64);
    return Tensor::from(labels, {.device = c.device()})[numbers.cast(dtypes::int64)];
  }
  const HostRef h = c.run().read_data(numbers);
  TextList out(c, static_cast<int64_t>(h->count()));
  for (size_t i = 0; i < h->count(); i++) out.add(words.at(static_cast<size_t>(h->number(i))));
  return out.in_shape(h->shape);
}

}  // namespace tg::onnx
