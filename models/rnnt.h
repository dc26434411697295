/// \file RNN-T (Graves, "Sequence Transduction with Recurrent Neural Networks", arXiv 1211.3711; He et al., "Streaming
/// End-to-end Speech Recognition For Mobile Devices", arXiv 1811.06621): speech to characters, as MLPerf measures it,
/// with the names of weights of its published file.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Sizes of the network; those of MLPerf's without changes.
struct RnntOptions {
  int64_t features = 240;   ///< of a spectrum
  int64_t vocab_size = 29;  ///< characters, and last the blank
  int64_t encoder_size = 1024;
  int64_t prediction_size = 320;
  int64_t joint_size = 512;
  int64_t layers_before = 2;  ///< of the encoder, before time is shortened
  int64_t layers_after = 3;   ///< of the encoder, afterwards
  int64_t prediction_layers = 2;
  int64_t stack = 2;      ///< how many vectors in a row become one
  double dropout = 0.32;  ///< between layers, in training mode
};

/// What audio sounds like: spectra (time, batch, features) -> (batch, time / stack, encoder_size).
struct RnntEncoder {
  nn::LSTM before, after;
  int64_t stack;
  explicit RnntEncoder(const RnntOptions& o);
  Tensor operator()(const Tensor& spectra) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// What the text so far suggests: characters (batch, time) -> (batch, time, prediction_size).
struct RnntPrediction {
  nn::Embedding embed;
  nn::LSTM lstm;
  explicit RnntPrediction(const RnntOptions& o);
  /// Goes on from `state`, or from zeros. With `start` a vector of zeros comes before the characters, which gives one
  /// vector more; `labels` may be undefined then, for batch 1.
  nn::LSTM::Result operator()(const Tensor& labels, const std::optional<nn::LstmState>& state = {},
                              bool start = false) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// The network.
struct Rnnt {
  RnntEncoder encoder;
  RnntPrediction prediction;
  nn::Linear joint_in, joint_out;
  RnntOptions options;
  /// Makes the network with random weights. ValueError for fewer than two characters and for a stack below 1.
  explicit Rnnt(const RnntOptions& o = {});
  /// Returns logits (batch, time, text, vocabulary) for both parts' vectors.
  Tensor joint(const Tensor& heard, const Tensor& said) const;
  /// Returns logits (batch, time / stack, text, vocabulary) for spectra (time, batch, features) and characters (batch,
  /// text), with one row of text more with `start`. ShapeError for spectra of other sizes.
  Tensor operator()(const Tensor& spectra, const Tensor& labels, bool start = false) const;
  /// Returns the characters of each audio, always the most probable: the next one until it is the blank, or until there
  /// are `most` at one time, and then on in time. `lengths` are numbers of spectra. ShapeError for another number of
  /// lengths, ValueError for lengths beyond the spectra.
  std::vector<std::vector<int32_t>> greedy(const Tensor& spectra, const std::vector<int64_t>& lengths,
                                           int64_t most = 30) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;

 private:
  std::vector<int32_t> greedy_of_one(const Tensor& heard, int64_t length, int64_t most) const;
};

/// Returns the negative logarithm of the probability of each text, (batch,): all ways to write it in time added up. For
/// logits (batch, time, text + 1, vocabulary) of a network that was asked with `start`, labels (batch, text), and how
/// much of both belongs to each, (batch,) of integers. ShapeError for sizes that do not fit.
Tensor rnnt_loss(const Tensor& logits, const Tensor& labels, const Tensor& times, const Tensor& lengths);

/// Returns the weights of MLPerf's file, or of one with tinygrad's names.
nn::StateDict rnnt_weights(const nn::StateDict& file);

}  // namespace tg::models
