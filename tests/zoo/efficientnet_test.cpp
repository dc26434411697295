/// \file EfficientNet against the PyTorch package of the published weights.
#include "models/efficientnet.h"

#include <gtest/gtest.h>

#include <set>

#include "helpers/error_text.h"
#include "zoo/pattern.h"
#include "zoo/published.h"

namespace tg {
namespace {

struct Case {
  const char* file;
  int64_t number, height, width;
};
class EfficientNets : public testing::TestWithParam<Case> {};

models::EfficientNet loaded(const Case& c) {
  models::EfficientNet model({.number = c.number, .classes = 10});
  nn::load_state_dict(model, models::efficientnet_weights(zoo::published_weights(std::string(c.file) + "_10")));
  return model;
}

TEST_P(EfficientNets, Forward) {
  const Case& c = GetParam();
  const Tensor images = zoo::pattern("images", {2, 3, c.height, c.width});
  zoo::expect_recorded(c.file, "logits", loaded(c)(images));
}

INSTANTIATE_TEST_SUITE_P(Zoo, EfficientNets,
                         testing::Values(Case{"efficientnet_b0", 0, 64, 64}, Case{"efficientnet_b1", 1, 57, 70},
                                         Case{"efficientnet_b2", 2, 34, 49}),
                         [](const auto& info) { return info.param.file; });

TEST(EfficientNet, GradientsAndTraining) {
  const models::EfficientNet model = loaded({"efficientnet_b0", 0, 64, 64});
  const Tensor logits = model(zoo::pattern("images", {2, 3, 64, 64}));
  zoo::expect_gradients("efficientnet_b0", nn::get_state_dict(model), logits);
  const nn::Training mode;
  zoo::expect_recorded("efficientnet_b0", "trained", model(zoo::pattern("images", {8, 3, 64, 64})));
  zoo::expect_recorded("efficientnet_b0", "_bn0.running_mean", model.bn0.running_mean);
  zoo::expect_recorded("efficientnet_b0", "_blocks.3._bn1.running_var", model.blocks[3].bn1.running_var);
}

std::set<std::pair<std::string, std::string>> names_and_shapes(const nn::StateDict& weights) {
  std::set<std::pair<std::string, std::string>> out;
  for (const auto& [name, t] : weights) out.emplace(name, str(t.shape()));
  return out;
}

TEST(EfficientNet, PublishedNames) {
  for (int64_t number = 0; number < 8; number++)
    EXPECT_EQ(
        names_and_shapes(nn::get_state_dict(models::EfficientNet({.number = number}))),
        names_and_shapes(models::efficientnet_weights(zoo::published("efficientnet_b" + std::to_string(number)))));
}

TEST(EfficientNet, Options) {
  const models::EfficientNet plain({.classes = 0, .squeeze_excitation = false, .input_channels = 1});
  EXPECT_EQ(plain(Tensor::zeros({1, 1, 32, 32})).shape(), (Shape{1, 1280}));
  EXPECT_EQ(models::EfficientNet({.number = 9}).blocks.size(), 6u + 11 + 11 + 16 + 16 + 22 + 6);
  EXPECT_EQ(test::error_text<ValueError>([] { models::EfficientNet({.number = 10}); }),
            "[EfficientNet] got number 10, expected 0 to 9");
}

}  // namespace
}  // namespace tg
