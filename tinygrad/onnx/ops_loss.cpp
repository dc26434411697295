/// \file Losses.
#include <algorithm>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

/// Combines the losses of all labels as the attribute reduction says; of a mean, weights count.
Tensor combined(const NodeContext& c, const Tensor& losses, const Tensor& weights) {
  const std::string how = c.choice("reduction", "mean", {"mean", "sum", "none"});
  if (how == "none") return losses;
  return how == "sum" ? losses.sum() : losses.sum() / weights.sum();
}

/// The weighted negative of the log-probabilities, (batch, classes, ...), of labels, (batch, ...).
Values label_loss(const NodeContext& c, const Tensor& logs, bool with_logs) {
  const Tensor labels = c.tensor(1).cast(dtypes::int64);
  const DType d = logs.dtype();
  const std::optional<int64_t> ignored = c.optional_int("ignore_index");
  const Tensor counts = ignored ? labels.ne(Tensor(*ignored)) : labels.eq(labels);
  const Tensor label = counts.where(labels, labels.zeros_like());
  Tensor weights = counts.cast(d);
  if (c.has(2)) weights = counts.where(c.tensor(2)[label], Tensor(0.0)).cast(d);
  const Tensor picked = logs.gather(1, label.unsqueeze(1)).squeeze(1);
  const Tensor loss = combined(c, -picked * weights, weights).cast(d);
  return with_logs ? Values{loss, logs} : Values{loss};
}

Values negative_log_likelihood(NodeContext& c) { return label_loss(c, c.tensor(0), false); }
Values softmax_cross_entropy(NodeContext& c) { return label_loss(c, c.tensor(0).log_softmax(1), true); }

const OperatorRow kRows[] = {
    {"", "NegativeLogLikelihoodLoss", 12, negative_log_likelihood},
    {"", "SoftmaxCrossEntropyLoss", 12, softmax_cross_entropy},
};

}  // namespace

OperatorRows loss_operators() { return kRows; }

}  // namespace tg::onnx
