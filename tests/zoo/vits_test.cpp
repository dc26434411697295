/// \file VITS against transformers.
#include "models/vits.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

models::VitsOptions small_options() {
  return {.hidden = 16,
          .flow_size = 8,
          .spectrum_bins = 9,
          .flows = 2,
          .flow_layers = 2,
          .posterior_layers = 3,
          .wavenet_dilation = 2,
          .text = {.vocab_size = 20, .layers = 2, .window = 2, .feed_forward = 24},
          .durations = {.channels = 12, .flows = 2},
          .decoder = {.channels = 16,
                      .upsample_rates = {4, 2},
                      .upsample_kernels = {8, 4},
                      .resblock_kernels = {3, 5},
                      .resblock_dilations = {1, 3}}};
}

Tensor ids() { return zoo::numbers("ids", 20, {2, 7}); }
Tensor mask() { return (Tensor::arange(7) < Tensor({{7}, {5}})).cast(dtypes::float32); }

models::VitsSpeechOptions fixed_noise() {
  return {.mask = mask(),
          .noise_of_durations = zoo::pattern("noise_of_durations", {2, 2, 7}),
          .noise_of_latents = zoo::pattern("noise_of_latents", {2, 8, 64})};
}

TEST(Vits, Splines) {
  const Tensor x = zoo::pattern("x", {2, 3, 5}) * 7, widths = zoo::pattern("widths", {2, 3, 5, 4}) * 2,
               heights = zoo::pattern("heights", {2, 3, 5, 4}) * 2, slopes = zoo::pattern("slopes", {2, 3, 5, 3}) * 2;
  const auto [value, change] = models::rational_spline(x, widths, heights, slopes, 5, false);
  zoo::expect_recorded("vits", "spline", value);
  zoo::expect_recorded("vits", "spline_change", change);
  const auto [inverse, inverse_change] = models::rational_spline(x, widths, heights, slopes, 5, true);
  zoo::expect_recorded("vits", "inverse", inverse);
  zoo::expect_recorded("vits", "inverse_change", inverse_change);
}

TEST(Vits, SpeechAndGradients) {
  const models::Vits model(small_options());
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const models::VitsTextEncoder::Result text = model.text_encoder(ids(), mask().unsqueeze(1));
  zoo::expect_recorded("vits", "hidden", text.hidden);
  zoo::expect_recorded("vits", "means", text.means);
  const models::Vits::Speech speech = model(ids(), fixed_noise());
  zoo::expect_recorded("vits", "samples", Tensor::from(speech.samples));
  zoo::expect_recorded("vits", "latents", speech.latents);
  zoo::expect_recorded("vits", "audio", speech.audio);
  zoo::expect_gradients("vits", weights, speech.audio);
}

TEST(Vits, PartsForTraining) {
  const models::Vits model(small_options());
  zoo::give_weights(nn::get_state_dict(model));
  const Tensor m = mask().unsqueeze(1), hidden = model.text_encoder(ids(), m).hidden;
  const Tensor durations = (zoo::numbers("durations", 5, {2, 1, 7}).cast(dtypes::float32) + 1) * m;
  zoo::expect_recorded(
      "vits", "loss",
      model.stochastic_durations->loss(hidden, m, {}, durations, zoo::pattern("noise_of_durations", {2, 2, 7})));
  const auto posterior = model.posterior_encoder(zoo::pattern("spectra", {2, 9, 7}), m, {});
  zoo::expect_recorded("vits", "posterior_mean", posterior.mean);
  zoo::expect_recorded("vits", "posterior_deviation", posterior.log_deviation);
  const Tensor latents = zoo::pattern("latents", {2, 8, 7}), prior = model.flow(latents, m, {});
  zoo::expect_recorded("vits", "forward_flow", prior);
  EXPECT_LT((model.flow(prior, m, {}, true) - latents * m).abs().max().item<float>(), 1e-4f);
}

TEST(Vits, Speakers) {
  models::VitsOptions o = small_options();
  o.speakers = 3;
  o.speaker_size = 6;
  o.durations.stochastic = false;
  const models::Vits model(o);
  zoo::give_weights(nn::get_state_dict(model));
  models::VitsSpeechOptions speech = fixed_noise();
  speech.speaker = 2;
  const models::Vits::Speech out = model(ids(), speech);
  zoo::expect_recorded("vits_speakers", "samples", Tensor::from(out.samples));
  zoo::expect_recorded("vits_speakers", "audio", out.audio);
}

TEST(Vits, RandomSpeechIsReproducible) {
  const models::Vits model(small_options());
  zoo::give_weights(nn::get_state_dict(model));
  Tensor::manual_seed(3);
  const models::Vits::Speech once = model(ids());
  Tensor::manual_seed(3);
  const models::Vits::Speech again = model(ids());
  EXPECT_EQ(once.samples, again.samples);
  EXPECT_EQ(once.audio.to_vector<float>(), again.audio.to_vector<float>());
}

TEST(Vits, NamesOfPublishedModels) {
  zoo::expect_names("vits_mms", nn::get_state_dict(models::Vits()));
  const models::Vits vctk({.speakers = 109, .speaker_size = 256, .text = {.vocab_size = 178}});
  zoo::expect_names("vits_vctk", nn::get_state_dict(vctk));
}

TEST(Vits, WeightsOfFiles) {
  const std::string layer = "flow.flows.0.wavenet.in_layers.0";
  const nn::StateDict renamed = models::vits_weights(
      {{layer + ".weight_g", Tensor(1.f)}, {layer + ".weight_v", Tensor(1.f)}, {layer + ".bias", Tensor(1.f)}});
  EXPECT_EQ(renamed[0].first, layer + ".parametrizations.weight.original0");
  EXPECT_EQ(renamed[1].first, layer + ".parametrizations.weight.original1");
  EXPECT_EQ(renamed[2].first, layer + ".bias");
}

std::string error_of(const models::Vits& model, const Tensor& tokens, const models::VitsSpeechOptions& o) {
  return test::error_text<Error>([&] { (void)model(tokens, o); });
}

TEST(Vits, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::Vits({.text = {.heads = 5}}); }),
            "[Vits] got 5 heads for size 192, expected a divisor");
  EXPECT_EQ(test::error_text<ValueError>([] { models::Vits({.flow_size = 7}); }),
            "[Vits] got flow size 7, expected an even number");
  EXPECT_EQ(test::error_text<ValueError>([] { models::Vits({.decoder = {.upsample_rates = {8}}}); }),
            "[Vits] got 1 rates and 4 kernels, expected one kernel for each");
  const models::Vits model(small_options());
  EXPECT_EQ(error_of(model, ids(), {.mask = Tensor::ones(2, 6)}),
            "[Vits] got tokens (2, 7) and mask (2, 6), expected (batch, time) for each");
  EXPECT_EQ(error_of(model, ids(), {.rate = 0}), "[Vits] got rate 0, expected more than 0");
  EXPECT_EQ(error_of(model, ids(), {.speaker = 1}), "[Vits] got speaker 1, expected none");
  EXPECT_EQ(error_of(model, ids(), {.noise_of_durations = Tensor::zeros({2, 2, 6})}),
            "[Vits] got noise (2, 2, 6), expected (2, 2, 7)");
}

}  // namespace
}  // namespace tg
