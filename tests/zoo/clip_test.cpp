/// \file CLIP against transformers and OpenCLIP.
#include "models/clip.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "helpers/error_text.h"
#include "models/clip_tokenizer.h"
#include "tinygrad/io/file.h"
#include "tinygrad/nn/state_file.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

constexpr models::ClipTextOptions kText{
    .vocab_size = 60, .width = 32, .layers = 3, .heads = 4, .positions = 9, .projection = 24};
constexpr models::ClipImageOptions kImage{
    .width = 40, .layers = 2, .heads = 4, .image_size = 28, .patch_size = 7, .projection = 24};

Tensor small_tokens() {
  std::vector<int64_t> t = zoo::numbers("tokens", 50, {2, 9}).to_vector<int64_t>();
  t[4] = 59;
  t[17] = 59;
  return Tensor::from(t, {2, 9});
}

std::string merges() {
  const auto path = std::filesystem::path(TG_TESTS_DIR) / "zoo" / "expected" / "clip_merges.txt";
  const std::vector<uint8_t> bytes = io::read_file(path, 1 << 20);
  return {bytes.begin(), bytes.end()};
}

TEST(Clip, Closed) {
  const models::ClosedClipText model(kText);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const models::ClipText out = model(small_tokens());
  zoo::expect_recorded("clip_closed", "hidden", out.hidden);
  zoo::expect_recorded("clip_closed", "penultimate", out.penultimate);
  zoo::expect_recorded("clip_closed", "pooled", out.pooled);
  zoo::expect_gradients("clip_closed", weights, out.hidden);
}

TEST(Clip, Open) {
  const models::OpenClip model(kText, kImage);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor images = zoo::pattern("images", {2, 3, 28, 28}), tokens = small_tokens();
  zoo::expect_recorded("clip_open", "images", model.visual(images));
  const models::ClipText text = model.text(tokens);
  zoo::expect_recorded("clip_open", "texts", text.pooled);
  zoo::expect_recorded("clip_open", "penultimate", text.penultimate);
  zoo::expect_recorded("clip_open", "score", model.score(images, tokens));
  const Tensor logits = model(images, tokens);
  zoo::expect_recorded("clip_open", "logits", logits);
  zoo::expect_gradients("clip_open", weights, logits);
}

TEST(Clip, NamesOfPublishedModels) {
  zoo::expect_names("clip_vit_l", nn::get_state_dict(models::ClosedClipText()));
  const models::OpenClip h({.width = 1024, .layers = 24, .heads = 16, .projection = 1024}, {});
  zoo::expect_names("clip_vit_h", nn::get_state_dict(h));
}

TEST(Clip, Tokens) {
  const models::ClipTokenizer tokenizer(merges());
  const Tensor expected =
      nn::safe_load(std::filesystem::path(TG_TESTS_DIR) / "zoo/expected/clip_tokens.safetensors").at("tokens");
  const std::string many = "cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat ";
  const std::vector<std::string> texts = {"a horse sized cat  eating\n the bagel!!",
                                          "",
                                          "The dog's café 12 34 ça",
                                          "HORSE horse\thorses don't",
                                          many,
                                          "日本語 the ½ x²"};
  for (size_t i = 0; i < texts.size(); i++)
    EXPECT_EQ(tokenizer.encode(texts[i], true, 20), expected[static_cast<int64_t>(i)].to_vector<int32_t>()) << texts[i];
  const std::vector<int32_t> padded = tokenizer.encode("cat");
  EXPECT_EQ(padded.size(), 77u);
  EXPECT_EQ(padded.back(), padded[2]);
}

TEST(Clip, TokenizerErrors) {
  EXPECT_EQ(test::error_text<FormatError>([] { models::ClipTokenizer("th e\nwhat"); }),
            "[ClipTokenizer] got \"what\", expected two parts of a word");
  const models::ClipTokenizer tokenizer(merges());
  EXPECT_EQ(test::error_text<ValueError>([&] { (void)tokenizer.encode("cat", false, 1); }),
            "[ClipTokenizer] got length 1, expected room for begin and end");
}

TEST(Clip, Normalized) {
  const std::vector<float> x =
      models::clip_normalized(Tensor::full({1, 3, 1, 1}, 255, dtypes::uint8)).to_vector<float>();
  EXPECT_NEAR(x[0], (1 - 0.48145466) / 0.26862954, 1e-5);
  EXPECT_NEAR(x[2], (1 - 0.40821073) / 0.27577711, 1e-5);
}

TEST(Clip, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::ClosedClipText({.layers = 0}); }),
            "[ClosedClipText] got 0 layers, expected at least 1");
  EXPECT_EQ(test::error_text<ValueError>([] { models::OpenClipText({.width = 30, .heads = 4}); }),
            "[OpenClipText] got 4 heads for width 30, expected a divisor");
  EXPECT_EQ(test::error_text<ValueError>([] { models::OpenClipImage({.width = 30, .heads = 4}); }),
            "[OpenClipImage] got 4 heads for width 30, expected a divisor");
  EXPECT_EQ(test::error_text<ValueError>([] { models::OpenClipImage({.image_size = 30}); }),
            "[OpenClipImage] got patches of 14 for images of 30, expected a divisor");
  EXPECT_EQ(test::error_text<ValueError>([] { models::OpenClip(kText, {}); }),
            "[OpenClip] got vectors of 24 for texts and of 1024 for images, expected one size");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::ClosedClipText{kText}(Tensor::zeros({1, 10}, dtypes::int32)); }),
            "[ClosedClipText] got tokens (1, 10), expected (batch, time) of at most 9");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::OpenClipImage{kImage}(Tensor::zeros({1, 3, 28, 35})); }),
            "[OpenClipImage] got images (1, 3, 28, 35), expected 16 patches of 7");
}

}  // namespace
}  // namespace tg
