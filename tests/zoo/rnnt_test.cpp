/// \file RNN-T against a network of torch's layers.
#include "models/rnnt.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

constexpr models::RnntOptions kSmall{
    .features = 12, .vocab_size = 7, .encoder_size = 16, .prediction_size = 10, .joint_size = 14};

Tensor spectra() { return zoo::pattern("spectra", {7, 2, 12}) * 3; }

TEST(Rnnt, ForwardAndGradients) {
  const models::Rnnt model(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor labels = zoo::numbers("labels", 6, {2, 4}), logits = model(spectra(), labels);
  zoo::expect_recorded("rnnt", "logits", logits);
  zoo::expect_recorded("rnnt", "started", model(spectra(), labels, true));
  zoo::expect_gradients("rnnt", weights, logits);
}

TEST(Rnnt, Loss) {
  const models::Rnnt model(kSmall);
  nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor labels = zoo::numbers("labels", 6, {2, 4});
  const Tensor loss = models::rnnt_loss(model(spectra(), labels, true), labels, Tensor({4, 2}), Tensor({4, 3}));
  zoo::expect_recorded("rnnt", "loss", loss);
  for (auto& [name, t] : weights) name.insert(0, "of_loss.");
  zoo::expect_gradients("rnnt", weights, loss);
}

TEST(Rnnt, Greedy) {
  const models::Rnnt model(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  for (const auto& [name, t] : weights)
    if (name.find("weight") != std::string::npos) t.assign(t * 5);
  const Tensor bias = model.joint_out.bias;
  bias.assign(bias + Tensor({-0.5, -3.0, -3.5, 1.5, -0.5, 3.0, 4.5}));
  const auto texts = model.greedy(spectra(), {7, 4}, 4);
  zoo::expect_recorded("rnnt", "greedy0", Tensor::from(texts[0]));
  zoo::expect_recorded("rnnt", "greedy1", Tensor::from(texts[1]));
}

TEST(Rnnt, DropoutInTraining) {
  const models::Rnnt model(kSmall);
  const Tensor labels = zoo::numbers("labels", 6, {2, 4});
  const nn::Training mode;
  const Tensor once = model(spectra(), labels).realize(), again = model(spectra(), labels).realize();
  EXPECT_GT((once - again).abs().max().item<float>(), 1e-3f);
}

TEST(Rnnt, NamesOfThePublishedModel) { zoo::expect_names("rnnt_mlperf", nn::get_state_dict(models::Rnnt())); }

TEST(Rnnt, WeightsOfFiles) {
  const nn::StateDict file = {{"state_dict.encoder.pre_rnn.lstm.weight_ih_l1", Tensor(1.f)},
                              {"epoch", Tensor(1.f)},
                              {"encoder.post_rnn.cells.2.weights_hh", Tensor(1.f)},
                              {"prediction.rnn.cells.0.bias_ih", Tensor(1.f)},
                              {"prediction.emb.weight", Tensor(1.f)},
                              {"joint.l2.bias", Tensor(1.f)}};
  std::vector<std::string> names;
  for (const auto& [name, t] : models::rnnt_weights(file)) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"encoder.pre_rnn.lstm.weight_ih_l1", "encoder.post_rnn.lstm.weight_hh_l2",
                                             "prediction.dec_rnn.lstm.bias_ih_l0", "prediction.embed.weight",
                                             "joint_net.3.bias"}));
}

TEST(Rnnt, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::Rnnt({.vocab_size = 1}); }),
            "[Rnnt] got 1 characters, expected at least 2");
  EXPECT_EQ(test::error_text<ValueError>([] { models::Rnnt({.stack = 0}); }),
            "[Rnnt] got stack 0, expected at least 1");
  const models::Rnnt model(kSmall);
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(Tensor::zeros({7, 2, 11}), Tensor({{1}, {2}})); }),
            "[Rnnt] got spectra (7, 2, 11), expected (time, batch, 12)");
  EXPECT_EQ(test::error_text<ShapeError>([&] { (void)model.greedy(spectra(), {7}); }),
            "[Rnnt] got spectra (7, 2, 12) and 1 lengths, expected (time, batch, features) and as many");
  EXPECT_EQ(test::error_text<ValueError>([&] { (void)model.greedy(spectra(), {8, 7}); }),
            "[Rnnt] got length 8 for 7 spectra");
  EXPECT_EQ(test::error_text<ShapeError>([] {
              models::rnnt_loss(Tensor::zeros({2, 4, 4, 7}), Tensor::zeros({2, 4}), Tensor({4, 2}), Tensor({4, 3}));
            }),
            "[rnnt_loss] got logits (2, 4, 4, 7), labels (2, 4) and lengths (2,) and (2,), expected (batch, time, text "
            "+ 1, vocabulary), (batch, text) and (batch,)");
}

}  // namespace
}  // namespace tg
