/// \file Mask R-CNN against parts of torchvision.
#include "models/mask_rcnn.h"

#include <gtest/gtest.h>

#include <set>

#include "helpers/error_text.h"
#include "models/roi_align.h"
#include "zoo/detections.h"
#include "zoo/pattern.h"
#include "zoo/published.h"

namespace tg {
namespace {

TEST(RoiAlign, RegionsAndGradients) {
  nn::StateDict levels;
  for (int64_t i = 0; i < 3; i++) {
    const std::string name = "level." + std::to_string(i);
    levels.emplace_back(name, zoo::pattern(name, {2, 6, 96 >> i, 128 >> i}));
  }
  const Tensor corner = (zoo::pattern("corners", {24, 2}) + 1) * 180 - 20;
  const Tensor boxes = corner.cat(corner + (zoo::pattern("sides", {24, 2}) + 1.02) * 160, 1);
  const Tensor images = (Tensor::arange(24) >= 10).cast(dtypes::int32);
  const Tensor regions =
      models::roi_align({levels[0].second, levels[1].second, levels[2].second}, boxes, images, {.size = 5});
  zoo::expect_recorded("roi_align", "regions", regions);
  zoo::expect_gradients("roi_align", levels, regions);
}

TEST(RoiAlign, Errors) {
  EXPECT_EQ(test::error_text<ShapeError>([] {
              models::roi_align({Tensor::zeros({1, 2, 8, 8})}, Tensor::zeros({3, 4}),
                                Tensor::zeros({2}, dtypes::int32));
            }),
            "[roi_align] got boxes (3, 4) and images (2,), expected (n, 4) and (n)");
}

constexpr std::array<std::array<int64_t, 2>, 2> kSizes{{{60, 90}, {64, 80}}};

models::MaskRCNNOptions small() {
  return {.classes = 7, .candidates = 60, .proposals = 20, .max_objects = 8, .hidden = {64, 32}};
}

models::ImageList some_images() {
  Tensors images;
  for (const auto& [h, w] : kSizes) images.push_back(zoo::pattern("image." + std::to_string(images.size()), {3, h, w}));
  return models::image_list(images);
}

models::MaskRCNN weighted() {
  models::MaskRCNN model(small());
  zoo::give_weights(nn::get_state_dict(model));
  return model;
}

TEST(MaskRCNN, LevelsAndProposals) {
  const models::MaskRCNN model = weighted();
  const models::ImageList list = some_images();
  const Tensors levels = model.backbone(list.images);
  std::vector<std::array<int64_t, 2>> grids;
  for (size_t i = 0; i < levels.size(); i++) {
    zoo::expect_recorded("mask_rcnn", "level." + std::to_string(i), levels[i]);
    grids.push_back({levels[i].shape(2), levels[i].shape(3)});
  }
  const Tensors anchors = model.anchors(grids);
  for (size_t i = 0; i < anchors.size(); i++)
    zoo::expect_recorded("mask_rcnn", "anchors." + std::to_string(i), anchors[i]);
  const auto proposals = model.proposals(levels, list.sizes);
  for (size_t i = 0; i < proposals.size(); i++) {
    const Tensor rows = zoo::table(proposals[i]);
    zoo::expect_recorded("mask_rcnn", "boxes." + std::to_string(i), rows(Slice(), Slice(4)));
    zoo::expect_recorded("mask_rcnn", "scores." + std::to_string(i), rows(Slice(), 4));
  }
}

TEST(MaskRCNN, ObjectsAndMasks) {
  const std::vector<models::MaskedObjects> found = weighted()(some_images());
  ASSERT_EQ(found.size(), 2u);
  for (size_t i = 0; i < found.size(); i++) {
    zoo::expect_recorded("mask_rcnn", "objects." + std::to_string(i), zoo::table(found[i].objects), zoo::kOfPixels);
    zoo::expect_recorded("mask_rcnn", "masks." + std::to_string(i), found[i].masks);
  }
}

TEST(MaskRCNN, NoObjects) {
  models::MaskRCNNOptions o = small();
  o.score_threshold = 1;
  const models::MaskRCNN model(o);
  const std::vector<models::MaskedObjects> found = model(some_images());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].objects.empty());
  EXPECT_EQ(found[1].masks.shape(), (Shape{0, 28, 28}));
}

TEST(MaskRCNN, ImageList) {
  const models::ImageList list = some_images();
  EXPECT_EQ(list.images.shape(), (Shape{2, 3, 64, 96}));
  EXPECT_EQ(list.sizes[0], (std::array<int64_t, 2>{60, 90}));
  EXPECT_EQ(list.images(0, 0, 60, 0).item<float>(), 0);
  EXPECT_EQ(list.images(1, 2, 63, 80).item<float>(), 0);
}

TEST(MaskRCNN, PublishedNames) {
  const models::MaskRCNN model;
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::expect_names("mask_rcnn", weights);
  std::set<std::pair<std::string, std::string>> expected, got;
  for (const auto& [name, t] : models::mask_rcnn_weights(zoo::published("mask_rcnn_published")))
    got.emplace(name, str(t.shape()));
  for (const auto& [name, t] : weights) expected.emplace(name, str(t.shape()));
  EXPECT_EQ(got, expected);
}

TEST(MaskRCNN, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::MaskRCNN({.sizes = {32, 64}}); }),
            "[MaskRCNN] got 2 sizes of anchors, expected 5");
  EXPECT_EQ(test::error_text<ValueError>([] { models::image_list({}); }), "[image_list] got no images");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::image_list({Tensor::zeros({8, 8})}); }),
            "[image_list] got (8, 8), expected (3, height, width)");
  const models::MaskRCNN model(small());
  EXPECT_EQ(test::error_text<ShapeError>([&] { model({Tensor::zeros({1, 3, 60, 64}), {{60, 64}}}); }),
            "[MaskRCNN] got (1, 3, 60, 64), expected (batch, 3, height, width), sizes being multiples of 32");
  EXPECT_EQ(test::error_text<ValueError>([&] { model({Tensor::zeros({2, 3, 64, 64}), {{64, 64}}}); }),
            "[MaskRCNN] got sizes of 1 images, expected 2");
}

}  // namespace
}  // namespace tg
