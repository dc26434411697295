/// \file VITS (Kim et al., "Conditional Variational Autoencoder with Adversarial Learning for End-to-End
/// Text-to-Speech", arXiv 2106.06103): text to speech, with the names of weights of transformers, which the MMS voices
/// have.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "models/vits_duration.h"
#include "models/vits_parts.h"

namespace tg::models {

/// How a text is spoken.
struct VitsSpeechOptions {
  double rate = 1;              ///< of speaking: 2 is twice as fast
  double noise = 0.667;         ///< how much speech varies
  double duration_noise = 0.8;  ///< how much durations vary
  std::optional<int64_t> speaker = {};
  Tensor mask = {};  ///< (batch, time): 1 for tokens, 0 for padding; undefined: all are tokens
  /// Standard normal numbers (batch, 2, time) and (batch, flow_size, at least as many frames as there are); undefined:
  /// random.
  Tensor noise_of_durations = {}, noise_of_latents = {};
};

/// The network.
struct Vits {
  VitsTextEncoder text_encoder;
  VitsFlow flow;
  HifiGan decoder;
  std::optional<VitsStochasticDurations> stochastic_durations;
  std::optional<VitsDurations> durations;
  std::optional<nn::Embedding> embed_speaker;
  VitsPosteriorEncoder posterior_encoder;  ///< for training
  VitsOptions options;
  /// Makes the network with random weights. ValueError unless heads divide the hidden size, the flow's size is even,
  /// and rates have as many kernels.
  explicit Vits(const VitsOptions& o = {});
  struct Speech {
    Tensor audio;                  ///< (batch, samples) from -1 to 1
    std::vector<int64_t> samples;  ///< how many belong to each text
    Tensor latents;                ///< (batch, flow_size, frames)
  };
  /// Speaks tokens (batch, time). Durations are computed at once, as the size of the result depends on them.
  /// ShapeError for other tokens, masks and noise, ValueError for a rate that is not positive and for a speaker that
  /// there is not.
  Speech operator()(const Tensor& tokens, const VitsSpeechOptions& o = {}) const;
  /// Returns the vector of a speaker, (1, speaker_size, 1); undefined for none. ValueError for one that there is not.
  Tensor speaker(const std::optional<int64_t>& number) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;

 private:
  Tensor log_durations(const Tensor& hidden, const Tensor& mask, const Tensor& voice, const VitsSpeechOptions& o) const;
};

/// Returns the weights of files in which lengths and directions of filters are "weight_g" and "weight_v".
nn::StateDict vits_weights(const nn::StateDict& file);

}  // namespace tg::models
