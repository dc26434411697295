/// \file YOLOv8 against Ultralytics.
#include "models/yolov8.h"

#include <gtest/gtest.h>

#include <set>

#include "helpers/error_text.h"
#include "zoo/pattern.h"
#include "zoo/published.h"

namespace tg {
namespace {

/// Gives all weights but the numbers of the head, which are no weights.
models::YOLOv8 weighted(std::string_view variant) {
  const bool deep = variant == "deep";
  models::YOLOv8 model(deep ? models::YOLOv8Options{1.0, 0.25, 1.0, 7} : models::yolov8_options(variant, 7));
  nn::StateDict weights = nn::get_state_dict(model);
  std::erase_if(weights, [](const auto& entry) { return entry.first == "head.dfl.conv.weight"; });
  zoo::give_weights(weights);
  return model;
}

class Yolos : public testing::TestWithParam<std::string> {};

TEST_P(Yolos, Forward) {
  const models::YOLOv8 model = weighted(GetParam());
  const Tensor predictions = model((zoo::pattern("images", {2, 3, 64, 96}) + 1) / 2).realize();
  zoo::expect_recorded("yolov8" + GetParam(), "boxes", predictions(Slice(), Slice(4)));
  zoo::expect_recorded("yolov8" + GetParam(), "classes", predictions(Slice(), Slice(4, None)));
}

INSTANTIATE_TEST_SUITE_P(Zoo, Yolos, testing::Values("n", "s", "m", "deep"),
                         [](const auto& info) { return info.param; });

TEST(YOLOv8, PublishedNames) {
  for (const std::string variant : {"n", "s", "m", "l", "x"}) {
    const models::YOLOv8 model(models::yolov8_options(variant));
    std::set<std::pair<std::string, std::string>> expected, got;
    for (const auto& [name, t] : models::yolov8_weights(zoo::published("yolov8" + variant)))
      expected.emplace(name, str(t.shape()));
    for (const auto& [name, t] : nn::get_state_dict(model)) got.emplace(name, str(t.shape()));
    EXPECT_EQ(got, expected) << variant;
  }
}

TEST(YOLOv8, Gradients) {
  const models::YOLOv8 model = weighted("n");
  const Tensor predictions = model((zoo::pattern("images", {2, 3, 64, 96}) + 1) / 2);
  zoo::expect_gradients("yolov8n", nn::get_state_dict(model), predictions);
}

TEST(YOLOv8, Training) {
  const models::YOLOv8 model = weighted("n");
  const nn::Training mode;
  model(zoo::pattern("images", {4, 3, 64, 64})).realize();
  zoo::expect_recorded("yolov8n", "net.b1.0.bn.running_var", model.net.b1[0].bn.running_var);
  zoo::expect_recorded("yolov8n", "head.cv3.2.1.bn.running_mean", std::get<1>(model.head.cv3[2]).bn.running_mean);
}

TEST(YOLOv8, OtherNamesStay) {
  const Tensor t = Tensor::zeros({1});
  const nn::StateDict file{
      {"net.b1.0.conv.weight", t}, {"model.10.x", t}, {"model.x", t}, {"model.22.cv2.0.2.bias", t}};
  const nn::StateDict ours = models::yolov8_weights(file);
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(ours[i].first, file[i].first);
  EXPECT_EQ(ours[3].first, "head.cv2.0.2.bias");
}

TEST(YOLOv8, Detections) {
  const Tensor predictions =
      Tensor::cat({(zoo::pattern("centers", {2, 2, 80}) + 1) * 30, (zoo::pattern("sides", {2, 2, 80}) + 1.4) * 20,
                   (zoo::pattern("classes", {2, 3, 80}) + 1) / 2},
                  1);
  zoo::expect_recorded("yolov8_detections", "found",
                       models::yolov8_detections(predictions, {.max_detections = 40, .confidence = 0.6}), 2e-5);
  EXPECT_EQ(models::yolov8_detections(predictions).shape(), (Shape{2, 80, 6}));
}

TEST(YOLOv8, Letterbox) {
  const Tensor image = zoo::numbers("image", 256, {50, 75, 3}).cast(dtypes::uint8);
  const models::Letterbox box = models::letterbox(image, 96);
  EXPECT_EQ(box.image.shape(), (Shape{3, 64, 96}));
  EXPECT_EQ(box.top, 0);
  EXPECT_EQ(box.left, 0);
  zoo::expect_recorded("yolov8_detections", "letterbox", box.image);

  const models::Letterbox padded = models::letterbox(Tensor::zeros({40, 20, 3}, dtypes::uint8), 64);
  EXPECT_EQ(padded.image.shape(), (Shape{3, 64, 32}));
  const models::Letterbox narrow = models::letterbox(Tensor::zeros({64, 21, 3}, dtypes::uint8), 64);
  EXPECT_EQ(narrow.image.shape(), (Shape{3, 64, 32}));
  EXPECT_EQ(narrow.left, 5);
  EXPECT_FLOAT_EQ(narrow.image(0, 0, 4).item<float>(), 114.f / 255);
  EXPECT_FLOAT_EQ(narrow.image(0, 0, 5).item<float>(), 0);
  EXPECT_FLOAT_EQ(narrow.image(0, 0, 26).item<float>(), 114.f / 255);

  const models::Letterbox half{.factor = 0.5, .left = 3, .top = 2, .image = {}};
  const Tensor back = models::unletterboxed(Tensor({{13., 12., 40., 1., 0.5, 7.}}), half, 100, 60);
  EXPECT_EQ(back.to_vector<float>(), (std::vector<float>{20, 20, 60, 0, 0.5, 7}));
}

TEST(YOLOv8, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::yolov8_options("b"); }),
            "[yolov8_options] got \"b\", expected n, s, m, l or x");
  const models::YOLOv8 model;
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(Tensor::zeros({1, 3, 64, 100})); }),
            "[YOLOv8] got (1, 3, 64, 100), expected (batch, 3, height, width), sizes being multiples of 32");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::yolov8_detections(Tensor::zeros({4, 10})); }),
            "[yolov8_detections] got (4, 10), expected (batch, 4 + classes, places)");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::letterbox(Tensor::zeros({3, 10, 10})); }),
            "[letterbox] got (3, 10, 10), expected (height, width, 3)");
  EXPECT_EQ(test::error_text<ValueError>([] { models::letterbox(Tensor::zeros({10, 10, 3}), 100); }),
            "[letterbox] got 100 pixels, expected a multiple of 32");
}

}  // namespace
}  // namespace tg
