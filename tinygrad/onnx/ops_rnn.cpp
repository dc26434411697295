/// \file Recurrent layers.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tinygrad/onnx/op_helpers.h"
#include "tinygrad/onnx/operators.h"

namespace tg::onnx {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

/// Returns an activation by name with its parameters.
Function activation(const NodeContext& c, std::string name, double alpha, double beta, bool has_alpha) {
  std::ranges::transform(name, name.begin(), [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
  const auto or_default = [&](double otherwise) { return has_alpha ? alpha : otherwise; };
  if (name == "tanh") return [](const Tensor& x) { return x.tanh(); };
  if (name == "sigmoid") return [](const Tensor& x) { return x.sigmoid(); };
  if (name == "relu") return [](const Tensor& x) { return x.relu(); };
  if (name == "softsign") return [](const Tensor& x) { return x / (x.abs() + 1); };
  if (name == "softplus") return [](const Tensor& x) { return (x.exp() + 1).log(); };
  if (name == "affine") return [alpha, beta](const Tensor& x) { return x * alpha + beta; };
  if (name == "scaledtanh") return [alpha, beta](const Tensor& x) { return (x * beta).tanh() * alpha; };
  if (name == "leakyrelu") return [a = or_default(0.01)](const Tensor& x) { return x.lt(Tensor(0)).where(x * a, x); };
  if (name == "thresholdedrelu")
    return [a = or_default(1)](const Tensor& x) { return x.gt(Tensor(a)).where(x, x.zeros_like()); };
  if (name == "elu")
    return [a = or_default(1)](const Tensor& x) { return x.lt(Tensor(0)).where((x.exp() - 1) * a, x); };
  if (name == "hardsigmoid")
    return [a = or_default(0.2), b = has_alpha ? beta : 0.5](const Tensor& x) {
      return (x * a + b).clamp(Tensor(0.0), Tensor(1.0));
    };
  c.fail("activation \"", name, "\" is not supported");
}

/// The functions of one direction.
std::vector<Function> activations(const NodeContext& c, size_t direction, std::vector<std::string> defaults) {
  const size_t n = defaults.size();
  std::vector<std::string> names = c.attr_strings("activations");
  if (names.empty())
    for (int i = 0; i < 2; i++) names.insert(names.end(), defaults.begin(), defaults.end());
  const std::vector<double> alpha = c.attr_floats("activation_alpha"), beta = c.attr_floats("activation_beta");
  c.check(names.size() >= (direction + 1) * n, "activations has ", names.size(), " names, expected ",
          (direction + 1) * n);
  std::vector<Function> out;
  for (size_t i = direction * n; i < (direction + 1) * n; i++)
    out.push_back(
        activation(c, names[i], i < alpha.size() ? alpha[i] : 1, i < beta.size() ? beta[i] : 0, i < alpha.size()));
  return out;
}

/// The weights and states of one direction.
struct Cell {
  Tensor input, recurrent, input_bias, recurrent_bias;  ///< (gates hidden, in), (gates hidden, hidden), (gates hidden)
  Tensor peepholes;                                     ///< (3 hidden): of input, output and forget gates
  std::vector<Function> f;
  std::optional<double> clip;
  int64_t hidden;

  Tensor clipped(const Tensor& t) const { return clip ? t.clamp(Tensor(-*clip), Tensor(*clip)) : t; }
  Tensor apply(size_t i, const Tensor& t) const { return f[i](clipped(t)); }
};

/// Updates the states, of which the first is the output. `x`: the gates' inputs without the recurrent part.
using Step = void (*)(const NodeContext& c, const Cell& cell, const Tensor& x, Tensors& state);

void rnn_step(const NodeContext& c, const Cell& cell, const Tensor& x, Tensors& state) {
  static_cast<void>(c);
  state[0] = cell.apply(0, x + state[0].linear(cell.recurrent.transpose(), cell.recurrent_bias));
}

void gru_step(const NodeContext& c, const Cell& cell, const Tensor& x, Tensors& state) {
  const Tensor h = state[0];
  const Tensors in = equal_parts(x, 3, -1), w = equal_parts(cell.recurrent, 3, 0);
  const Tensors b = cell.recurrent_bias.defined() ? equal_parts(cell.recurrent_bias, 3, 0) : Tensors(3);
  const Tensor update = cell.apply(0, in[0] + h.linear(w[0].transpose(), b[0]));
  const Tensor reset = cell.apply(0, in[1] + h.linear(w[1].transpose(), b[1]));
  const Tensor part = c.flag("linear_before_reset") ? reset * h.linear(w[2].transpose(), b[2])
                                                    : (reset * h).linear(w[2].transpose(), b[2]);
  state[0] = (1 - update) * cell.apply(1, in[2] + part) + update * h;
}

void lstm_step(const NodeContext& c, const Cell& cell, const Tensor& x, Tensors& state) {
  // Gates of input, output, forgetting, and the new cell.
  const Tensors gate = equal_parts(x + state[0].linear(cell.recurrent.transpose(), cell.recurrent_bias), 4, -1);
  const Tensors p = cell.peepholes.defined() ? equal_parts(cell.peepholes, 3, 0) : Tensors(3);
  const auto seen = [](const Tensor& g, const Tensor& w, const Tensor& s) { return w.defined() ? g + w * s : g; };
  const Tensor in = cell.apply(0, seen(gate[0], p[0], state[1]));
  const Tensor forget = c.flag("input_forget") ? 1 - in : cell.apply(0, seen(gate[2], p[2], state[1]));
  state[1] = forget * state[1] + in * cell.apply(1, gate[3]);
  state[0] = cell.apply(0, seen(gate[1], p[1], state[1])) * cell.f[2](state[1]);
}

struct Kind {
  int64_t gates;
  size_t states;
  std::vector<std::string> activations;
  Step step;
};

/// Longest sequence that is unrolled.
constexpr int64_t kMostSteps = 1 << 14;

/// The steps of one direction: (time, batch, hidden) outputs and the last states.
struct Walked {
  Tensor outputs;
  Tensors last;
};
Walked walk(const NodeContext& c, const Kind& kind, const Cell& cell, const Tensor& x, Tensors state,
            const Tensor& lengths, bool reversed) {
  const int64_t time = x.shape(0);
  c.check(time > 0 && time <= kMostSteps, "got a sequence of ", time, " steps, expected 1 to ", kMostSteps);
  const Tensor gates = x.linear(cell.input.transpose(), cell.input_bias);  // of all steps at once
  Tensors outputs(static_cast<size_t>(time));
  for (int64_t i = 0; i < time; i++) {
    const int64_t t = reversed ? time - 1 - i : i;
    const Tensors before = state;
    kind.step(c, cell, gates[t], state);
    Tensor shown = state[0];
    if (lengths.defined()) {  // rows that ended keep their state and show zeros
      const Tensor goes_on = lengths.gt(Tensor(t)).reshape(Shape{-1, 1});
      for (size_t k = 0; k < state.size(); k++) state[k] = goes_on.where(state[k], before[k]);
      shown = goes_on.where(shown, shown.zeros_like());
    }
    outputs[static_cast<size_t>(t)] = shown;
  }
  return {Tensor::stack(outputs, 0), state};
}

Cell cell_of(const NodeContext& c, const Kind& kind, int64_t d) {
  Cell cell;
  const Tensor w = c.tensor(1), r = c.tensor(2);
  cell.input = w[d];
  cell.recurrent = r[d];
  cell.hidden = r.shape(-1);
  c.check(w.shape(1) == kind.gates * cell.hidden && r.shape(1) == kind.gates * cell.hidden, "weights have shapes ",
          w.shape(), " and ", r.shape(), ", expected ", kind.gates, " gates of ", cell.hidden);
  if (c.has(3)) {
    const Tensors b = equal_parts(c.tensor(3)[d], 2, 0);
    cell.input_bias = b[0];
    cell.recurrent_bias = b[1];
  }
  if (kind.states == 2 && c.has(7)) cell.peepholes = c.tensor(7)[d];
  if (c.has_attribute("clip")) cell.clip = c.attr("clip", 0.0);
  cell.f = activations(c, static_cast<size_t>(d), kind.activations);
  return cell;
}

/// Runs a layer in its directions: Y (time, directions, batch, hidden) and the last states.
Values recurrent(NodeContext& c, const Kind& kind) {
  Tensor x = c.tensor(0);
  const bool batch_first = c.attr("layout", int64_t{0}) == 1;
  if (batch_first) x = x.transpose(0, 1);
  const std::string direction = c.choice("direction", "forward", {"forward", "reverse", "bidirectional"});
  const int64_t directions = direction == "bidirectional" ? 2 : 1;
  const Tensor lengths = c.optional_tensor(4);
  Tensors outputs;
  std::vector<Tensors> last(kind.states);
  for (int64_t d = 0; d < directions; d++) {
    const Cell cell = cell_of(c, kind, d);
    Tensors state;
    for (size_t k = 0; k < kind.states; k++) {
      if (!c.has(5 + k)) {
        state.push_back(Tensor::zeros(Shape{x.shape()[1], cell.hidden}, {.dtype = x.dtype(), .device = c.device()}));
        continue;
      }
      const Tensor all = c.tensor(5 + k);
      state.push_back((batch_first ? all.transpose(0, 1) : all)[d]);
    }
    const Walked w = walk(c, kind, cell, x, state, lengths, direction == "reverse" || d == 1);
    outputs.push_back(w.outputs);
    for (size_t k = 0; k < kind.states; k++) last[k].push_back(w.last[k]);
  }
  const Tensor y = Tensor::stack(outputs, 1);
  Values out{batch_first ? y.permute(2, 0, 1, 3) : y};
  for (const Tensors& t : last) out.emplace_back(Tensor::stack(t, batch_first ? 1 : 0));
  return out;
}

Values rnn(NodeContext& c) { return recurrent(c, {1, 1, {"Tanh"}, rnn_step}); }
Values gru(NodeContext& c) { return recurrent(c, {3, 1, {"Sigmoid", "Tanh"}, gru_step}); }
Values lstm(NodeContext& c) { return recurrent(c, {4, 2, {"Sigmoid", "Tanh", "Tanh"}, lstm_step}); }

const OperatorRow kRows[] = {{"", "RNN", 1, rnn}, {"", "GRU", 1, gru}, {"", "LSTM", 1, lstm}};

}  // namespace

OperatorRows rnn_operators() { return kRows; }

}  // namespace tg::onnx
