/// \file 3-D U-Net against PyTorch's layers.
#include "models/unet3d.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

TEST(UNet3D, ForwardAndGradients) {
  const models::UNet3D model({.in_channels = 2, .classes = 4, .filters = {4, 8, 12}});
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor logits = model(zoo::pattern("volumes", {2, 2, 16, 24, 8}));
  zoo::expect_recorded("unet3d", "logits", logits);
  zoo::expect_gradients("unet3d", weights, logits);
}

TEST(UNet3D, PublishedNames) {
  const models::UNet3D model;
  zoo::expect_names("unet3d", nn::get_state_dict(model));
  EXPECT_EQ(model(Tensor::zeros({1, 1, 32, 64, 32})).shape(), (Shape{1, 3, 32, 64, 32}));
}

TEST(UNet3D, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::UNet3D({.filters = {}}); }),
            "[UNet3D] got no filters, expected the channels of each level");
  const models::UNet3D model({.filters = {2, 4}});
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(Tensor::zeros({1, 1, 8, 8})); }),
            "[UNet3D] got (1, 1, 8, 8), expected (batch, channels, depth, height, width)");
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(Tensor::zeros({1, 1, 8, 6, 8})); }),
            "[UNet3D] got (1, 1, 8, 6, 8), expected depth, height and width to be multiples of 4");
}

}  // namespace
}  // namespace tg
