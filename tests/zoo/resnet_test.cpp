/// \file ResNet and ResNeXt against torchvision.
#include "models/resnet.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

struct Case {
  const char* file;
  models::ResNet (*make)(int64_t);
  bool trained = false;
};
class Resnets : public testing::TestWithParam<Case> {};

TEST_P(Resnets, ForwardAndGradients) {
  const models::ResNet model = GetParam().make(10);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor logits = model(zoo::pattern("images", {2, 3, 64, 64}));
  zoo::expect_recorded(GetParam().file, "logits", logits);
  if (!GetParam().trained) return;
  zoo::expect_gradients(GetParam().file, weights, logits);
  const nn::Training mode;
  const Tensor trained = model(zoo::pattern("images", {4, 3, 64, 64}));
  zoo::expect_recorded(GetParam().file, "trained", trained);
  zoo::expect_recorded(GetParam().file, "layer1.0.bn1.running_var", model.layer1[0].bn1.running_var);
}

INSTANTIATE_TEST_SUITE_P(Zoo, Resnets,
                         testing::Values(Case{"resnet18", models::resnet18, true}, Case{"resnet34", models::resnet34},
                                         Case{"resnet50", models::resnet50}, Case{"resnet101", models::resnet101},
                                         Case{"resnet152", models::resnet152},
                                         Case{"resnext50_32x4d", models::resnext50_32x4d, true}),
                         [](const auto& info) { return info.param.file; });

TEST(Resnet, Features) {
  const models::ResNet model({.layers = 50, .classes = 0});
  const Tensors stages = model.features(Tensor::zeros({1, 3, 64, 32}));
  ASSERT_EQ(stages.size(), 4u);
  EXPECT_EQ(stages[0].shape(), (Shape{1, 256, 16, 8}));
  EXPECT_EQ(stages[3].shape(), (Shape{1, 2048, 2, 1}));
  EXPECT_EQ(test::error_text<ValueError>([&] { model(Tensor::zeros({1, 3, 64, 64})); }),
            "[ResNet] a network without classifier has no logits; features() returns its stages");
}

TEST(Resnet, Options) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::ResNet({.layers = 20}); }),
            "[ResNet] got 20 layers, expected 18, 34, 50, 101 or 152");
  EXPECT_EQ(test::error_text<ValueError>([] { models::ResNet({.layers = 18, .groups = 32}); }),
            "[ResNet] got 32 groups of width 64 for 18 layers, expected 1 of width 64 below 50 layers");
}

}  // namespace
}  // namespace tg
