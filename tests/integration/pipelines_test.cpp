/// \file tg run with pipelines: models that stand in for those of packages, and the geometry of text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/tg/text_regions.h"
#include "helpers/onnx_bytes.h"
#include "helpers/tg_program.h"
#include "temp_dir.h"
#include "tinygrad/io/picture.h"
#include "tinygrad/io/sound.h"

namespace tg {
namespace {

using app::Point;
using app::TextRegion;
using ::testing::HasSubstr;
using testing::TempDir;
using namespace test;

/// A map with filled rectangles (left, top, right, bottom; the last two are inside).
std::vector<float> map_of(int64_t height, int64_t width, const std::vector<std::array<int64_t, 4>>& boxes,
                          float value) {
  std::vector<float> out(static_cast<size_t>(height * width), 0.f);
  for (const auto& [left, top, right, bottom] : boxes)
    for (int64_t y = top; y <= bottom; y++)
      for (int64_t x = left; x <= right; x++) out[static_cast<size_t>(y * width + x)] = value;
  return out;
}

TEST(TextRegions, RectanglesOfAnyDirection) {
  const double angle = 0.3;
  std::vector<Point> points;
  for (double s = 0; s <= 20; s++)
    for (double t = 0; t <= 5; t++)
      points.push_back(
          {50 + s * std::cos(angle) - t * std::sin(angle), 40 + s * std::sin(angle) + t * std::cos(angle)});
  const auto c = app::least_rectangle(points);
  EXPECT_NEAR(c[0].x, 50, 1e-9);
  EXPECT_NEAR(c[0].y, 40, 1e-9);
  EXPECT_NEAR(c[1].x, 50 + 20 * std::cos(angle), 1e-9);
  EXPECT_NEAR(c[2].y, 40 + 20 * std::sin(angle) + 5 * std::cos(angle), 1e-9);
  const auto one = app::least_rectangle({{3, 4}});
  EXPECT_EQ(one[0].x, 3);
  EXPECT_EQ(one[2].y, 4);
  const auto line = app::least_rectangle({{0, 0}, {1, 1}, {2, 2}});
  EXPECT_NEAR(std::hypot(line[1].x - line[0].x, line[1].y - line[0].y), std::sqrt(8.0), 1e-9);
}

TEST(TextRegions, AreGrownAndInTheOrderOfReading) {
  const auto found =
      app::text_regions(map_of(60, 200, {{100, 11, 150, 20}, {10, 10, 60, 19}, {10, 40, 60, 49}}, 0.8f), 60, 200);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_LT(found[0].corners[0].x, 20);
  EXPECT_GT(found[1].corners[0].x, 80);
  EXPECT_GT(found[2].corners[0].y, 30);
  const double by = 50 * 9 * 1.6 / (2 * (50 + 9));
  EXPECT_NEAR(found[0].width(), 50 + 2 * by, 1e-9);
  EXPECT_NEAR(found[0].height(), 9 + 2 * by, 1e-9);
  EXPECT_NEAR(found[0].score, 0.8, 1e-6);
}

TEST(TextRegions, WhatIsSmallOrFaintIsNone) {
  EXPECT_TRUE(app::text_regions(map_of(30, 30, {{5, 5, 20, 6}}, 0.9f), 30, 30).empty());
  EXPECT_TRUE(app::text_regions(map_of(30, 30, {{5, 5, 20, 15}}, 0.4f), 30, 30).empty());
  EXPECT_TRUE(app::text_regions({}, 0, 0).empty());
  // Corners that touch are connected.
  EXPECT_EQ(app::text_regions(map_of(30, 30, {{2, 2, 10, 10}, {11, 11, 20, 20}}, 0.9f), 30, 30).size(), 1u);
}

#ifdef TG_PROGRAM
/// A model with the inputs and outputs of Silero's: loud windows are speech.
std::string loudness(const std::string& path) {
  OnnxGraph g;
  g.nodes = {onnx_node("Abs", {"input"}, {"a"}), onnx_node("ReduceMean", {"a", "axis"}, {"m"}),
             onnx_node("Greater", {"m", "limit"}, {"loud"}),
             onnx_node("Cast", {"loud"}, {"output"}, {onnx_attribute("to", 1)}),
             onnx_node("Identity", {"state"}, {"stateN"})};
  g.initializers = {onnx_tensor<int64_t>("axis", 7, {1}, {1}), onnx_tensor<float>("limit", 1, {}, {0.1f})};
  g.inputs = {onnx_value("input", {-1, -2}), onnx_value("state", {2, -1, 128}), onnx_value("sr", {}, 7)};
  g.outputs = {onnx_value("output", {-1, 1}), onnx_value("stateN", {2, -1, 128})};
  return write_file(path, onnx_model(g.build()).bytes());
}

TEST(Pipelines, SpeechHasBeginningsAndEnds) {
  const TempDir dir;
  io::Sound sound{16000, 1, std::vector<float>(5 * 16000, 0.f)};
  const auto speak = [&](double from, double to) {
    for (int64_t i = std::llround(from * 16000); i < std::llround(to * 16000); i++)
      sound.samples[static_cast<size_t>(i)] = i % 2 ? 0.5f : -0.5f;
  };
  speak(1, 2);
  speak(2.05, 2.5);  // a pause too short to end anything
  speak(3, 3.1);     // too short to be speech
  speak(4.5, 5);     // to the end
  const std::string file = write_file(dir / "s.wav", io::encode_wav(sound)), model = loudness(dir / "silero_vad.onnx");
  const ProcessResult r = tg_program({"run", "vad", file, "--weights", model, "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto speech = nlohmann::json::parse(r.out)["speech"];
  ASSERT_EQ(speech.size(), 2u);
  EXPECT_NEAR(speech[0]["begin"].get<double>(), 1, 0.07);
  EXPECT_NEAR(speech[0]["end"].get<double>(), 2.5, 0.07);
  EXPECT_NEAR(speech[1]["begin"].get<double>(), 4.5, 0.07);
  EXPECT_NEAR(speech[1]["end"].get<double>(), 5, 1e-9);
  EXPECT_THAT(tg_program({"run", "vad", file, "--weights", dir / ""}).out, HasSubstr("s.wav  "));
}

TEST(Pipelines, ErrorsSayWhatIsMissing) {
  const TempDir dir;
  const std::string file = write_file(dir / "s.wav", io::encode_wav({16000, 1, {0, 0}}));
  const std::string none = tg_program({"run", "vad", file}, {{"XDG_CACHE_HOME", dir / "cache"}}).err;
  EXPECT_THAT(none, HasSubstr("there is no wheel of silero-vad in "));
  EXPECT_THAT(none, HasSubstr("pip download --no-deps -d "));
  EXPECT_THAT(tg_program({"run", "vad"}).err, HasSubstr("[run] vad got no file"));
  EXPECT_THAT(tg_program({"run", "vad", file, "--weights", dir / ""}).err,
              HasSubstr("there is no file in it that ends with silero_vad.onnx"));
  const std::string model = loudness(dir / "m.onnx");
  EXPECT_THAT(tg_program({"run", model, file}).err, HasSubstr("files behind it and --weights are for pipelines"));
  EXPECT_THAT(tg_program({"run", "ocr", file, "--weights", model}).err, HasSubstr("ocr has three models"));
  const std::string wheel = write_file(dir / "x.whl", std::string("no archive"));
  EXPECT_EQ(tg_program({"run", "vad", file, "--weights", wheel}).exit_code, 1);
}
#endif

}  // namespace
}  // namespace tg
