/// \file ConvNeXt against timm.
#include "models/convnext.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

void expect_forward_and_gradients(const char* file, const models::ConvNeXtOptions& o) {
  const models::ConvNeXt model(o);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor logits = model(zoo::pattern("images", {2, o.input_channels, 64, 70}));
  zoo::expect_recorded(file, "logits", logits, 5e-5);  // the approximation of GELU differs by more
  zoo::expect_gradients(file, weights, logits);
}

TEST(ConvNeXt, Tiny) { expect_forward_and_gradients("convnext_tiny", {.classes = 10}); }

TEST(ConvNeXt, OtherSizes) {
  expect_forward_and_gradients("convnext_odd",
                               {.input_channels = 2, .classes = 10, .depths = {1, 2, 1, 2}, .dims = {8, 24, 40, 56}});
}

TEST(ConvNeXt, PublishedNames) {
  for (const std::string version : {"tiny", "small", "base", "large", "xlarge"})
    zoo::expect_names("convnext_" + version, nn::get_state_dict(models::ConvNeXt(models::convnext_options(version))));
}

TEST(ConvNeXt, PublishedEps) {
  const models::ConvNeXt model;
  EXPECT_EQ(model.norm.options.eps, 1e-6);
  EXPECT_EQ(model.stages[0][0].norm.options.eps, 1e-6);
  EXPECT_EQ(model.downsample_layers[1].norm.options.eps, 1e-6);
}

TEST(ConvNeXt, Features) {
  const Tensors stages = models::ConvNeXt().features(Tensor::zeros({1, 3, 64, 32}));
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0].shape(), (Shape{1, 96, 16, 8}));
  EXPECT_EQ(stages[3].shape(), (Shape{1, 768, 2, 1}));
}

TEST(ConvNeXt, Options) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::convnext_options("huge"); }),
            "[convnext_options] got \"huge\", expected tiny, small, base, large or xlarge");
}

}  // namespace
}  // namespace tg
