/// \file The encoder of T5 against transformers.
#include "models/t5.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

constexpr models::T5Options kSmall{
    .vocab_size = 60, .dim = 32, .head_dim = 8, .heads = 4, .hidden_dim = 48, .layers = 2};

TEST(T5, Encoder) {
  const models::T5Encoder model(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  zoo::expect_recorded("t5", "bias", model.position_bias(150));
  const Tensor ids = zoo::numbers("ids", 60, {2, 150}), hidden = model(ids);
  zoo::expect_recorded("t5", "hidden", hidden);
  zoo::expect_recorded("t5", "masked", model(ids, Tensor::arange(150) < Tensor({{150}, {40}})));
  zoo::expect_gradients("t5", weights, hidden);
}

TEST(T5, NamesOfTheLargestModel) { zoo::expect_names("t5_xxl", nn::get_state_dict(models::T5Encoder())); }

TEST(T5, WeightsOfFiles) {
  const models::T5Encoder model(kSmall);
  nn::StateDict file;
  for (const auto& [name, t] : nn::get_state_dict(model))
    file.emplace_back(name == "shared.weight" ? "encoder.embed_tokens.weight" : name, t.full_like(3));
  file.emplace_back("decoder.final_layer_norm.weight", Tensor::ones(32));
  file.emplace_back("lm_head.weight", Tensor::ones(60, 32));
  nn::load_state_dict(model, models::t5_encoder_weights(file));
  EXPECT_EQ(model.shared.weight.mean().item<float>(), 3);
  file.emplace_back("shared.weight", model.shared.weight.full_like(4));
  nn::load_state_dict(model, models::t5_encoder_weights(file));
  EXPECT_EQ(model.shared.weight.mean().item<float>(), 4);
}

TEST(T5, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::T5Encoder({.layers = 0}); }),
            "[T5Encoder] got 0 layers, expected at least 1");
  EXPECT_EQ(test::error_text<ValueError>([] { models::T5Encoder({.buckets = 30}); }),
            "[T5Encoder] got 30 buckets, expected a multiple of 4");
  EXPECT_EQ(test::error_text<ValueError>([] { models::T5Encoder({.max_distance = 8}); }),
            "[T5Encoder] got distance 8 for 32 buckets, expected more than 8");
  const models::T5Encoder model(kSmall);
  const Tensor ids = Tensor::zeros({1, 4}, dtypes::int32);
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(ids, ids[0]); }),
            "[T5Encoder] got ids (1, 4) and mask (4,), expected (batch, time) for each");
}

}  // namespace
}  // namespace tg
