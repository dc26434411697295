/// \file The autoencoder of Stable Diffusion against diffusers.
#include "models/autoencoder_kl.h"

#include <gtest/gtest.h>

#include <cmath>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

models::AutoencoderOptions small_options() { return {.channels = 16, .multipliers = {1, 2, 2}, .groups = 8}; }

TEST(AutoencoderKL, ForwardAndGradients) {
  const models::AutoencoderKL model(small_options());
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const models::AutoencoderKL::Latents latents = model.encode(zoo::pattern("images", {2, 3, 32, 16}));
  zoo::expect_recorded("autoencoder_kl", "mean", latents.mean);
  zoo::expect_recorded("autoencoder_kl", "log_variance", latents.log_variance);
  zoo::expect_recorded("autoencoder_kl", "divergence", latents.divergence());
  const Tensor decoded = model.decode(latents.mean);
  zoo::expect_recorded("autoencoder_kl", "decoded", decoded);
  zoo::expect_gradients("autoencoder_kl", weights, decoded);
}

TEST(AutoencoderKL, Samples) {
  Tensor::manual_seed(5);
  const models::AutoencoderKL::Latents latents{Tensor::full({1, 4, 50, 50}, 3.0), Tensor::full({1, 4, 50, 50}, 2.0)};
  const Tensor drawn = latents.sample().realize();
  EXPECT_NEAR(drawn.mean().item<double>(), 3, 0.1);
  EXPECT_NEAR(drawn.std().item<double>(), std::exp(1), 0.1);
}

TEST(AutoencoderKL, ImageBytes) {
  const Tensor bytes = models::image_bytes(Tensor({{{{-2.f, -1.f, 0.f, 1.f, 3.f}}}}));
  EXPECT_EQ(bytes.shape(), (Shape{1, 1, 5, 1}));
  EXPECT_EQ(bytes.to_vector<int>(), (std::vector<int>{0, 0, 127, 255, 255}));
}

TEST(AutoencoderKL, NamesOfThePublishedModel) {
  zoo::expect_names("autoencoder_kl", nn::get_state_dict(models::AutoencoderKL()));
}

TEST(AutoencoderKL, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::AutoencoderKL({.multipliers = {}}); }),
            "[AutoencoderKL] got no levels, expected a multiplier for each");
  EXPECT_EQ(test::error_text<ValueError>([] { models::AutoencoderKL({.channels = 20}); }),
            "[AutoencoderKL] got 20 channels, which 32 groups do not divide");
  EXPECT_EQ(test::error_text<ShapeError>(
                [] { (void)models::AutoencoderKL(small_options()).encode(Tensor::zeros({1, 3, 30, 32})); }),
            "[AutoencoderKL] got images (1, 3, 30, 32), expected (batch, channels, height, width) in multiples of 4");
}

}  // namespace
}  // namespace tg
