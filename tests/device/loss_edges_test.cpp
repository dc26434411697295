/// \file Losses at masked classes, at saturated probabilities and for ignored labels, against values of PyTorch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/nn_helpers.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using test::expect_close;
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor masked_logits() { return Tensor({{0.0, -kInf, 1.0}}).requires_grad_(); }

TEST(LossEdges, AMaskedClassIsNoPartOfTheLossOfOthers) {
  const Tensor t = masked_logits();
  EXPECT_NEAR(t.cross_entropy(Tensor({0})).item<double>(), 1.3132617, 1e-5);
  EXPECT_NEAR(t.sparse_categorical_crossentropy(Tensor({0})).item<double>(), 1.3132617, 1e-5);
  EXPECT_NEAR(t.sparse_categorical_crossentropy(Tensor({2}), {.reduction = Reduction::kNone}).item<double>(), 0.3132617,
              1e-5);
  EXPECT_TRUE(std::isinf(t.cross_entropy(Tensor({1})).item<double>()));
  constexpr float gradient[] = {-0.7310586f, 0, 0.7310586f};
  for (const Tensor& loss : {t.cross_entropy(Tensor({0})), t.sparse_categorical_crossentropy(Tensor({0}))})
    expect_close(loss.gradient({t})[0], gradient, 1e-6);
}
TEST(LossEdges, AnIgnoredLabelIsNoPartOfTheLoss) {
  const Tensor t = masked_logits(), y({1});
  const CrossEntropyOptions o{.reduction = Reduction::kSum, .ignore_index = 1},
      smooth{.reduction = Reduction::kSum, .label_smoothing = 0.1, .ignore_index = 1};
  EXPECT_EQ(t.cross_entropy(y, o).item<double>(), 0);
  EXPECT_EQ(t.cross_entropy(y, smooth).item<double>(), 0);
  EXPECT_EQ(t.sparse_categorical_crossentropy(y, o).item<double>(), 0);
  EXPECT_EQ(t.sparse_categorical_crossentropy(y, smooth).item<double>(), 0);
  EXPECT_EQ(t.nll_loss(y, o).item<double>(), 0);
  EXPECT_EQ(t.nll_loss(y, Tensor({1.0, 2.0, 3.0}), o).item<double>(), 0);
}
TEST(LossEdges, LossesOfHalvesAreRoundedOnce) {
  const Tensor x = Tensor::full({70'000, 2}, 0.0, dtypes::float16).contiguous().realize(),
               y = Tensor::zeros({70'000}, dtypes::int32);
  const CrossEntropyOptions ignoring{.ignore_index = 7};
  EXPECT_NEAR(x.cross_entropy(y, ignoring).item<double>(), std::log(2), 1e-3) << "the sum is no half";
  EXPECT_NEAR(x.sparse_categorical_crossentropy(y, ignoring).item<double>(), std::log(2), 1e-3);
  EXPECT_NEAR(x.log_softmax().nll_loss(y, ignoring).item<double>(), std::log(2), 1e-3);
  const Tensor far = Tensor({400.0, 0.0, 0.0, 0.0}, dtypes::float16);
  EXPECT_EQ(far.mse_loss(Tensor::zeros({4}, dtypes::float16)).item<double>(), 40'000) << "squares are no halves";
}
TEST(LossEdges, ProbabilitiesOfZeroAndOne) {
  const Tensor p = Tensor({0.0, 1.0, 0.0, 1.0, 1e-20, 0.3}).requires_grad_();
  const Tensor y = Tensor({0.0, 1.0, 1.0, 0.0, 0.0, 0.6}).requires_grad_();
  constexpr float losses[] = {0, 0, 100, 100, 1e-20f, 0.86505f}, slopes[] = {0, 0, -1e12f, 1e12f, 1e-8f, -1.4285713f},
                  of_labels[] = {100, -100, 100, -100, 46.051702f, 0.8472979f};
  expect_close(p.binary_crossentropy(y, Reduction::kNone), losses, 1e-5);
  const Tensors g = p.binary_crossentropy(y, Reduction::kSum).gradient({p, y});
  expect_close(g[0], slopes, 1e-5);
  expect_close(g[1], of_labels, 1e-5);
  EXPECT_EQ(Tensor({20.0}).sigmoid().binary_crossentropy(Tensor({1.0})).item<double>(), 0);
  EXPECT_EQ(Tensor({-200.0}).sigmoid().binary_crossentropy(Tensor({0.0})).item<double>(), 0);
  EXPECT_EQ(Tensor({0.0, 1.0}).binary_crossentropy(Tensor({1.0, 0.0})).item<double>(), 100);
  EXPECT_NEAR(Tensor({{0.25, 0.5}}).binary_crossentropy(1).item<double>(), std::log(8) / 2, 1e-6);
  // The gradient is one of second order, too: (p - y) / (p (1 - p)) has the slope 1 / p^2 at y = 1.
  const Tensor x = Tensor({0.25}).requires_grad_();
  EXPECT_NEAR(x.binary_crossentropy(Tensor({1.0})).gradient({x})[0].sum().gradient({x})[0].item<double>(), 16, 1e-4);
}

}  // namespace
}  // namespace tg
