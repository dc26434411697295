/// \file Stable Diffusion 1, 2 and XL: prompts become images (Rombach et al., arXiv 2112.10752; Podell et al., arXiv
/// 2307.01952). Names of weights are those of the published files: `nn::load_state_dict(model,
/// stable_diffusion_weights(file))`. Tokens come from models/clip_tokenizer.h.
#pragma once
#include <cstdint>

#include "models/autoencoder_kl.h"
#include "models/clip.h"
#include "models/diffusion.h"
#include "models/unet.h"

namespace tg::models {

/// How images are made.
struct ImageOptions {
  int64_t height = 512, width = 512;  ///< multiples of 64
  int64_t steps = 20;
  double guidance = 7.5;  ///< how much the prompt counts
  Tensor noise = {};      ///< to begin with, (batch, 4, height / 8, width / 8); undefined: random
};

/// Shapes of the parts.
struct StableDiffusionOptions {
  UNetOptions unet;
  AutoencoderOptions autoencoder = {};
  ClipTextOptions text = {};         ///< of the text encoder
  ClipTextOptions second_text = {};  ///< of XL's second one
};
/// Return the shapes of published networks.
StableDiffusionOptions sd1_options();
StableDiffusionOptions sd2_options();
StableDiffusionOptions sdxl_options();

/// What all versions have.
struct LatentDiffusion {
  UNet unet;
  AutoencoderKL autoencoder;
  double latent_scale;  ///< what the autoencoder's latents are multiplied by
  LatentDiffusion(const StableDiffusionOptions& o, double scale)
      : unet(o.unet), autoencoder(o.autoencoder), latent_scale(scale) {}
  /// Returns images of latents, bytes (batch, height, width, 3).
  Tensor images(const Tensor& latents) const { return image_bytes(autoencoder.decode(latents / latent_scale)); }
  /// Returns latents of images, which are (batch, 3, height, width) from -1 to 1: what the U-Net is trained with.
  Tensor latents_of(const Tensor& images) const { return autoencoder.encode(images).sample() * latent_scale; }
  TG_STATE(unet, autoencoder)
};

/// Stable Diffusion 1: OpenAI's text encoder, DDIM steps.
struct StableDiffusion1 : LatentDiffusion {
  ClosedClipText text;
  explicit StableDiffusion1(const StableDiffusionOptions& o = sd1_options());
  /// Returns latents for prompts (batch, time) of tokens; `empty` are those of what is not wanted. ValueError for sizes
  /// that are no multiples, ShapeError for noise of another shape.
  Tensor latents(const Tensor& prompt, const Tensor& empty, const ImageOptions& o = {}) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Stable Diffusion 2: OpenCLIP's text encoder, DPM-Solver++; the network predicts velocities.
struct StableDiffusion2 : LatentDiffusion {
  OpenClipText text;
  Prediction prediction = Prediction::kVelocity;  ///< kNoise for the "base" networks of 512 x 512
  explicit StableDiffusion2(const StableDiffusionOptions& o = sd2_options());
  /// Returns latents for prompts of tokens, padded with zeros; errors as StableDiffusion1.
  Tensor latents(const Tensor& prompt, const Tensor& empty,
                 const ImageOptions& o = {.height = 768, .width = 768}) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Stable Diffusion XL: both text encoders, DPM-Solver++.
struct StableDiffusionXL : LatentDiffusion {
  ClosedClipText text;
  OpenClipText second_text;
  explicit StableDiffusionXL(const StableDiffusionOptions& o = sdxl_options());
  /// Returns what guides the network: from the tokens of one text for both encoders (those of the second padded with
  /// zeros), and from the size of the images.
  GuidingVectors guiding(const Tensor& tokens, const Tensor& second_tokens, const ImageOptions& o) const;
  /// Returns latents for prompts of tokens; errors as StableDiffusion1. Without guidance the network sees zeros.
  Tensor latents(const Tensor& prompt, const Tensor& second_prompt,
                 const ImageOptions& o = {.height = 1024, .width = 1024, .guidance = 6}) const;
  /// Names the weights as the files do.
  void visit_state(nn::StateVisitor& visitor) const;
};

/// Returns the weights in a published file that the networks have: without averages, losses, masks and tables.
nn::StateDict stable_diffusion_weights(const nn::StateDict& file);

}  // namespace tg::models
