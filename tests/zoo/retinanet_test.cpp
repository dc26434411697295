/// \file RetinaNet against torchvision.
#include "models/retinanet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "helpers/error_text.h"
#include "zoo/detections.h"
#include "zoo/pattern.h"
#include "zoo/published.h"

namespace tg {
namespace {

constexpr int64_t kHeight = 76, kWidth = 64;

models::RetinaNet weighted() {
  models::RetinaNet model({.classes = 5});
  zoo::give_weights(nn::get_state_dict(model));
  return model;
}

std::vector<models::ObjectTargets> some_targets() {
  std::vector<models::ObjectTargets> out;
  for (const int64_t count : {3, 2}) {
    const std::string i = std::to_string(out.size());
    const Tensor corner = (zoo::pattern("corners." + i, {count, 2}) + 1) * 15;
    const Tensor other = corner + (zoo::pattern("sides." + i, {count, 2}) + 2) * 14;
    out.push_back({corner.cat(other, 1), zoo::numbers("labels." + i, 5, {count})});
  }
  return out;
}

TEST(RetinaNet, Forward) {
  const models::RetinaNet model = weighted();
  const Tensor predictions = model(zoo::pattern("images", {2, 3, kHeight, kWidth})).realize();
  zoo::expect_recorded("retinanet", "offsets", predictions(Ellipsis, Slice(4)));
  zoo::expect_recorded("retinanet", "probabilities", predictions(Ellipsis, Slice(4, None)));
  zoo::expect_recorded("retinanet", "anchors", Tensor::cat(model.anchors(kHeight, kWidth)));
}

TEST(RetinaNet, LossesAndGradients) {
  const models::RetinaNet model = weighted();
  const std::vector<models::ObjectTargets> targets = some_targets();
  for (size_t i = 0; i < targets.size(); i++)
    zoo::expect_recorded("retinanet", "matches." + std::to_string(i),
                         models::match_anchors(targets[i].boxes, Tensor::cat(model.anchors(kHeight, kWidth))));
  const auto [classification, regression] = model.losses(zoo::pattern("images", {2, 3, kHeight, kWidth}), targets);
  zoo::expect_recorded("retinanet", "classification", classification);
  zoo::expect_recorded("retinanet", "regression", regression);
  zoo::expect_gradients("retinanet", nn::get_state_dict(model), (classification + regression).reshape(1));
}

TEST(RetinaNet, LossesWithoutObjects) {
  const models::RetinaNet model = weighted();
  const models::ObjectTargets none{Tensor::zeros({0, 4}), Tensor::zeros({0}, dtypes::int32)};
  const auto [classification, regression] = model.losses(zoo::pattern("images", {1, 3, 64, 64}), {none});
  EXPECT_GT(classification.item<float>(), 0);
  EXPECT_EQ(regression.item<float>(), 0);
}

TEST(RetinaNet, Detections) {
  const models::RetinaNet model({.classes = 5});
  const int64_t places = Tensor::cat(model.anchors(kHeight, kWidth)).shape(0);
  const Tensor offsets = zoo::pattern("offsets", {2, places, 4}) * Tensor({0.5, 0.5, 1., 1.});
  const Tensor predictions = offsets.cat((zoo::pattern("logits", {2, places, 5}) * 8 - 4).sigmoid(), 2).realize();
  const auto found = model.detections(predictions, kHeight, kWidth);
  const auto few =
      model.detections(predictions, kHeight, kWidth, {.score_threshold = 0.3, .candidates = 20, .max_detections = 10});
  for (size_t i = 0; i < 2; i++) {
    zoo::expect_recorded("retinanet_found", std::to_string(i), zoo::table(found[i]), zoo::kOfPixels);
    zoo::expect_recorded("retinanet_few", std::to_string(i), zoo::table(few[i]), zoo::kOfPixels);
  }
}

TEST(RetinaNet, PublishedNames) {
  const auto names = [](const nn::StateDict& weights) {
    std::set<std::pair<std::string, std::string>> out;
    for (const auto& [name, t] : weights) out.emplace(name, str(t.shape()));
    return out;
  };
  nn::StateDict file = zoo::published("retinanet_torchvision");
  const models::RetinaNet model({.classes = 91});
  EXPECT_EQ(names(nn::get_state_dict(model)), names(models::retinanet_weights(file)));
  std::erase_if(file, [](const auto& entry) { return entry.first.ends_with("num_batches_tracked"); });
  EXPECT_EQ(names(nn::get_state_dict(model)), names(models::retinanet_weights(file)));

  const models::RetinaNet resnext({.backbone = {.layers = 50, .groups = 32, .width_per_group = 4}});
  zoo::expect_names("retinanet_resnext50_32x4d", nn::get_state_dict(resnext));
  const nn::StateDict own = nn::get_state_dict(resnext);
  EXPECT_EQ(names(models::retinanet_weights(own)), names(own));
}

TEST(RetinaNet, Errors) {
  const models::RetinaNet model({.backbone = {.layers = 18}, .classes = 2});
  EXPECT_EQ(test::error_text<ValueError>([&] { model.losses(Tensor::zeros({2, 3, 64, 64}), {}); }),
            "[RetinaNet] got targets of 0 images, expected 2");
  EXPECT_EQ(test::error_text<ShapeError>([&] { model.detections(Tensor::zeros({1, 7, 6}), 64, 64); }),
            "[RetinaNet] got predictions (1, 7, 6), expected (batch, 774, 4 + classes)");
  EXPECT_EQ(test::error_text<ValueError>(
                [] { models::match_anchors(Tensor::zeros({1, 4}), Tensor::zeros({1, 4}), {.high = 0.2}); }),
            "[match_anchors] got low 0.4 above high 0.2");
}

TEST(Anchors, BoxCoder) {
  const Tensor anchors({{0., 0., 9., 19.}, {5., 3., 8., 4.}}), boxes({{2., 1., 12., 40.}, {4., 3., 8., 5.}});
  for (const double last_pixel : {0., 1.}) {
    const models::BoxCoder coder{.weights = {10, 10, 5, 5}, .last_pixel = last_pixel};
    const Tensor back = coder.decode(coder.encode(boxes, anchors), anchors);
    EXPECT_LT((back - boxes).abs().max().item<float>(), 1e-4);
  }
  const models::BoxCoder coder{.weights = {10, 10, 5, 5}, .last_pixel = 1};
  EXPECT_FLOAT_EQ(coder.encode(boxes, anchors)(0, 0).item<float>(), 25.f / 10);  // centres 7.5 and 5, width 10
  EXPECT_FLOAT_EQ(coder.encode(boxes, anchors)(0, 2).item<float>(), 5 * std::log(1.1f));
  const Tensor far = coder.decode(Tensor({{0., 0., 1000., 0.}}), Tensor({{0., 0., 9., 9.}}));
  EXPECT_FLOAT_EQ((far(0, 2) - far(0, 0) + 1).item<float>(), 625);
}

TEST(Anchors, Matches) {
  const Tensor anchors({{0., 0., 10., 10.}, {0., 0., 10., 4.5}, {50., 50., 60., 60.}, {30., 0., 40., 10.}});
  const Tensor boxes({{0., 0., 10., 10.}, {38., 0., 48., 10.}});
  EXPECT_EQ(models::match_anchors(boxes, anchors).to_vector<int>(), (std::vector<int>{0, -2, -1, 1}));
  EXPECT_EQ(models::match_anchors(boxes, anchors, {.keep_best = false}).to_vector<int>(),
            (std::vector<int>{0, -2, -1, -1}));
  EXPECT_EQ(models::match_anchors(Tensor::zeros({0, 4}), anchors).to_vector<int>(), (std::vector<int>{-1, -1, -1, -1}));
}

}  // namespace
}  // namespace tg
