/// \file Boxes of detectors against torchvision.
#include "models/detection.h"

#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "zoo/pattern.h"

namespace tg {
namespace {

Tensor boxes(const std::string& name, int64_t count) {
  const Tensor corners = (zoo::pattern(name + ".corners", {count, 2}) + 1) * 20;
  return Tensor::cat({corners, corners + (zoo::pattern(name + ".sides", {count, 2}) + 1.4) * 10}, 1);
}

TEST(Detection, Iou) {
  zoo::expect_recorded("detection", "iou", models::box_iou(boxes("a", 60), boxes("b", 30)));
  const Tensor box({{0., 0., 1., 1.}}), beside({{1., 0., 2., 1.}});
  EXPECT_EQ(models::box_iou(box, beside).item<float>(), 0);
  EXPECT_FLOAT_EQ(models::box_iou(box, beside, 1).item<float>(), 2.f / 6);
}

TEST(Detection, Nms) {
  const Tensor a = boxes("a", 60), scores = zoo::pattern("scores", {60});
  zoo::expect_recorded("detection", "nms", Tensor(models::nms(a, scores, {.iou_threshold = 0.3})));
  const std::vector<int64_t> classes = zoo::numbers("classes", 3, {60}).to_vector<int64_t>();
  zoo::expect_recorded("detection", "batched_nms",
                       Tensor(models::nms(a, scores, {.iou_threshold = 0.3, .classes = classes})));
  EXPECT_TRUE(models::nms(Tensor::zeros({0, 4}), Tensor::zeros({0})).empty());
  const Tensor two({{0., 0., 1., 1.}, {1., 0., 2., 1.}}), better({1., 2.});
  EXPECT_EQ(models::nms(two, better, {.iou_threshold = 0.3}), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(models::nms(two, better, {.iou_threshold = 0.3, .last_pixel = 1}), (std::vector<int64_t>{1}));
}

TEST(Detection, Doubled) {
  const Tensor x = Tensor::arange(4).reshape(1, 1, 2, 2);
  EXPECT_EQ(models::doubled(x).to_vector<int>(), (std::vector<int>{0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3}));
}

TEST(Detection, Errors) {
  EXPECT_EQ(test::error_text<ShapeError>([] { models::nms(Tensor::zeros({3, 4}), Tensor::zeros({2})); }),
            "[nms] got boxes (3, 4) and scores (2,), expected (n, 4) and (n)");
  EXPECT_EQ(
      test::error_text<ValueError>([] { models::nms(Tensor::zeros({3, 4}), Tensor::zeros({3}), {.classes = {1}}); }),
      "[nms] got 1 classes of 3 boxes");
}

}  // namespace
}  // namespace tg
