/// \file Whisper against transformers.
#include "models/whisper.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "helpers/error_text.h"
#include "models/whisper_audio.h"
#include "tinygrad/nn/torch_load.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

constexpr models::WhisperOptions kSmall{.mels = 8,
                                        .audio_positions = 20,
                                        .audio_width = 32,
                                        .audio_heads = 4,
                                        .audio_layers = 2,
                                        .vocab_size = 60,
                                        .text_positions = 16,
                                        .text_width = 32,
                                        .text_heads = 4,
                                        .text_layers = 2};

Tensor small_mel() { return zoo::pattern("mel", {2, 8, 40}); }

TEST(Whisper, ForwardAndGradients) {
  const models::Whisper model(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  zoo::expect_recorded("whisper", "audio", model.encoder(small_mel()));
  const Tensor logits = model(small_mel(), zoo::numbers("tokens", 60, {2, 7}));
  zoo::expect_recorded("whisper", "logits", logits);
  zoo::expect_gradients("whisper", weights, logits);
}

TEST(Whisper, Steps) {
  const models::Whisper model(kSmall);
  zoo::give_weights(nn::get_state_dict(model));
  const Tensor tokens = zoo::numbers("tokens", 60, {2, 7});
  const auto cache = model.decoder.cache(model.encoder(small_mel()));
  const Variable prompt("prompt", 0, 12), position("position", 0, 15);
  Tensors logits = {model.decoder.step(tokens(Slice(), Slice(0, 4)), cache, prompt.bind(0)).realize()};
  for (int i = 4; i < 7; i++)
    logits.push_back(model.decoder.step(tokens(Slice(), Slice(i, i + 1)), cache, position.bind(i)).realize());
  zoo::expect_recorded("whisper", "logits", Tensor::cat(logits, 1));
}

TEST(Whisper, Greedy) {
  const models::Whisper model(kSmall);
  zoo::give_weights(nn::get_state_dict(model));
  model.decoder.positional_embedding.assign(model.decoder.positional_embedding * 4);
  const auto texts = model.greedy(small_mel(), {.prompt = {3, 14}, .end = 60, .most = 10});
  std::vector<int32_t> all = texts[0];
  all.insert(all.end(), texts[1].begin(), texts[1].end());
  zoo::expect_recorded("whisper", "greedy", Tensor::from(all, {2, 10}));
  // Where the third token of the first text is the end, that text has two tokens or fewer.
  const auto cut = model.greedy(small_mel(), {.prompt = {3, 14}, .end = texts[0][2], .most = 10});
  EXPECT_LE(cut[0].size(), 2u);
  EXPECT_TRUE(std::equal(cut[0].begin(), cut[0].end(), texts[0].begin()));
}

TEST(Whisper, Transcribe) {
  const models::Whisper model(kSmall);
  zoo::give_weights(nn::get_state_dict(model));
  model.decoder.positional_embedding.assign(model.decoder.positional_embedding * 4);
  const models::WhisperGreedyOptions each{.prompt = {3, 14}, .end = 50, .most = 6};
  const auto text = model.transcribe(zoo::pattern("speech", {16000}), {.each = each, .previous = 57});
  zoo::expect_recorded("whisper", "transcribed", Tensor::from(text));
}

TEST(Whisper, Spectrograms) {
  const Tensor tone = (Tensor::arange(20000, dtypes::float64) * (2 * 3.14159265358979323846 * 440 / 16000)).sin() * 0.5;
  const Tensor audio = zoo::pattern("audio", {2, 20000}) * Tensor({{1.0}, {0.01}}) + tone;
  for (const int mels : {80, 128}) {
    zoo::expect_recorded("whisper_audio", "filters" + std::to_string(mels), models::whisper_mel_filters(mels));
    zoo::expect_recorded("whisper_audio", "mel" + std::to_string(mels),
                         models::whisper_log_mel(audio, {.mels = mels, .samples = 16000}));
  }
  zoo::expect_recorded("whisper_audio", "padded", models::whisper_log_mel(audio, {.samples = 32000}));
  EXPECT_EQ(models::whisper_log_mel(audio, {.samples = 0}).shape(), (Shape{2, 80, 125}));
}

TEST(Whisper, NamesOfPublishedModels) {
  zoo::expect_names("whisper_tiny_en", nn::get_state_dict(models::Whisper()));
  const models::Whisper large({.mels = 128,
                               .audio_width = 1280,
                               .audio_heads = 20,
                               .audio_layers = 32,
                               .vocab_size = 51866,
                               .text_width = 1280,
                               .text_heads = 20,
                               .text_layers = 32});
  zoo::expect_names("whisper_large", nn::get_state_dict(large));
}

TEST(Whisper, Files) {
  const auto path = std::filesystem::path(TG_TESTS_DIR) / "zoo/expected/whisper_file.pt";
  const models::Whisper model(models::whisper_options(path));
  EXPECT_EQ(model.options.text_positions, 5);
  nn::load_state_dict(model, models::whisper_weights(nn::torch_load(path)));
  EXPECT_EQ(model.decoder.blocks[0].mlp_out.weight.mean().item<float>(), 0.5f);
  const nn::StateDict theirs = {{"model.decoder.layers.0.encoder_attn.q_proj.weight", Tensor(1.f)},
                                {"model.decoder.layers.0.encoder_attn_layer_norm.bias", Tensor(1.f)},
                                {"model.decoder.layers.0.self_attn_layer_norm.bias", Tensor(1.f)},
                                {"model.decoder.layer_norm.weight", Tensor(1.f)},
                                {"model.encoder.layer_norm.weight", Tensor(1.f)},
                                {"model.encoder.embed_positions.weight", Tensor(1.f)},
                                {"proj_out.weight", Tensor(1.f)}};
  std::vector<std::string> names;
  for (const auto& [name, t] : models::whisper_weights(theirs)) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"decoder.blocks.0.cross_attn.query.weight", "decoder.blocks.0.cross_attn_ln.bias",
                                      "decoder.blocks.0.attn_ln.bias", "decoder.ln.weight", "encoder.ln_post.weight",
                                      "encoder.positional_embedding"}));
}

TEST(Whisper, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::Whisper({.audio_heads = 5}); }),
            "[Whisper] got 5 heads for width 384, expected a divisor");
  EXPECT_EQ(test::error_text<ValueError>([] { models::Whisper({.text_width = 96}); }),
            "[Whisper] got width 384 of audio and 96 of text, expected one width");
  const models::Whisper model(kSmall);
  EXPECT_EQ(test::error_text<ShapeError>([&] { model.encoder(Tensor::zeros({1, 7, 40})); }),
            "[Whisper] got spectrograms (1, 7, 40), expected (batch, 8, spectra)");
  EXPECT_EQ(test::error_text<ShapeError>([&] { model.encoder(Tensor::zeros({1, 8, 42})); }),
            "[Whisper] got 42 spectra, expected at most 40");
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(small_mel(), Tensor::zeros({2, 17}, dtypes::int32)); }),
            "[Whisper] got tokens (2, 17), expected (batch, time) of at most 16");
  EXPECT_EQ(test::error_text<ValueError>([&] { (void)model.greedy(small_mel(), {}); }),
            "[Whisper] got no prompt, expected a token at least");
  EXPECT_EQ(test::error_text<ValueError>([&] { (void)model.greedy(small_mel(), {.prompt = {1}, .most = 16}); }),
            "[Whisper] got 1 tokens of a prompt and 16 of text, expected at most 16");
  EXPECT_EQ(test::error_text<ShapeError>([&] { (void)model.transcribe(Tensor::zeros({1, 400}), {}); }),
            "[Whisper] got audio (1, 400), expected (samples,)");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::whisper_log_mel(Tensor::zeros({400})); }),
            "[whisper_log_mel] got audio (400,), expected (batch, samples)");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::whisper_log_mel(Tensor::zeros({1, 200}), {.samples = 0}); }),
            "[whisper_log_mel] got 200 samples, expected more than 200");
  EXPECT_EQ(test::error_text<ValueError>([] { models::whisper_mel_filters(0); }),
            "[whisper_mel_filters] got 0 bands, expected at least 1");
}

}  // namespace
}  // namespace tg
