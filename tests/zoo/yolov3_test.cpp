/// \file YOLOv3 against a network of PyTorch's layers, and the readers of Darknet's files.
#include "models/yolov3.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "helpers/error_text.h"
#include "zoo/pattern.h"
#include "zoo/published.h"

namespace tg {
namespace {

std::string text_of(const char* file) {
  const std::ifstream in(std::filesystem::path(TG_TESTS_DIR) / "zoo" / "expected" / file);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void expect_boxes(const char* file, const Tensor& boxes) {
  zoo::expect_recorded(file, "boxes", boxes(Ellipsis, Slice(4)));
  zoo::expect_recorded(file, "probabilities", boxes(Ellipsis, Slice(4, None)));
}

/// Writes a file of weights with the header of a version and returns its path.
std::filesystem::path weights_file(const nn::StateDict& weights, std::vector<int32_t> header) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "yolov3_test.weights";
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), static_cast<std::streamsize>(4 * header.size()));
  for (const auto& [name, t] : weights) {
    const std::span<const std::byte> bytes = t.bytes();
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  return path;
}

constexpr models::YOLOv3Options kSmall{.classes = 3, .width = 1.0 / 8};

TEST(YOLOv3, ForwardGradientsAndTraining) {
  const models::Darknet model = models::yolov3(kSmall);
  const nn::StateDict weights = nn::get_state_dict(model);
  zoo::give_weights(weights);
  const Tensor boxes = model((zoo::pattern("images", {2, 3, 64, 96}) + 1) / 2);
  expect_boxes("yolov3", boxes);
  zoo::expect_gradients("yolov3", weights, boxes);
  const nn::Training mode;
  model((zoo::pattern("images", {4, 3, 64, 64}) + 1) / 2).realize();
  zoo::expect_recorded("yolov3", "module_list.80.1.running_var", model.module_list[80].bn->running_var);
}

TEST(YOLOv3, PublishedNames) {
  const models::Darknet model = models::yolov3();
  zoo::expect_names("yolov3", nn::get_state_dict(model));
  int64_t numbers = 0;
  for (const auto& [name, t] : nn::get_state_dict(model))
    if (!name.ends_with("num_batches_tracked")) numbers += t.numel();
  EXPECT_EQ(numbers, 62001757);  // yolov3.weights has 248007048 bytes: these and the header's 20
  EXPECT_EQ(model(Tensor::zeros({1, 3, 416, 416})).shape(), (Shape{1, 10647, 85}));
}

TEST(YOLOv3, WeightsOfAFile) {
  const models::Darknet model = models::yolov3(kSmall);
  const nn::StateDict weights = zoo::published_weights("yolov3_small");
  for (const std::vector<int32_t>& header : {std::vector<int32_t>{0, 2, 0, 7, 0}, {0, 1, 0, 7}}) {
    const std::filesystem::path file = weights_file(weights, header);
    nn::load_state_dict(model, models::darknet_weights(model, file));
    std::filesystem::remove(file);
    for (const auto& [name, t] : nn::get_state_dict(model))
      if (!name.ends_with("num_batches_tracked")) ASSERT_TRUE((t == weights.at(name)).all().item<bool>()) << name;
  }
  const std::filesystem::path file = weights_file({}, {0, 2, 0, 7, 0});
  EXPECT_NE(
      test::error_text<FormatError>([&] { models::darknet_weights(model, file); }).find("got 20 bytes, expected "),
      std::string::npos);
  std::filesystem::remove(file);
  EXPECT_NE(test::error_text<FileError>([&] { models::darknet_weights(model, file); }), "no error");
}

TEST(YOLOv3, Detections) {
  const Tensor boxes =
      Tensor::cat({(zoo::pattern("centers", {90, 2}) + 1) * 30, (zoo::pattern("sides", {90, 2}) + 1.4) * 20,
                   (zoo::pattern("probabilities", {90, 4}) + 1) / 2},
                  1);
  std::vector<double> found;
  for (const models::Detection& d : models::yolov3_detections(boxes, {.confidence = 0.4})) {
    found.insert(found.end(), d.box.begin(), d.box.end());
    found.insert(found.end(), {d.score, static_cast<double>(d.label)});
  }
  zoo::expect_recorded("yolov3_detections", "found", Tensor(found).reshape(-1, 6), 2e-5);
  EXPECT_TRUE(models::yolov3_detections(boxes, {.confidence = 1}).empty());
}

TEST(YOLOv3, Errors) {
  EXPECT_EQ(test::error_text<ValueError>([] { models::yolov3_layers({.width = 0.3}); }),
            "[yolov3_layers] got width 0.3, expected a multiple of 1/32");
  EXPECT_EQ(test::error_text<ValueError>([] { models::yolov3_layers({.classes = 0}); }),
            "[yolov3_layers] got 0 classes, expected one at least");
  EXPECT_EQ(test::error_text<ShapeError>([] { models::yolov3_detections(Tensor::zeros({1, 3, 85})); }),
            "[yolov3_detections] got (1, 3, 85), expected (boxes, 5 + classes)");
}

TEST(Darknet, ReadsConfigurations) {
  EXPECT_EQ(models::parse_darknet(text_of("yolov3.cfg")), models::yolov3_layers());
  const models::Darknet model(models::parse_darknet(text_of("yolov3_pooled.cfg")));
  zoo::give_weights(nn::get_state_dict(model));
  expect_boxes("yolov3_pooled", model(zoo::pattern("images", {2, 3, 12, 20})));
}

TEST(Darknet, DamagedConfigurations) {
  const auto error = [](const std::string& text) {
    return test::error_text<FormatError>([&] { models::parse_darknet(text); });
  };
  EXPECT_EQ(error(""), "[parse_darknet] text: expected [net] first");
  EXPECT_EQ(error("[yolo]\n"), "[parse_darknet] text: expected [net] first");
  EXPECT_EQ(error("a=1\n"), "[parse_darknet] text:1: got \"a=1\", expected [name] or key=value");
  EXPECT_EQ(error("[net]\n\nbatch\n"), "[parse_darknet] text:3: got \"batch\", expected [name] or key=value");
  EXPECT_EQ(error("[net]\n[lstm]\n"),
            "[parse_darknet] text:2: got [lstm], expected convolutional, maxpool, upsample, route, shortcut or yolo");
  EXPECT_EQ(error("[net]\n[convolutional]\nfilters=1x\n"),
            "[parse_darknet] text:3: got \"1x\", expected a number from 1 to 65536");
  EXPECT_EQ(error("[net]\n[convolutional]\nfilters=0\n"),
            "[parse_darknet] text:3: got \"0\", expected a number from 1 to 65536");
  EXPECT_EQ(error("[net]\n[convolutional]\n"),
            "[parse_darknet] text:2: expected activation=leaky or activation=linear");
  EXPECT_EQ(error("[net]\n[convolutional]\nactivation=mish\n"),
            "[parse_darknet] text:3: expected activation=leaky or activation=linear");
  EXPECT_EQ(error("[net]\n[route]\nlayers=-1\n"),
            "[parse_darknet] text:2: [route] names a layer that is not before it");
  EXPECT_EQ(error("[net]\n[shortcut]\n"), "[parse_darknet] text:2: [shortcut] has no from");
  EXPECT_EQ(error("[net]\n[yolo]\nmask=0\nanchors=10\n"), "[parse_darknet] text:2: [yolo] has no anchors");
  EXPECT_EQ(error("[net]\n[yolo]\nmask=2\nanchors=10,10, 20,20\n"),
            "[parse_darknet] text:3: got \"2\", expected a number from 0 to 1");
}

TEST(Darknet, Errors) {
  const auto error = [](const std::vector<models::DarknetLayer>& layers) {
    return test::error_text<ValueError>([&] { models::Darknet model(layers); });
  };
  using Layer = models::DarknetLayer;
  EXPECT_EQ(error({}), "[Darknet] got layers without a yolo layer, which has the boxes");
  EXPECT_EQ(error({{.kind = Layer::kRoute}}), "[Darknet] layer 0 joins no layers");
  EXPECT_EQ(error({{.kind = Layer::kRoute, .from = {1}}}),
            "[Darknet] layer 0 refers to layer 1, expected one before it");
  EXPECT_EQ(error({{.filters = 2}, {.filters = 3}, {.kind = Layer::kShortcut, .from = {0}}}),
            "[Darknet] layer 2 adds layers of different channels");
  const models::Darknet model({{.filters = 8}, {.kind = Layer::kYolo, .anchors = {{1, 1}}, .classes = 2}});
  EXPECT_EQ(test::error_text<ShapeError>([&] { model(Tensor::zeros({1, 3, 4, 4})); }),
            "[yolo_boxes] got 8 channels, expected 7");
}

}  // namespace
}  // namespace tg
