/// \file Sampling from diffusion models: the steps from noise to latents, DDIM (Song et al., "Denoising Diffusion
/// Implicit Models", arXiv 2010.02502) and DPM-Solver++ (Lu et al., arXiv 2211.01095), and guidance without a
/// classifier (Ho and Salimans, arXiv 2207.12598).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "models/unet.h"

namespace tg::models {

/// How much of an image is left after each step of adding noise: x_t = sqrt(kept[t]) x_0 + sqrt(1 - kept[t]) noise. The
/// square roots of the variances that are added grow linearly.
struct NoiseSchedule {
  std::vector<double> kept;
  /// Throws ValueError for fewer than two steps.
  explicit NoiseSchedule(int64_t steps = 1000, double first = 0.00085, double last = 0.012);
  /// Returns the deviation of noise at a step, where the image keeps its scale.
  double sigma(int64_t t) const;
  /// Returns x_t for images (batch, ...), noise of that shape and steps (batch,): what a network is trained with.
  Tensor noisy(const Tensor& images, const Tensor& noise, const Tensor& timesteps) const;
};

/// What a network predicts: the noise, or sqrt(kept) noise - sqrt(1 - kept) x_0.
enum class Prediction : uint8_t { kNoise, kVelocity };
/// Computes a prediction from x_t and steps (batch,). It is captured: what it does must not depend on values.
using NoisePredictor = std::function<Tensor(const Tensor& latents, const Tensor& timesteps)>;

struct SamplerOptions {
  int64_t steps = 20;
  Prediction prediction = Prediction::kNoise;
  NoiseSchedule schedule = NoiseSchedule();
};

/// Return samples of the noise's shape and type, which is standard normal. ValueError unless there is a step at least
/// and as many as the schedule has at most.
Tensor sample_ddim(const NoisePredictor& predictor, const Tensor& noise, const SamplerOptions& o = {});
/// Does so with the second-order multistep method, which needs fewer steps.
Tensor sample_dpm_solver(const NoisePredictor& predictor, const Tensor& noise, const SamplerOptions& o = {});

/// What guides a U-Net.
struct GuidingVectors {
  Tensor context;      ///< (batch, time, context)
  Tensor vector = {};  ///< (batch, vector); undefined for networks without
};
/// Returns the predictor of a network that `scale` times follows `prompt` rather than `empty`, which are computed now.
/// The network must outlive it. ShapeError for prompts of different shapes.
NoisePredictor guided(const UNet& network, const GuidingVectors& prompt, const GuidingVectors& empty, double scale);

}  // namespace tg::models
