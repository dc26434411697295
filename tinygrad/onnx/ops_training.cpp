/// \file Steps of optimizers.
#include <algorithm>
#include <cmath>

#include "tinygrad/onnx/node_context.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/onnx/run.h"

namespace tg::onnx {
namespace {

/// Inputs are the rate, the number of the step, and then `kinds` lists of equal length: tensors, gradients, states.
struct Lists {
  double rate, step;
  size_t n;
};
Lists lists_of(const NodeContext& c, size_t kinds) {
  c.check(c.count() >= 2 && (c.count() - 2) % kinds == 0, "got ", c.count(), " inputs, expected 2 and ", kinds,
          " for each tensor");
  return {c.number(0), static_cast<double>(c.integer(1)), (c.count() - 2) / kinds};
}
/// Joins the new tensors and their states in the order of outputs.
Values joined(const std::vector<Tensors>& lists) {
  Values out;
  for (const Tensors& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

Values adagrad(NodeContext& c) {
  const Lists l = lists_of(c, 3);
  const double rate = l.rate / (1 + l.step * c.attr("decay_factor", 0.0)), eps = c.attr("epsilon", 0.0);
  std::vector<Tensors> out(2);
  for (size_t i = 0; i < l.n; i++) {
    const Tensor x = c.tensor(2 + i), g = x * c.attr("norm_coefficient", 0.0) + c.tensor(2 + l.n + i);
    const Tensor h = c.tensor(2 + 2 * l.n + i) + g * g;
    out[0].push_back((x - g * rate / (h.sqrt() + eps)).cast(x.dtype()));
    out[1].push_back(h.cast(x.dtype()));
  }
  return joined(out);
}

Values adam(NodeContext& c) {
  const Lists l = lists_of(c, 4);
  const double alpha = c.attr("alpha", 0.9), beta = c.attr("beta", 0.999);
  const double corrected = l.rate * std::sqrt(1 - std::pow(beta, l.step)) / (1 - std::pow(alpha, l.step));
  const double rate = l.step > 0 ? corrected : l.rate;
  std::vector<Tensors> out(3);
  for (size_t i = 0; i < l.n; i++) {
    const Tensor x = c.tensor(2 + i), g = x * c.attr("norm_coefficient", 0.0) + c.tensor(2 + l.n + i);
    const Tensor v = c.tensor(2 + 2 * l.n + i) * alpha + g * (1 - alpha);
    const Tensor h = c.tensor(2 + 3 * l.n + i) * beta + g * g * (1 - beta);
    const Tensor next = x - v / (h.sqrt() + c.attr("epsilon", 0.0)) * rate;
    out[0].push_back((next * (1 - c.attr("norm_coefficient_post", 0.0))).cast(x.dtype()));
    out[1].push_back(v.cast(x.dtype()));
    out[2].push_back(h.cast(x.dtype()));
  }
  return joined(out);
}

Values momentum(NodeContext& c) {
  const Lists l = lists_of(c, 3);
  const double alpha = c.attr("alpha", 0.0), beta = l.step > 0 ? c.attr("beta", 0.0) : 1;
  const bool nesterov = c.choice("mode", "standard", {"standard", "nesterov"}) == "nesterov";
  std::vector<Tensors> out(2);
  for (size_t i = 0; i < l.n; i++) {
    const Tensor x = c.tensor(2 + i), g = x * c.attr("norm_coefficient", 0.0) + c.tensor(2 + l.n + i);
    const Tensor v = c.tensor(2 + 2 * l.n + i) * alpha + g * beta;
    out[0].push_back((x - (nesterov ? g + v * alpha : v) * l.rate).cast(x.dtype()));
    out[1].push_back(v.cast(x.dtype()));
  }
  return joined(out);
}

/// The gradient of the value named by `y` with respect to those named by `xs`, which are the first inputs.
Values gradient(NodeContext& c) {
  const size_t n = c.attr_strings("xs").size();
  const std::string name = c.attr("y", "");
  const Value* y = c.frame().find(name);
  c.check(y && y->tensor() && n <= c.count(), "got ", c.count(), " inputs and y \"", name,
          "\", expected a tensor of that name and ", n, " inputs");
  Tensors targets;
  for (size_t i = 0; i < n; i++) targets.push_back(c.tensor(i));
  const Tensors out = y->tensor()->gradient(targets, y->tensor()->ones_like());
  return {out.begin(), out.end()};
}

const OperatorRow kRows[] = {
    {"ai.onnx.preview.training", "Gradient", 1, gradient},
    {"ai.onnx.preview.training", "Adagrad", 1, adagrad},
    {"ai.onnx.preview.training", "Adam", 1, adam},
    {"ai.onnx.preview.training", "Momentum", 1, momentum},
};

}  // namespace

OperatorRows training_operators() { return kRows; }

}  // namespace tg::onnx
