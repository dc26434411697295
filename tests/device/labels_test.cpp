/// \file Labels of losses: ignored ones count for nothing, wrong ones make the loss NaN.
#include <gtest/gtest.h>

#include <cmath>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

// logsumexp(1, 2, 3) - 3, and the same for the label 0.
constexpr double kLast = 0.40760596444438, kFirst = 2.40760596444438;

Tensor logits() { return Tensor({{1.f, 2.f, 3.f}, {1.f, 2.f, 3.f}}); }

/// The three losses of class labels as functions of the labels.
const std::vector<std::function<Tensor(const Tensor&, const CrossEntropyOptions&)>> kLosses{
    [](const Tensor& y, const CrossEntropyOptions& o) { return logits().sparse_categorical_crossentropy(y, o); },
    [](const Tensor& y, const CrossEntropyOptions& o) { return logits().cross_entropy(y, o); },
    [](const Tensor& y, const CrossEntropyOptions& o) { return logits().log_softmax().nll_loss(y, o); },
};

TEST(Labels, IgnoredOnesCountForNothing) {
  for (const auto& loss : kLosses) {
    EXPECT_NEAR(loss(Tensor({-100, 2}), {}).item<float>(), kLast, 1e-6);
    EXPECT_NEAR(loss(Tensor({0, 2}), {.ignore_index = 0}).item<float>(), kLast, 1e-6);
    EXPECT_NEAR(loss(Tensor({-100, -1}), {.reduction = Reduction::kSum, .ignore_index = -1}).item<float>(), 0, 0);
    EXPECT_NEAR(loss(Tensor({0, 2}), {}).item<float>(), (kFirst + kLast) / 2, 1e-6);
  }
  // 255 is what -1 would be as a uint8.
  EXPECT_TRUE(std::isnan(kLosses[0](Tensor({255, 2}, {.dtype = dtypes::uint8}), {.ignore_index = -1}).item<float>()));
}

TEST(Labels, WrongOnesMakeTheLossNan) {
  for (const auto& loss : kLosses)
    for (const DType d : {dtypes::int8, dtypes::int32, dtypes::int64})
      for (const int wrong : {7, 3, -1, -99}) {
        EXPECT_TRUE(std::isnan(loss(Tensor({wrong, 2}).cast(d), {}).item<float>())) << wrong;
        const std::vector<float> each =
            loss(Tensor({wrong, 2}).cast(d), {.reduction = Reduction::kNone}).to_vector<float>();
        EXPECT_TRUE(std::isnan(each[0]));
        EXPECT_NEAR(each[1], kLast, 1e-6);
      }
  const Tensor weight = Tensor({1.f, 2.f, 4.f});
  EXPECT_TRUE(std::isnan(logits().log_softmax().nll_loss(Tensor({3, 0}), weight).item<float>()));
  EXPECT_NEAR(logits().log_softmax().nll_loss(Tensor({-100, 1}), weight).item<float>(), 1 + kLast, 1e-6);
}

TEST(Labels, CheckIndexNamesThem) {
  const Context checked{{"CHECK_INDEX", 1}};
  for (const auto& loss : kLosses) {
    EXPECT_NEAR(loss(Tensor({-100, 2}), {}).item<float>(), kLast, 1e-6);
    try {
      loss(Tensor({1, 7}), {.ignore_index = -1});
      ADD_FAILURE() << "no error";
    } catch (const IndexError& e) {
      EXPECT_NE(std::string(e.what()).find("got label 7 at (1,) for 3 classes, which is out of bounds, expected 0 to 2 "
                                           "or ignore_index"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST(Labels, GradientsOfWrongAndIgnoredOnesAreZero) {
  for (const int other : {-100, 7}) {
    const Tensor x = logits().realize();
    const Tensor loss = x.sparse_categorical_crossentropy(Tensor({other, 2}), {.reduction = Reduction::kSum});
    const std::vector<float> g = loss.gradient({x})[0].to_vector<float>();
    for (size_t i = 0; i < 3; i++) EXPECT_EQ(g[i], 0) << other;
    EXPECT_NEAR(g[5], std::exp(-kLast) - 1, 1e-6);
  }
}

}  // namespace
}  // namespace tg
