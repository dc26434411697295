/// \file Recurrent layers. Names and order of weights match PyTorch's, so that its state dicts load.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "tinygrad/nn/state.h"
#include "tinygrad/tensor/tensor.h"

namespace tg::nn {

struct LstmState {
  Tensor h, c;
};
/// The weights of one cell, or of one layer in one direction: (gates hidden, in), (gates hidden, hidden), (gates
/// hidden) twice; biases may be undefined.
struct RecurrentWeights {
  Tensor weight_ih, weight_hh, bias_ih, bias_hh;
};
/// The formulas of LSTMCell and GRUCell, for given weights: the next state, (batch, hidden), of the type of x and the
/// weights together. Throws ShapeError for an input or a state of another shape.
LstmState lstm_cell(const Tensor& x, const std::optional<LstmState>& state, const RecurrentWeights& w);
Tensor gru_cell(const Tensor& x, const Tensor& h, const RecurrentWeights& w);

/// One step of a long short-term memory: x (batch, in) and the state (batch, hidden) give the next state. Gates in the
/// order input, forget, cell, output.
struct LSTMCell {
  Tensor weight_ih, weight_hh;  ///< (4 hidden, in), (4 hidden, hidden): uniform within 1/sqrt(hidden)
  Tensor bias_ih, bias_hh;      ///< (4 hidden): zeros; undefined without bias
  LSTMCell(int64_t input_size, int64_t hidden_size, bool with_bias = true);
  /// Starts from a zero state.
  LstmState operator()(const Tensor& x, const std::optional<LstmState>& state = {}) const {
    return lstm_cell(x, state, {weight_ih, weight_hh, bias_ih, bias_hh});
  }
  TG_STATE(weight_ih, weight_hh, bias_ih, bias_hh)
};

/// One step of a gated recurrent unit: x (batch, in) and h (batch, hidden) give the next h, of the type of both
/// together. Gates in the order reset, update, new.
struct GRUCell {
  Tensor weight_ih, weight_hh;  ///< (3 hidden, in), (3 hidden, hidden): uniform within 1/sqrt(hidden)
  Tensor bias_ih, bias_hh;      ///< (3 hidden): zeros; undefined without bias
  GRUCell(int64_t input_size, int64_t hidden_size, bool with_bias = true);
  /// `h` undefined: zeros.
  Tensor operator()(const Tensor& x, const Tensor& h = {}) const {
    return gru_cell(x, h, {weight_ih, weight_hh, bias_ih, bias_hh});
  }
  TG_STATE(weight_ih, weight_hh, bias_ih, bias_hh)
};

struct RecurrentOptions {
  int64_t layers = 1;
  bool bias = true;
  bool batch_first = false;  ///< input and output are (batch, time, features) instead of (time, batch, features)
  double dropout = 0;        ///< of what one layer hands to the next, in training mode
  bool bidirectional = false;
};

/// Common part of LSTM and GRU: weights named "weight_ih_l0", "weight_ih_l0_reverse", ... and the iteration over
/// layers, directions and time.
class Recurrent {
 public:
  std::vector<RecurrentWeights> weights;  ///< layer by layer, forward before reverse
  RecurrentOptions options;
  int64_t input_size, hidden_size;
  void visit_state(StateVisitor& visitor) const;

 protected:
  Recurrent(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size, const RecurrentOptions& o);
  Recurrent(const char* name, int64_t gates, std::vector<RecurrentWeights> w, const RecurrentOptions& o);
  /// `step`: the input's gates (batch, gates * hidden) and the weights update the state, whose first tensor is the
  /// output.
  using Step = void (*)(const Tensor& input_gates, const RecurrentWeights& w, Tensors& state);
  /// Returns the output and the last states, each (layers * directions, batch, hidden).
  std::pair<Tensor, Tensors> run(const Tensor& x, const Tensors& initial, size_t states, Step step) const;
  const char* name_;
};

/// Layers of LSTM cells over a sequence.
class LSTM : public Recurrent {
 public:
  LSTM(int64_t in, int64_t hidden, const RecurrentOptions& o = {}) : Recurrent("LSTM", 4, in, hidden, o) {}
  /// With given weights, layers * directions of them; options.bias follows from them.
  explicit LSTM(std::vector<RecurrentWeights> w, const RecurrentOptions& o = {})
      : Recurrent("LSTM", 4, std::move(w), o) {}
  struct Result {
    Tensor output;    ///< (time, batch, directions * hidden)
    LstmState state;  ///< after the last step, (layers * directions, batch, hidden) each
  };
  /// Runs over `x`, (time, batch, features), or (batch, time, features) with batch_first, from `state` or from zeros.
  /// Throws ShapeError where the features are not those of the layer.
  Result operator()(const Tensor& x, const std::optional<LstmState>& state = {}) const;
};

/// Layers of GRU cells over a sequence.
class GRU : public Recurrent {
 public:
  GRU(int64_t in, int64_t hidden, const RecurrentOptions& o = {}) : Recurrent("GRU", 3, in, hidden, o) {}
  /// With given weights, layers * directions of them; options.bias follows from them.
  explicit GRU(std::vector<RecurrentWeights> w, const RecurrentOptions& o = {})
      : Recurrent("GRU", 3, std::move(w), o) {}
  struct Result {
    Tensor output, h;
  };
  /// `h` undefined: zeros.
  Result operator()(const Tensor& x, const Tensor& h = {}) const;
};

}  // namespace tg::nn
