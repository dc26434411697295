/// \file ViT against timm, the Transformer against PyTorch's layers.
#include "models/vit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "helpers/error_text.h"
#include "tinygrad/nn/npy_file.h"
#include "zoo/pattern.h"
#include "zoo/published.h"

namespace tg {
namespace {

constexpr models::ViTOptions kSmall{
    .layers = 2, .embed_dim = 24, .num_heads = 3, .classes = 10, .image_size = 40, .patch_size = 8};

void expect_forward_and_gradients(const char* file, const models::ViT& model) {
  const int64_t size = model.options.image_size;
  const Tensor logits = model(zoo::pattern("images", {2, 3, size, size}));
  zoo::expect_recorded(file, "logits", logits, 5e-5);  // exact GELU differs by more
  zoo::expect_gradients(file, nn::get_state_dict(model), logits);
}

TEST(ViT, Tiny) {
  const models::ViT model;
  nn::load_state_dict(model, models::vit_weights(zoo::published_weights("vit_tiny")));
  expect_forward_and_gradients("vit_tiny", model);
}

TEST(ViT, ReadsPublishedFiles) {
  const std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "vit_small.npz";
  nn::npz_save(zoo::published_weights("vit_small"), file);
  const models::ViT model(kSmall);
  nn::load_state_dict(model, models::vit_weights(nn::npz_load(file)));
  std::filesystem::remove(file);
  expect_forward_and_gradients("vit_small", model);
}

TEST(ViT, PublishedNames) {
  const models::ViT model({.embed_dim = 768, .num_heads = 12});
  std::set<std::pair<std::string, std::string>> expected, got;
  for (const auto& [name, t] : models::vit_weights(zoo::published("vit_base"))) expected.emplace(name, str(t.shape()));
  for (const auto& [name, t] : nn::get_state_dict(model)) got.emplace(name, str(t.shape()));
  EXPECT_EQ(got, expected);
  const nn::StateDict other{{"pre_logits/kernel", Tensor::zeros({1})},
                            {"Transformer/encoderblock_0/other", Tensor::zeros({1})}};
  EXPECT_EQ(models::vit_weights(other)[0].first, "pre_logits/kernel");
  EXPECT_EQ(models::vit_weights(other)[1].first, "Transformer/encoderblock_0/other");
}

TEST(ViT, PublishedEps) { EXPECT_EQ(models::ViT(kSmall).tbs[0].options.eps, 1e-6); }

TEST(ViT, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::ViT({.patch_size = 15}); }),
            "[ViT] got patches of size 15 for images of size 224, expected a divisor of it");
  EXPECT_EQ(test::error_text<ValueError>([] { models::ViT({.num_heads = 5}); }),
            "[TransformerBlock] got 5 heads for 192 elements, expected a divisor of them");
  EXPECT_EQ(test::error_text<ShapeError>([] {
              const models::ViT model(kSmall);
              model(Tensor::zeros({1, 3, 40, 48}));
            }),
            "[ViT] got (1, 3, 40, 48), expected (batch, 3, 40, 40)");
}

TEST(Transformer, ForwardAndGradients) {
  const models::Transformer model(
      {.symbols = 11, .max_length = 6, .layers = 2, .embed_dim = 24, .num_heads = 4, .ff_dim = 32});
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor output = model(zoo::numbers("symbols", 11, {3, 5}));
  zoo::expect_recorded("transformer", "output", output);
  zoo::expect_gradients("transformer", weights, output);
  EXPECT_FALSE(model.embed.is_param());
}

TEST(Transformer, DropoutInTraining) {
  Tensor::manual_seed(3);
  const models::TransformerBlock block({.embed_dim = 8, .num_heads = 2, .ff_dim = 16, .dropout = 0.5});
  const Tensor x = zoo::pattern("x", {2, 3, 8});
  const Tensor y = block(x).realize();
  EXPECT_TRUE((block(x) - y).abs().max().item<float>() == 0);
  const nn::Training mode;
  EXPECT_GT((block(x) - y).abs().max().item<float>(), 0.01f);
}

TEST(Transformer, Errors) {
  const models::Transformer model({.symbols = 5, .max_length = 4, .embed_dim = 8, .ff_dim = 8});
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(Tensor::zeros({2, 5}, dtypes::int32)); }),
            "[Transformer] got (2, 5), expected (batch, time) with at most 4 places");
}

}  // namespace
}  // namespace tg
