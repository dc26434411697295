/// \file Mamba against transformers.
#include "models/mamba.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

constexpr models::MambaOptions kSmall{.vocab_size = 40, .dim = 32, .layers = 2, .state = 8};

TEST(Mamba, ForwardAndGradients) {
  const models::Mamba model(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor logits = model(zoo::numbers("tokens", 40, {2, 13}));
  zoo::expect_recorded("mamba", "logits", logits);
  zoo::expect_gradients("mamba", weights, logits);
}

TEST(Mamba, StepsOfAnyLength) {
  const models::Mamba model(kSmall);
  zoo::give_weights(nn::get_state_dict(model));
  const Tensor tokens = zoo::numbers("tokens", 40, {2, 13});
  models::MambaState state = model.start(2);
  Tensors logits;
  for (const auto& [begin, end] : {std::pair{0, 6}, {6, 7}, {7, 8}, {8, 13}}) {
    models::Mamba::Step step = model.step(tokens(Slice(), Slice(begin, end)), state);
    logits.push_back(step.logits);
    state = step.state;
  }
  zoo::expect_recorded("mamba", "logits", Tensor::cat(logits, 1));
}

TEST(Mamba, Greedy) {
  const models::Mamba model(kSmall);
  zoo::give_weights(nn::get_state_dict(model));
  zoo::expect_recorded("mamba", "greedy", Tensor::from(model.greedy({5, 17, 33}, 8)));
}

TEST(Mamba, NamesOfThePublishedModel) {
  zoo::expect_names("mamba_130m", nn::get_state_dict(models::Mamba(models::mamba_options("130m"))));
  EXPECT_EQ(models::mamba_options("2.8b").layers, 64);
}

TEST(Mamba, WeightsOfFiles) {
  const models::Mamba model(kSmall);
  nn::StateDict file;
  for (const auto& [name, t] : nn::get_state_dict(model))
    if (name != "lm_head.weight")
      file.emplace_back(name == "backbone.embedding.weight" ? "backbone.embeddings.weight" : name, t.full_like(2));
  nn::load_state_dict(model, models::mamba_weights(file));
  EXPECT_EQ(model.lm_head.weight.mean().item<float>(), 2);
}

TEST(Mamba, StepsAreInitializedWithinBounds) {
  const models::MambaMixer mixer(kSmall);
  const Tensor step = mixer.dt_proj.bias.softplus();
  EXPECT_GT(step.min().item<float>(), 0.00099f);
  EXPECT_LT(step.max().item<float>(), 0.101f);
}

TEST(Mamba, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::mamba_options("7b"); }),
            "[mamba_options] got \"7b\", expected \"130m\", \"370m\", \"790m\", \"1.4b\" or \"2.8b\"");
  EXPECT_EQ(test::error_text<ValueError>([] { models::Mamba({.layers = 0}); }),
            "[Mamba] got size 0, expected positive sizes");
  const models::Mamba model(kSmall);
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(Tensor({1, 2})); }),
            "[Mamba] got tokens (2,), expected (batch, time)");
  EXPECT_EQ(test::error_text<ShapeError>([&] { (void)model.step(Tensor({{1, 2}}), model.start(2)); }),
            "[Mamba] got a state of 2 layers for tokens (1, 2), expected 2 layers of that batch");
  EXPECT_EQ(test::error_text<ValueError>([&] { (void)model.greedy({}, 3); }),
            "[Mamba] got no prompt, expected a token at least");
}

}  // namespace
}  // namespace tg
