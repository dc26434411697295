/// \file Samplers and Stable Diffusion out of its parts, against diffusers.
#include "models/diffusion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "helpers/error_text.h"
#include "models/stable_diffusion.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

Tensor toy(const Tensor& x, const Tensor& t) {
  return (x * 1.3 + t.cast(dtypes::float32).reshape(-1, 1, 1, 1) / 1000).tanh();
}

Tensor noise() { return zoo::pattern("noise", {2, 4, 8, 8}); }

TEST(Diffusion, Samplers) {
  const models::SamplerOptions velocity{.steps = 7, .prediction = models::Prediction::kVelocity};
  zoo::expect_recorded("diffusion", "ddim_epsilon", models::sample_ddim(toy, noise(), {.steps = 7}));
  zoo::expect_recorded("diffusion", "ddim_v_prediction", models::sample_ddim(toy, noise(), velocity));
  zoo::expect_recorded("diffusion", "dpm_solver_epsilon", models::sample_dpm_solver(toy, noise(), {.steps = 7}));
  zoo::expect_recorded("diffusion", "dpm_solver_v_prediction", models::sample_dpm_solver(toy, noise(), velocity));
}

TEST(Diffusion, NoisyImages) {
  const models::NoiseSchedule schedule;
  zoo::expect_recorded("diffusion", "noisy",
                       schedule.noisy(zoo::pattern("image", {2, 4, 8, 8}), noise(), Tensor({10, 900})));
}

models::StableDiffusionOptions small_options() {
  return {
      .unet =
          {.channels = 16, .multipliers = {1, 2, 2, 2}, .context = 24, .heads = 4, .groups = 8, .attention_groups = 8},
      .autoencoder = {.channels = 16, .multipliers = {1, 2, 2}, .groups = 8},
      .text = {.vocab_size = 60, .width = 24, .layers = 2, .heads = 4, .positions = 9, .projection = 24},
      .second_text = {.vocab_size = 60, .width = 16, .layers = 2, .heads = 4, .positions = 9, .projection = 8}};
}

TEST(Diffusion, StableDiffusion1) {
  const models::StableDiffusion1 model(small_options());
  zoo::give_weights(nn::get_state_dict(model));
  const Tensor latents = model.latents(zoo::numbers("prompt", 60, {2, 9}), zoo::numbers("empty", 60, {2, 9}),
                                       {.height = 32, .width = 32, .steps = 4, .noise = noise()});
  zoo::expect_recorded("diffusion", "latents", latents);
  zoo::expect_recorded("diffusion", "decoded", model.autoencoder.decode(latents / model.latent_scale));
  const Tensor images = model.images(latents);
  EXPECT_EQ(images.shape(), (Shape{2, 32, 32, 3}));
  EXPECT_EQ(images.dtype(), dtypes::uint8);
}

TEST(Diffusion, StableDiffusion2) {
  models::StableDiffusionOptions o = small_options();
  o.unet = {.channels = 16,
            .multipliers = {1, 2},
            .attention_at = {1},
            .depths = {1, 1},
            .context = 24,
            .heads = 0,
            .head_dim = 8,
            .linear = true,
            .groups = 8,
            .attention_groups = 8};
  const models::StableDiffusion2 model(o);
  zoo::give_weights(nn::get_state_dict(model));
  const Tensor latents = model.latents(zoo::numbers("prompt", 60, {2, 9}), zoo::numbers("empty", 60, {2, 9}),
                                       {.height = 32, .width = 32, .steps = 4, .noise = noise()});
  zoo::expect_recorded("diffusion", "latents2", latents);
}

TEST(Diffusion, StableDiffusionXl) {
  models::StableDiffusionOptions o = small_options();
  o.unet = {.channels = 16,
            .multipliers = {1, 2},
            .attention_at = {2},
            .depths = {1, 2},
            .context = 24 + 16,
            .heads = 0,
            .head_dim = 8,
            .linear = true,
            .vector = 8 + 6 * 256,
            .groups = 8,
            .attention_groups = 8};
  const models::StableDiffusionXL model(o);
  zoo::give_weights(nn::get_state_dict(model));
  const Tensor tokens = zoo::numbers("prompt", 60, {2, 9});
  const models::ImageOptions image{.height = 32, .width = 32, .steps = 4, .guidance = 6, .noise = noise()};
  zoo::expect_recorded("diffusion", "latents_xl", model.latents(tokens, tokens, image));
}

std::set<std::string> names(const nn::StateDict& state) {
  std::set<std::string> out;
  for (const auto& [name, t] : state) out.insert(name);
  return out;
}

TEST(Diffusion, WeightsOfFiles) {
  const models::StableDiffusion1 model(small_options());
  const nn::StateDict mine = nn::get_state_dict(model);
  EXPECT_TRUE(mine.contains("model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_out.0.bias"));
  EXPECT_TRUE(mine.contains("first_stage_model.decoder.up.1.upsample.conv.weight"));
  EXPECT_TRUE(mine.contains("cond_stage_model.transformer.text_model.encoder.layers.1.self_attn.k_proj.weight"));
  nn::StateDict file;
  for (const auto& [name, t] : mine) file.emplace_back("state_dict." + name, t);
  for (const char* other : {"alphas_cumprod", "state_dict.model_ema.decay", "first_stage_model.loss.logvar",
                            "cond_stage_model.transformer.text_model.embeddings.position_ids",
                            "cond_stage_model.model.attn_mask", "cond_stage_model.model.logit_scale"})
    file.emplace_back(other, Tensor(1.f));
  EXPECT_EQ(names(models::stable_diffusion_weights(file)), names(mine));
  const nn::StateDict second = nn::get_state_dict(models::StableDiffusion2(small_options()));
  EXPECT_TRUE(second.contains("cond_stage_model.model.transformer.resblocks.1.attn.in_proj_weight"));
  const nn::StateDict xl = nn::get_state_dict(models::StableDiffusionXL(small_options()));
  EXPECT_TRUE(xl.contains("conditioner.embedders.0.transformer.text_model.final_layer_norm.bias"));
  EXPECT_TRUE(xl.contains("conditioner.embedders.1.model.text_projection"));
}

TEST(Diffusion, PublishedSizesFit) {
  EXPECT_GT(nn::get_state_dict(models::StableDiffusion1()).size(), 1000u);
  EXPECT_GT(nn::get_state_dict(models::StableDiffusion2()).size(), 1000u);
  const models::StableDiffusionXL xl;
  EXPECT_EQ(xl.text.token_embedding.weight.shape(1) + xl.second_text.token_embedding.weight.shape(1),
            xl.unet.options.context);
  EXPECT_EQ(xl.second_text.text_projection.shape(1) + 6 * 256, xl.unet.options.vector);
}

TEST(Diffusion, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::NoiseSchedule(1); }),
            "[NoiseSchedule] got 1 steps, expected at least 2");
  EXPECT_EQ(test::error_text<ValueError>([] { models::sample_ddim(toy, noise(), {.steps = 0}); }),
            "[sample_ddim] got 0 steps, expected 1 to 1000");
  EXPECT_EQ(test::error_text<ValueError>([] { models::sample_dpm_solver(toy, noise(), {.steps = 1001}); }),
            "[sample_dpm_solver] got 1001 steps, expected 1 to 1000");
  const models::StableDiffusion1 model(small_options());
  const Tensor tokens = Tensor::zeros({1, 9}, dtypes::int32);
  EXPECT_EQ(test::error_text<ValueError>([&] { model.latents(tokens, tokens, {.height = 48, .width = 32}); }),
            "[StableDiffusion] got images of 48 x 32, expected multiples of 32");
  EXPECT_EQ(test::error_text<ShapeError>(
                [&] { model.latents(tokens, tokens, {.height = 32, .width = 32, .noise = noise()}); }),
            "[StableDiffusion] got noise (2, 4, 8, 8), expected (1, 4, 8, 8)");
  EXPECT_EQ(test::error_text<ShapeError>(
                [&] { models::guided(model.unet, {Tensor::zeros({1, 9, 24})}, {Tensor::zeros({1, 8, 24})}, 2); }),
            "[guided] got prompts (1, 9, 24) and (1, 8, 24), expected one shape");
}

}  // namespace
}  // namespace tg
