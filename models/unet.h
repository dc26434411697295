/// \file The U-Net of latent diffusion models (Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion
/// Models", arXiv 2112.10752; Podell et al., "SDXL", arXiv 2307.01952): Stable Diffusion 1, 2 and XL, with the names of
/// weights of their published files, there behind "model.diffusion_model.".
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "tinygrad/nn/nn.h"

namespace tg::models {

/// Shape of a U-Net; that of Stable Diffusion 1 without changes.
struct UNetOptions {
  int64_t in_channels = 4, out_channels = 4;
  int64_t channels = 320;                           ///< of the first level
  std::vector<int64_t> multipliers = {1, 2, 4, 4};  ///< channels of each level; each next one has half the size
  int64_t res_blocks = 2;                           ///< of a level on the way down; one more on the way up
  std::vector<int64_t> attention_at = {1, 2, 4};    ///< how often smaller the images are that attention looks at
  std::vector<int64_t> depths = {1, 1, 1, 1};       ///< layers of attention at each level
  int64_t context = 768;                            ///< size of the vectors of what guides
  int64_t heads = 8;                                ///< of attention; 0: as many as head_dim makes
  int64_t head_dim = 0;
  bool linear = false;            ///< attention's projections are linear layers, not 1x1 convolutions
  int64_t vector = 0;             ///< size of the other vector that guides; 0: there is none
  int64_t groups = 32;            ///< of norms in residual blocks
  int64_t attention_groups = 32;  ///< of norms before attention
};

/// Return the shapes of published networks.
UNetOptions sd1_unet();
UNetOptions sd2_unet();
UNetOptions sdxl_unet();
UNetOptions sdxl_refiner_unet();

/// Returns cosines, then sines of numbers (n,) at `dim` / 2 frequencies: (n, dim), in float32. ValueError for a dim
/// that is odd.
Tensor timestep_embedding(const Tensor& timesteps, int64_t dim, double max_period = 10000);

/// Two convolutions around a shortcut, with the time step's vector added between them.
struct UNetResBlock {
  nn::GroupNorm in_norm;
  nn::Conv2d in_conv;
  nn::Linear emb;
  nn::GroupNorm out_norm;
  nn::Conv2d out_conv;
  std::optional<nn::Conv2d> skip_connection;
  UNetResBlock(int64_t in, int64_t out, const UNetOptions& o);
  Tensor operator()(const Tensor& x, const Tensor& embedding) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Attention of vectors (batch, time, dim) to others (batch, other time, context).
struct CrossAttention {
  nn::Linear to_q, to_k, to_v, to_out;
  int64_t heads;
  CrossAttention(int64_t dim, int64_t context, int64_t heads);
  Tensor operator()(const Tensor& x, const Tensor& context) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// A layer of attention: to all places of the image, to what guides, then a gated feed-forward network.
struct SpatialLayer {
  CrossAttention attn1;
  nn::Linear ff_in, ff_out;
  CrossAttention attn2;
  nn::LayerNorm norm1, norm2, norm3;
  SpatialLayer(int64_t dim, int64_t context, int64_t heads);
  Tensor operator()(const Tensor& x, const Tensor& context) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Layers of attention over the places of images (batch, channels, height, width), around a shortcut.
struct SpatialTransformer {
  nn::GroupNorm norm;
  std::optional<nn::Linear> linear_in, linear_out;
  std::vector<SpatialLayer> transformer_blocks;
  std::optional<nn::Conv2d> conv_in, conv_out;
  SpatialTransformer(int64_t channels, int64_t depth, const UNetOptions& o);
  Tensor operator()(const Tensor& x, const Tensor& context) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// One of the U-Net's numbered blocks: a residual block with attention and a change of size, or some of these.
struct UNetBlock {
  std::optional<UNetResBlock> res = {};
  std::optional<SpatialTransformer> attention = {};
  std::optional<nn::Conv2d> first = {}, down = {}, up = {};
  Tensor operator()(const Tensor& x, const Tensor& embedding, const Tensor& context) const;
  /// Numbers its parts, as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// What a U-Net is asked.
struct UNetInput {
  Tensor latents;      ///< (batch, in_channels, height, width)
  Tensor timesteps;    ///< (batch,): how noisy they are, 0 to 999
  Tensor context;      ///< (batch, time, context)
  Tensor vector = {};  ///< (batch, vector); undefined where the network has none
};

/// The network: noisy latents -> what it predicts of them (batch, out_channels, height, width), in the weights' type.
struct UNet {
  nn::Linear time_in, time_out;
  std::optional<nn::Linear> label_in, label_out;
  std::vector<UNetBlock> input_blocks, middle_block, output_blocks;
  nn::GroupNorm out_norm;
  nn::Conv2d out_conv;
  UNetOptions options;
  /// Makes the network with random weights. ValueError for lists of different lengths, for channels that heads or
  /// groups do not divide, and unless either heads or head_dim is given.
  explicit UNet(const UNetOptions& o = {});
  /// Throws ShapeError for latents that cannot be halved as often as needed, and for a vector that is missing or not
  /// expected.
  Tensor operator()(const UNetInput& in) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

}  // namespace tg::models
