/// \file Recurrent layers.
#include "tinygrad/nn/rnn.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/error.h"

namespace tg::nn {
namespace {

Tensor weight(int64_t rows, int64_t columns, int64_t hidden) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  return Tensor::uniform({rows, columns}, {.low = -bound, .high = bound}).is_param_();
}
Tensor zeros(int64_t n) { return Tensor::zeros(Shape{n}).contiguous().is_param_(); }

void check_sizes(const char* layer, int64_t in, int64_t hidden) {
  TG_CHECK(ShapeError, in > 0 && hidden > 0, "[", layer, "] got sizes ", in, " and ", hidden,
           ", expected positive ones");
}
void check_input(const char* layer, const Tensor& x, int64_t in, const Tensor& h, int64_t hidden) {
  TG_CHECK(ShapeError, x.ndim() == 2 && x.shape(1) == in, "[", layer, "] got an input of shape ", x.shape(),
           ", expected (batch, ", in, ")");
  TG_CHECK(ShapeError, !h.defined() || h.shape() == (Shape{x.shape(0), hidden}), "[", layer, "] got a state of shape ",
           h.shape(), ", expected (", x.shape(0), ", ", hidden, ")");
}

void lstm_step(const Tensor& input_gates, const RecurrentWeights& w, Tensors& state) {
  const Tensors gate = (input_gates + state[0].linear(w.weight_hh.transpose(), w.bias_hh)).chunk(4, 1);
  state[1] = gate[1].sigmoid() * state[1] + gate[0].sigmoid() * gate[2].tanh();
  state[0] = gate[3].sigmoid() * state[1].tanh();
}
void gru_step(const Tensor& input_gates, const RecurrentWeights& w, Tensors& state) {
  const Tensors x = input_gates.chunk(3, 1), h = state[0].linear(w.weight_hh.transpose(), w.bias_hh).chunk(3, 1);
  const Tensor reset = (x[0] + h[0]).sigmoid(), update = (x[1] + h[1]).sigmoid(), fresh = (x[2] + reset * h[2]).tanh();
  state[0] = (1 - update) * fresh + update * state[0];
}

}  // namespace

LSTMCell::LSTMCell(int64_t input_size, int64_t hidden_size, bool with_bias) {
  check_sizes("LSTMCell", input_size, hidden_size);
  weight_ih = weight(4 * hidden_size, input_size, hidden_size);
  weight_hh = weight(4 * hidden_size, hidden_size, hidden_size);
  if (with_bias) {
    bias_ih = zeros(4 * hidden_size);
    bias_hh = zeros(4 * hidden_size);
  }
}

LstmState lstm_cell(const Tensor& x, const std::optional<LstmState>& state, const RecurrentWeights& w) {
  if (x.ndim() == 1) {  // without a batch
    std::optional<LstmState> row;
    if (state) row = LstmState{state->h.unsqueeze(0), state->c.unsqueeze(0)};
    const LstmState next = lstm_cell(x.unsqueeze(0), row, w);
    return {next.h.squeeze(0), next.c.squeeze(0)};
  }
  const int64_t hidden = w.weight_hh.shape(1);
  for (const Tensor& t : state ? Tensors{state->h, state->c} : Tensors{Tensor()})
    check_input("LSTMCell", x, w.weight_ih.shape(1), t, hidden);
  const Tensor zero = Tensor::zeros(Shape{x.shape(0), hidden}, {.dtype = x.dtype(), .device = x.device()});
  Tensors s = state ? Tensors{state->h, state->c} : Tensors{zero, zero};
  lstm_step(x.linear(w.weight_ih.transpose(), w.bias_ih), w, s);
  return {s[0], s[1]};
}

GRUCell::GRUCell(int64_t input_size, int64_t hidden_size, bool with_bias) {
  check_sizes("GRUCell", input_size, hidden_size);
  weight_ih = weight(3 * hidden_size, input_size, hidden_size);
  weight_hh = weight(3 * hidden_size, hidden_size, hidden_size);
  if (with_bias) {
    bias_ih = zeros(3 * hidden_size);
    bias_hh = zeros(3 * hidden_size);
  }
}

Tensor gru_cell(const Tensor& x, const Tensor& h, const RecurrentWeights& w) {
  if (x.ndim() == 1) return gru_cell(x.unsqueeze(0), h.defined() ? h.unsqueeze(0) : h, w).squeeze(0);
  const int64_t hidden = w.weight_hh.shape(1);
  check_input("GRUCell", x, w.weight_ih.shape(1), h, hidden);
  Tensors s{h.defined() ? h : Tensor::zeros(Shape{x.shape(0), hidden}, {.dtype = x.dtype(), .device = x.device()})};
  gru_step(x.linear(w.weight_ih.transpose(), w.bias_ih), w, s);
  return s[0];
}

Recurrent::Recurrent(const char* name, int64_t gates, int64_t in, int64_t hidden, const RecurrentOptions& o)
    : options(o), input_size(in), hidden_size(hidden), name_(name) {
  check_sizes(name, in, hidden);
  TG_CHECK(ValueError, o.layers > 0, "[", name, "] got ", o.layers, " layers, expected at least one");
  TG_CHECK(ValueError, o.dropout >= 0 && o.dropout <= 1, "[", name, "] got dropout ", o.dropout,
           ", expected a probability");
  const int directions = o.bidirectional ? 2 : 1;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  const auto bias = [&] { return Tensor::uniform({gates * hidden}, {.low = -bound, .high = bound}).is_param_(); };
  for (int64_t layer = 0; layer < o.layers; layer++)
    for (int d = 0; d < directions; d++) {
      RecurrentWeights w;
      w.weight_ih = weight(gates * hidden, layer ? directions * hidden : in, hidden);
      w.weight_hh = weight(gates * hidden, hidden, hidden);
      if (o.bias) {
        w.bias_ih = bias();
        w.bias_hh = bias();
      }
      weights.push_back(w);
    }
}

Recurrent::Recurrent(const char* name, int64_t gates, std::vector<RecurrentWeights> w, const RecurrentOptions& o)
    : weights(std::move(w)), options(o), name_(name) {
  const size_t count = static_cast<size_t>(o.layers) * (o.bidirectional ? 2 : 1);
  TG_CHECK(ValueError, o.layers > 0 && weights.size() == count, "[", name, "] got weights for ", weights.size(),
           " layers and directions, expected ", count);
  input_size = weights[0].weight_ih.shape(1);
  hidden_size = weights[0].weight_hh.shape(1);
  options.bias = weights[0].bias_ih.defined();
  for (const RecurrentWeights& x : weights)
    TG_CHECK(
        ShapeError,
        x.weight_hh.shape() == (Shape{gates * hidden_size, hidden_size}) && x.weight_ih.shape(0) == gates * hidden_size,
        "[", name, "] got weights of shapes ", x.weight_ih.shape(), " and ", x.weight_hh.shape(), ", expected ",
        gates * hidden_size, " rows");
}

void Recurrent::visit_state(StateVisitor& visitor) const {
  const size_t directions = options.bidirectional ? 2 : 1;
  for (size_t i = 0; i < weights.size(); i++) {
    const std::string end = str("_l", i / directions, i % directions ? "_reverse" : "");
    const RecurrentWeights& w = weights[i];
    visitor.member("weight_ih" + end, w.weight_ih);
    visitor.member("weight_hh" + end, w.weight_hh);
    visitor.member("bias_ih" + end, w.bias_ih);
    visitor.member("bias_hh" + end, w.bias_hh);
  }
}

/// Runs one layer in one direction, from `state` to its last states; returns the outputs of all steps.
static Tensor run_layer(const Tensor& sequence, const RecurrentWeights& w, bool reverse, Tensors& state,
                        const auto& step) {
  // One product for all steps; then step by step, each state stored: otherwise every step would recompute all steps
  // before it.
  const Tensor gates = sequence.linear(w.weight_ih.transpose(), w.bias_ih).contiguous();
  const int64_t time = sequence.shape(0);
  Tensors steps;
  for (int64_t t = 0; t < time; t++) {
    step(gates[reverse ? time - 1 - t : t], w, state);
    for (Tensor& s : state) s = s.contiguous();
    steps.push_back(state[0]);
  }
  if (reverse) std::reverse(steps.begin(), steps.end());
  return Tensor::stack(steps);
}

std::pair<Tensor, Tensors> Recurrent::run(const Tensor& x, const Tensors& initial, size_t states, Step step) const {
  if (x.ndim() == 2) {  // without a batch
    const int batch = options.batch_first ? 0 : 1;
    Tensors rows;
    for (const Tensor& t : initial) rows.push_back(t.unsqueeze(1));
    auto [output, last] = run(x.unsqueeze(batch), rows, states, step);
    for (Tensor& t : last) t = t.squeeze(1);
    return {output.squeeze(batch), last};
  }
  TG_CHECK(ShapeError, x.ndim() == 3 && x.shape(2) == input_size, "[", name_, "] got an input of shape ", x.shape(),
           ", expected ", options.batch_first ? "(batch, time, " : "(time, batch, ", input_size, ")");
  Tensor sequence = options.batch_first ? x.transpose(0, 1) : x;
  const int64_t batch = sequence.shape(1);
  TG_CHECK(ShapeError, sequence.shape(0) > 0, "[", name_, "] got a sequence of no steps, expected at least one");
  const auto count = static_cast<int64_t>(weights.size());
  for (const Tensor& t : initial)
    TG_CHECK(ShapeError, t.shape() == (Shape{count, batch, hidden_size}), "[", name_, "] got a state of shape ",
             t.shape(), ", expected (", count, ", ", batch, ", ", hidden_size, ")");
  const size_t directions = options.bidirectional ? 2 : 1;
  std::vector<Tensors> last(states);
  for (size_t layer = 0; layer * directions < weights.size(); layer++) {
    if (layer > 0 && options.dropout > 0) sequence = sequence.dropout(options.dropout);
    Tensors outputs;
    for (size_t at = layer * directions; at < (layer + 1) * directions; at++) {
      Tensors state;
      for (size_t s = 0; s < states; s++)
        state.push_back(initial.empty()
                            ? Tensor::zeros({batch, hidden_size}, {.dtype = x.dtype(), .device = x.device()})
                            : initial[s][static_cast<int64_t>(at)]);
      outputs.push_back(run_layer(sequence, weights[at], at % directions == 1, state, step));
      for (size_t s = 0; s < states; s++) last[s].push_back(state[s]);
    }
    sequence = directions == 2 ? Tensor::cat(outputs, -1) : outputs[0];
  }
  Tensors finals;
  for (const Tensors& s : last) finals.push_back(Tensor::stack(s));
  return {options.batch_first ? sequence.transpose(0, 1) : sequence, finals};
}

LSTM::Result LSTM::operator()(const Tensor& x, const std::optional<LstmState>& state) const {
  auto [output, last] = run(x, state ? Tensors{state->h, state->c} : Tensors{}, 2, lstm_step);
  return {output, {last[0], last[1]}};
}
GRU::Result GRU::operator()(const Tensor& x, const Tensor& h) const {
  auto [output, last] = run(x, h.defined() ? Tensors{h} : Tensors{}, 1, gru_step);
  return {output, last[0]};
}

}  // namespace tg::nn
