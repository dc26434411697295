/// \file The U-Nets of Stable Diffusion against diffusers.
#include "models/unet.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

models::UNetInput small_input() {
  return {zoo::pattern("latents", {2, 4, 16, 8}), Tensor({3, 981}), zoo::pattern("context", {2, 5, 24})};
}

models::UNetOptions small_options() {
  return {.channels = 16, .multipliers = {1, 2, 2, 2}, .context = 24, .heads = 4, .groups = 8, .attention_groups = 8};
}

models::UNetOptions small_xl() {
  return {.channels = 16,
          .multipliers = {1, 2},
          .attention_at = {2},
          .depths = {1, 2},
          .context = 24,
          .heads = 0,
          .head_dim = 8,
          .linear = true,
          .vector = 82,
          .groups = 8,
          .attention_groups = 8};
}

TEST(UNet, TimestepEmbedding) {
  zoo::expect_recorded("unet", "embedding", models::timestep_embedding(Tensor({3, 981}), 32));
  EXPECT_EQ(test::error_text<ValueError>([] { models::timestep_embedding(Tensor({1}), 7); }),
            "[timestep_embedding] got dim 7, expected an even number");
}

TEST(UNet, StableDiffusion1) {
  const models::UNet model(small_options());
  zoo::give_weights(nn::get_state_dict(model));
  zoo::expect_recorded("unet", "sd1", model(small_input()));
}

TEST(UNet, StableDiffusion2) {
  models::UNetOptions o = small_options();
  o.linear = true;
  o.heads = 0;
  o.head_dim = 8;
  const models::UNet model(o);
  zoo::give_weights(nn::get_state_dict(model));
  zoo::expect_recorded("unet", "sd2", model(small_input()));
}

TEST(UNet, StableDiffusionXl) {
  const models::UNet model(small_xl());
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  models::UNetInput in = small_input();
  const Tensor sizes = models::timestep_embedding(zoo::numbers("sizes", 1024, {2, 6}).flatten(), 12).reshape(2, -1);
  in.vector = zoo::pattern("text", {2, 10}).cat(sizes, 1);
  const Tensor out = model(in);
  zoo::expect_recorded("unet", "xl", out);
  zoo::expect_gradients("unet", weights, out);
}

TEST(UNet, HalfWeightsGiveHalfResults) {
  const models::UNet model(small_xl());
  for (const auto& [name, t] : nn::get_state_dict(model)) t.replace(t.cast(dtypes::float16));
  models::UNetInput in = small_input();
  in.vector = Tensor::zeros({2, 82});
  const Tensor out = model(in);
  EXPECT_EQ(out.dtype(), dtypes::float16);
  EXPECT_TRUE(out.isfinite().all().item<bool>());
}

TEST(UNet, NamesOfPublishedModels) {
  zoo::expect_names("unet_sd1", nn::get_state_dict(models::UNet(models::sd1_unet())));
  zoo::expect_names("unet_sd2", nn::get_state_dict(models::UNet(models::sd2_unet())));
  zoo::expect_names("unet_sdxl", nn::get_state_dict(models::UNet(models::sdxl_unet())));
  zoo::expect_names("unet_sdxl_refiner", nn::get_state_dict(models::UNet(models::sdxl_refiner_unet())));
}

std::string error_of(const models::UNetOptions& o) {
  return test::error_text<ValueError>([&] { models::UNet{o}; });
}

TEST(UNet, Errors) {
  EXPECT_EQ(error_of({.depths = {1}}), "[UNet] got 4 multipliers and 1 depths, expected one of each for every level");
  EXPECT_EQ(error_of({.head_dim = 64}), "[UNet] got 8 heads and head_dim 64, expected one of them");
  EXPECT_EQ(error_of({.heads = 7}), "[UNet] got 320 channels, which 7 heads do not divide");
  EXPECT_EQ(error_of({.heads = 0, .head_dim = 48}), "[UNet] got 320 channels, which 48 values of a head do not divide");
  EXPECT_EQ(error_of({.groups = 33}), "[UNet] got 320 channels, which 33 groups do not divide");
  const models::UNet model(small_options());
  models::UNetInput in = small_input();
  in.vector = Tensor::zeros({2, 4});
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(in); }), "[UNet] got a vector, expected none");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::UNet{small_xl()}(small_input()); }),
            "[UNet] got no vector, expected one");
  in.latents = Tensor::zeros({2, 4, 12, 16});
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(in); }),
            "[UNet] got latents (2, 4, 12, 16), expected (batch, channels, height, width) in multiples of 8");
}

}  // namespace
}  // namespace tg
