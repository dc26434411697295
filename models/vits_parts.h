/// \file Parts of VITS (models/vits.h): the text encoder, WaveNets with the flow and the posterior encoder made of
/// them, and the decoder, HiFi-GAN (Kong et al., arXiv 2010.05646). Sequences are (batch, channels, time); masks
/// (batch, 1, time) are 1 where there is something.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Sizes of the text encoder.
struct VitsTextOptions {
  int64_t vocab_size = 38;
  int64_t layers = 6;
  int64_t heads = 2;   ///< divides the hidden size
  int64_t window = 4;  ///< positions on either side that have embeddings of their own
  int64_t feed_forward = 768;
  int64_t feed_forward_kernel = 3;
  double dropout = 0.1;  ///< in training mode
};

/// How long tokens are spoken.
struct VitsDurationOptions {
  bool stochastic = true;  ///< drawn from a flow, not guessed
  int64_t kernel = 3;
  double dropout = 0.5;    ///< in training mode
  int64_t channels = 256;  ///< where they are guessed
  int64_t flows = 4;
  int64_t separable_layers = 3;
  int64_t spline_bins = 10;
  double spline_bound = 5;
};

/// Sizes of the decoder.
struct VitsDecoderOptions {
  int64_t channels = 512;
  std::vector<int64_t> upsample_rates = {8, 8, 2, 2};
  std::vector<int64_t> upsample_kernels = {16, 16, 4, 4};
  std::vector<int64_t> resblock_kernels = {3, 7, 11};
  std::vector<int64_t> resblock_dilations = {1, 3, 5};
  double slope = 0.1;  ///< of leaky ReLUs
};

/// Sizes of VITS; those of the MMS voices without changes.
struct VitsOptions {
  int64_t hidden = 192;
  int64_t flow_size = 192;  ///< channels of latents
  int64_t spectrum_bins = 513;
  int64_t speakers = 1;
  int64_t speaker_size = 0;  ///< of the vector of a speaker; 0: there is one voice
  int64_t flows = 4;
  int64_t flow_layers = 4;
  int64_t posterior_layers = 16;
  int64_t wavenet_kernel = 5;
  int64_t wavenet_dilation = 1;  ///< how much wider each layer sees than the one before
  VitsTextOptions text = {};
  VitsDurationOptions durations = {};
  VitsDecoderOptions decoder = {};
};

/// Attention with embeddings of relative positions, for keys and for values, (1, 2 window + 1, hidden / heads).
struct VitsAttention {
  nn::Linear k_proj, v_proj, q_proj, out_proj;
  Tensor emb_rel_k, emb_rel_v;
  int64_t heads, window;
  double dropout;
  explicit VitsAttention(const VitsOptions& o);
  /// Attends in `x` (batch, time, hidden) to where `mask` is 1.
  Tensor operator()(const Tensor& x, const Tensor& mask) const;
  TG_STATE(k_proj, v_proj, q_proj, out_proj, emb_rel_k, emb_rel_v)
};

/// A layer of the text encoder: attention, and two convolutions. (batch, time, hidden) -> the same shape.
struct VitsEncoderLayer {
  VitsAttention attention;
  nn::LayerNorm layer_norm;
  nn::Conv2d conv_1, conv_2;
  nn::LayerNorm final_layer_norm;
  double dropout;
  explicit VitsEncoderLayer(const VitsOptions& o);
  Tensor operator()(const Tensor& x, const Tensor& mask) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Tokens (batch, time) -> what they mean, and the distribution of latents they suggest.
struct VitsTextEncoder {
  nn::Embedding embed_tokens;
  std::vector<VitsEncoderLayer> layers;
  nn::Conv2d project;
  explicit VitsTextEncoder(const VitsOptions& o);
  struct Result {
    Tensor hidden;                 ///< (batch, hidden, time)
    Tensor means, log_deviations;  ///< (batch, flow_size, time)
  };
  Result operator()(const Tensor& ids, const Tensor& mask) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// A convolution whose filters have a length and a direction.
struct WeightNormConv {
  Tensor length, direction, bias;  ///< (out, 1, 1), (out, in, kernel), (out)
  ConvOptions options;
  WeightNormConv(int64_t in, int64_t out, int64_t kernel, int64_t dilation = 1);
  Tensor operator()(const Tensor& x) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Gated convolutions whose results add up.
struct VitsWaveNet {
  std::vector<WeightNormConv> in_layers, res_skip_layers;
  std::optional<WeightNormConv> cond_layer;
  VitsWaveNet(int64_t layers, const VitsOptions& o);
  /// `speaker` (batch, speaker_size, 1) may be undefined.
  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& speaker) const;
  TG_STATE(in_layers, res_skip_layers, cond_layer)
};

/// Shifts one half of the channels by what a network makes of the other.
struct VitsCoupling {
  nn::Conv2d conv_pre;
  VitsWaveNet wavenet;
  nn::Conv2d conv_post;
  explicit VitsCoupling(const VitsOptions& o);
  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& speaker, bool reverse) const;
  TG_STATE(conv_pre, wavenet, conv_post)
};

/// Latents of audio -> latents as texts suggest them, and back.
struct VitsFlow {
  std::vector<VitsCoupling> flows;
  explicit VitsFlow(const VitsOptions& o);
  Tensor operator()(const Tensor& x, const Tensor& mask, const Tensor& speaker, bool reverse = false) const;
  TG_STATE(flows)
};

/// Spectra (batch, spectrum_bins, time) -> the distribution of their latents, which networks are trained with.
struct VitsPosteriorEncoder {
  nn::Conv2d conv_pre;
  VitsWaveNet wavenet;
  nn::Conv2d conv_proj;
  explicit VitsPosteriorEncoder(const VitsOptions& o);
  /// Each (batch, flow_size, time).
  struct Result {
    Tensor mean, log_deviation;
  };
  Result operator()(const Tensor& spectra, const Tensor& mask, const Tensor& speaker) const;
  TG_STATE(conv_pre, wavenet, conv_proj)
};

/// Convolutions of growing dilation around shortcuts.
struct HifiGanBlock {
  std::vector<nn::Conv2d> convs1, convs2;
  double slope;
  HifiGanBlock(int64_t channels, int64_t kernel, const VitsOptions& o);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(convs1, convs2)
};

/// Latents -> audio (batch, 1, samples), as many samples for each as the product of the rates.
struct HifiGan {
  nn::Conv2d conv_pre;
  std::vector<nn::ConvTranspose2d> upsampler;
  std::vector<HifiGanBlock> resblocks;
  nn::Conv2d conv_post;
  std::optional<nn::Conv2d> cond;
  double slope;
  explicit HifiGan(const VitsOptions& o);
  Tensor operator()(const Tensor& latents, const Tensor& speaker) const;
  TG_STATE(conv_pre, upsampler, resblocks, conv_post, cond)
};

}  // namespace tg::models
