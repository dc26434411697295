/// \file Stable Diffusion out of its parts.
#include "models/stable_diffusion.h"

#include "tinygrad/base/error.h"

namespace tg::models {
namespace {

constexpr double kScale = 0.18215, kScaleXl = 0.13025;
constexpr int64_t kVectorOfNumber = 256;  ///< XL: size of the vectors that sizes become

/// Returns the noise to begin with.
Tensor noise_of(const LatentDiffusion& model, const Tensor& prompt, const ImageOptions& o) {
  const int64_t smaller = int64_t(1) << (model.autoencoder.encoder.down.size() - 1);
  const int64_t unit = smaller << (model.unet.options.multipliers.size() - 1);
  TG_CHECK(ValueError, o.height > 0 && o.width > 0 && o.height % unit == 0 && o.width % unit == 0,
           "[StableDiffusion] got images of ", o.height, " x ", o.width, ", expected multiples of ", unit);
  const Shape shape{prompt.shape(0), model.unet.options.in_channels, o.height / smaller, o.width / smaller};
  if (!o.noise.defined()) return Tensor::randn(shape, {.device = prompt.device()});
  TG_CHECK(ShapeError, o.noise.shape() == shape, "[StableDiffusion] got noise ", o.noise.shape(), ", expected ", shape);
  return o.noise;
}

}  // namespace

StableDiffusionOptions sd1_options() { return {.unet = sd1_unet()}; }
StableDiffusionOptions sd2_options() {
  return {.unet = sd2_unet(), .text = {.width = 1024, .layers = 24, .heads = 16, .projection = 1024}};
}
StableDiffusionOptions sdxl_options() {
  return {.unet = sdxl_unet(), .second_text = {.width = 1280, .layers = 32, .heads = 20, .projection = 1280}};
}

StableDiffusion1::StableDiffusion1(const StableDiffusionOptions& o) : LatentDiffusion(o, kScale), text(o.text) {}

Tensor StableDiffusion1::latents(const Tensor& prompt, const Tensor& empty, const ImageOptions& o) const {
  const Tensor noise = noise_of(*this, prompt, o);
  const NoisePredictor predictor = guided(unet, {text(prompt).hidden}, {text(empty).hidden}, o.guidance);
  return sample_ddim(predictor, noise, {.steps = o.steps});
}

void StableDiffusion1::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("model.diffusion_model, first_stage_model, cond_stage_model.transformer.text_model", unet,
                  autoencoder, text);
}

StableDiffusion2::StableDiffusion2(const StableDiffusionOptions& o) : LatentDiffusion(o, kScale), text(o.text) {}

Tensor StableDiffusion2::latents(const Tensor& prompt, const Tensor& empty, const ImageOptions& o) const {
  const Tensor noise = noise_of(*this, prompt, o);
  auto guiding = [&](const Tensor& tokens) { return GuidingVectors{text.ln_final(text(tokens).penultimate)}; };
  const NoisePredictor predictor = guided(unet, guiding(prompt), guiding(empty), o.guidance);
  return sample_dpm_solver(predictor, noise, {.steps = o.steps, .prediction = prediction});
}

void StableDiffusion2::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("model.diffusion_model, first_stage_model, cond_stage_model.model", unet, autoencoder, text);
}

StableDiffusionXL::StableDiffusionXL(const StableDiffusionOptions& o)
    : LatentDiffusion(o, kScaleXl), text(o.text), second_text(o.second_text) {}

GuidingVectors StableDiffusionXL::guiding(const Tensor& tokens, const Tensor& second_tokens,
                                          const ImageOptions& o) const {
  const ClipText second = second_text(second_tokens);
  // The size of an image before it was cut, where it was cut, and the size afterwards.
  const std::vector<int64_t> sizes{o.height, o.width, 0, 0, o.height, o.width};
  const Tensor numbers = timestep_embedding(Tensor::from(sizes, {.device = tokens.device()}), kVectorOfNumber);
  const Tensor repeated = numbers.reshape(1, -1).expand(tokens.shape(0), -1);
  return {text(tokens).penultimate.cat(second.penultimate, -1), second.pooled.cat(repeated, -1)};
}

Tensor StableDiffusionXL::latents(const Tensor& prompt, const Tensor& second_prompt, const ImageOptions& o) const {
  const Tensor noise = noise_of(*this, prompt, o);
  const GuidingVectors with = guiding(prompt, second_prompt, o);
  const int64_t pooled = second_text.text_projection.shape(1);
  const Tensor sizes = with.vector(Slice(), Slice(pooled, None));
  const GuidingVectors without{with.context.zeros_like(), sizes.pad(Ints{pooled, 0})};
  return sample_dpm_solver(guided(unet, with, without, o.guidance), noise, {.steps = o.steps});
}

void StableDiffusionXL::visit_state(nn::StateVisitor& visitor) const {
  visitor.members("model.diffusion_model, first_stage_model", unet, autoencoder);
  visitor.members("conditioner.embedders.0.transformer.text_model, conditioner.embedders.1.model", text, second_text);
}

nn::StateDict stable_diffusion_weights(const nn::StateDict& file) {
  auto starts_with_any = [](std::string_view name, std::initializer_list<const char*> begins) {
    for (const char* begin : begins)
      if (name.starts_with(begin)) return true;
    return false;
  };
  nn::StateDict out;
  for (const auto& [name, t] : file) {
    std::string_view mine = name;
    if (mine.starts_with("state_dict.")) mine.remove_prefix(11);
    if (!starts_with_any(mine, {"model.diffusion_model.", "first_stage_model.", "cond_stage_model.", "conditioner."}))
      continue;
    if (mine.starts_with("first_stage_model.loss.") || mine.ends_with(".position_ids") ||
        mine.ends_with(".attn_mask") || mine.ends_with(".logit_scale"))
      continue;
    out.emplace_back(mine, t);
  }
  return out;
}

}  // namespace tg::models
