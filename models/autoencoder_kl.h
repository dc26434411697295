/// \file The autoencoder of latent diffusion models (Rombach et al., arXiv 2112.10752): images to latents of an eighth
/// of their height and width, and back. Names of weights are those of Stable Diffusion's files, there behind
/// "first_stage_model.".
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Shape of the autoencoder; that of Stable Diffusion 1, 2 and XL without changes.
struct AutoencoderOptions {
  int64_t image_channels = 3, latent_channels = 4;
  int64_t channels = 128;                           ///< of the first level
  std::vector<int64_t> multipliers = {1, 2, 4, 4};  ///< channels of each level; each next one has half the size
  int64_t res_blocks = 2;                           ///< of a level of the encoder; one more in the decoder
  int64_t groups = 32;                              ///< of norms
};

/// Two convolutions around a shortcut.
struct AutoencoderBlock {
  nn::GroupNorm norm1;
  nn::Conv2d conv1;
  nn::GroupNorm norm2;
  nn::Conv2d conv2;
  std::optional<nn::Conv2d> nin_shortcut;
  AutoencoderBlock(int64_t in, int64_t out, int64_t groups);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(norm1, conv1, norm2, conv2, nin_shortcut)
};

/// Attention of one head over the places of an image, around a shortcut.
struct AutoencoderAttention {
  nn::GroupNorm norm;
  nn::Conv2d q, k, v, proj_out;
  AutoencoderAttention(int64_t channels, int64_t groups);
  Tensor operator()(const Tensor& x) const;
  TG_STATE(norm, q, k, v, proj_out)
};

/// The part of both halves that works on the smallest images.
struct AutoencoderMiddle {
  AutoencoderBlock block_1;
  AutoencoderAttention attn_1;
  AutoencoderBlock block_2;
  AutoencoderMiddle(int64_t channels, int64_t groups);
  Tensor operator()(const Tensor& x) const { return block_2(attn_1(block_1(x))); }
  TG_STATE(block_1, attn_1, block_2)
};

/// Blocks for images of one size, and a convolution with which the size changes.
struct AutoencoderLevel {
  std::vector<AutoencoderBlock> block;
  std::optional<nn::Conv2d> down, up;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Images -> means and logarithms of variances of latents, (batch, 2 latent_channels, height / 8, width / 8).
struct AutoencoderEncoder {
  nn::Conv2d conv_in;
  std::vector<AutoencoderLevel> down;
  AutoencoderMiddle mid;
  nn::GroupNorm norm_out;
  nn::Conv2d conv_out;
  explicit AutoencoderEncoder(const AutoencoderOptions& o);
  Tensor operator()(const Tensor& images) const;
  TG_STATE(conv_in, down, mid, norm_out, conv_out)
};

/// Latents -> images.
struct AutoencoderDecoder {
  nn::Conv2d conv_in;
  AutoencoderMiddle mid;
  std::vector<AutoencoderLevel> up;  ///< from large images to small ones
  nn::GroupNorm norm_out;
  nn::Conv2d conv_out;
  explicit AutoencoderDecoder(const AutoencoderOptions& o);
  Tensor operator()(const Tensor& latents) const;
  TG_STATE(conv_in, mid, up, norm_out, conv_out)
};

/// Both halves. Images are (batch, 3, height, width) from -1 to 1.
struct AutoencoderKL {
  AutoencoderEncoder encoder;
  AutoencoderDecoder decoder;
  nn::Conv2d quant_conv, post_quant_conv;
  /// Makes the network with random weights. ValueError for no levels, and for channels that groups do not divide.
  explicit AutoencoderKL(const AutoencoderOptions& o = {});
  /// The normal distribution of an image's latents, each (batch, latent_channels, height / 8, width / 8).
  struct Latents {
    Tensor mean, log_variance;
    /// Draws latents.
    Tensor sample() const;
    /// Returns the divergence from the standard normal distribution, (batch,).
    Tensor divergence() const;
  };
  /// Throws ShapeError for images whose sizes cannot be halved as often as needed.
  Latents encode(const Tensor& images) const;
  Tensor decode(const Tensor& latents) const { return decoder(post_quant_conv(latents)); }
  /// Returns images from the means of their latents.
  Tensor operator()(const Tensor& images) const { return decode(encode(images).mean); }
  TG_STATE(encoder, decoder, quant_conv, post_quant_conv)
};

/// Returns images from -1 to 1, (batch, channels, height, width), as bytes (batch, height, width, channels).
Tensor image_bytes(const Tensor& images);

}  // namespace tg::models
