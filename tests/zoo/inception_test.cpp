/// \file Inception v3 against torchvision and pytorch-fid.
#include "models/inception.h"

#include <gtest/gtest.h>

#include <cmath>

#include "helpers/error_text.h"
#include "models/frechet.h"
#include "zoo/pattern.h"
#include "zoo/published.h"

namespace tg {
namespace {

models::Inception3 weighted(const models::Inception3Options& o) {
  models::Inception3 model(o);
  zoo::give_weights(nn::get_state_dict(model));
  return model;
}

TEST(Inception3, ForwardAndGradients) {
  const models::Inception3 model = weighted({.classes = 10});
  const Tensor logits = model(zoo::pattern("images", {2, 3, 107, 96}));
  zoo::expect_recorded("inception3", "logits", logits);
  zoo::expect_gradients("inception3", nn::get_state_dict(model), logits);
  zoo::expect_recorded("inception3", "aux", (*model.aux)(zoo::pattern("middle", {2, 768, 17, 17})));
}

TEST(Inception3, Training) {
  const models::Inception3 model = weighted({.classes = 10, .aux_logits = false, .dropout = 0});
  const nn::Training mode;
  zoo::expect_recorded("inception3", "trained", model(zoo::pattern("images", {4, 3, 139, 139})));
  zoo::expect_recorded("inception3", "Mixed_5d.branch1x1.bn.running_mean",
                       model.trunk.Mixed_5d.branch1x1.bn.running_mean);
}

TEST(Inception3, TransformedInput) {
  const models::Inception3 model = weighted({.classes = 10, .transform_input = true});
  zoo::expect_recorded("inception3", "transformed", model(zoo::pattern("images", {2, 3, 107, 96})));
}

TEST(Inception3, Names) {
  const models::Inception3 model;
  zoo::expect_names("inception3", nn::get_state_dict(model));
  const auto [logits, aux] = model.with_aux(Tensor::zeros({1, 3, 299, 299}));
  EXPECT_EQ(logits.shape(), (Shape{1, 1000}));
  EXPECT_EQ(aux.shape(), (Shape{1, 1000}));
}

TEST(Inception3, Errors) {
  const models::Inception3 model({.aux_logits = false});
  EXPECT_EQ(test::error_text<ValueError>([&] { model.with_aux(Tensor::zeros({1, 3, 299, 299})); }),
            "[Inception3] a network made without aux_logits has no second classifier");
}

TEST(FidInception, Activations) {
  const models::FidInceptionV3 model(107);
  nn::load_state_dict(model, models::fid_inception_weights(zoo::published_weights("fid_inception")));
  const Tensor images = (zoo::pattern("images", {2, 3, 50, 64}) + 1) / 2;
  zoo::expect_recorded("fid_inception", "activations", model(images));
}

TEST(Frechet, Distance) {
  for (const auto& [name, samples] : {std::pair<const char*, int64_t>{"full", 40}, {"low", 7}}) {
    const models::FeatureStatistics a = models::feature_statistics(zoo::pattern("a", {samples, 12}));
    const models::FeatureStatistics b = models::feature_statistics(zoo::pattern("b", {samples, 12}) * 0.5 + 0.2);
    zoo::expect_recorded("frechet", std::string(name) + ".covariance", a.covariance, 1e-6);
    zoo::expect_recorded("frechet", name, Tensor::full({}, models::frechet_distance(a, b), dtypes::float64), 1e-6);
    EXPECT_NEAR(models::frechet_distance(a, a), 0, 1e-6);
  }
}

TEST(Frechet, IndependentFeatures) {
  const std::vector<double> a{1, 4e-4, 0, 9e-6}, b{4, 1e-4, 1e-2, 1e-6};
  double expected = 0.25;
  for (size_t i = 0; i < a.size(); i++) expected += std::pow(std::sqrt(a[i]) - std::sqrt(b[i]), 2);
  const Tensor mean = Tensor::zeros({4}), other({0.5, 0., 0., 0.});
  EXPECT_NEAR(models::frechet_distance({mean, Tensor(a).diag()}, {other, Tensor(b).diag()}), expected, 1e-7);
}

TEST(Frechet, Errors) {
  EXPECT_EQ(test::error_text<ShapeError>([] { models::feature_statistics(Tensor::zeros({3})); }),
            "[feature_statistics] got (3,), expected (samples, features)");
  EXPECT_EQ(test::error_text<ValueError>([] { models::feature_statistics(Tensor::zeros({1, 3})); }),
            "[feature_statistics] got 1 samples, expected 2 at least");
  const models::FeatureStatistics a{Tensor::zeros({3}), Tensor::zeros({3, 3})};
  const models::FeatureStatistics b{Tensor::zeros({2}), Tensor::zeros({2, 2})};
  EXPECT_EQ(test::error_text<ShapeError>([&] { models::frechet_distance(a, b); }),
            "[frechet_distance] got (3,) and (2,), expected equal numbers of features");
  EXPECT_EQ(test::error_text<ShapeError>([&] { models::frechet_distance({a.mean, b.covariance}, b); }),
            "[frechet_distance] got a mean of shape (3,) and a covariance of shape (2, 2)");
}

}  // namespace
}  // namespace tg
