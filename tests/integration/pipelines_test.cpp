/// \file tg run with pipelines: models that stand in for those of packages, and the geometry of text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "apps/tg/text_regions.h"
#include "helpers/onnx_bytes.h"
#include "helpers/tg_program.h"
#include "helpers/tiny_chat_model.h"
#include "helpers/tiny_encoder.h"
#include "temp_dir.h"
#include "tinygrad/base/binary.h"
#include "tinygrad/io/file.h"
#include "tinygrad/io/picture.h"
#include "tinygrad/io/sound.h"
#include "tinygrad/io/zip.h"

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

/// A folder as the package magika has it: the first byte decides between "upper" (below 100), "lower" (above) and,
/// with little confidence, a third.
void write_magika(const std::string& folder, double threshold = 0.4) {
  OnnxGraph g;
  g.nodes = {onnx_node("Gather", {"bytes", "first"}, {"b"}, {onnx_attribute("axis", int64_t{1})}),
             onnx_node("Cast", {"b"}, {"f"}, {onnx_attribute("to", 1)}), onnx_node("Mul", {"f", "w"}, {"m"}),
             onnx_node("Add", {"m", "bias"}, {"a"}), onnx_node("Softmax", {"a"}, {"y"})};
  g.initializers = {onnx_tensor<int64_t>("first", 7, {1}, {0}), onnx_tensor<float>("w", 1, {1, 3}, {-1, 1, 0}),
                    onnx_tensor<float>("bias", 1, {1, 3}, {100, -100, 0})};
  g.inputs = {onnx_value("bytes", {-1, 16}, 6)};
  g.outputs = {onnx_value("y", {-1, 3})};
  write_file(folder + "/model.onnx", onnx_model(g.build()).bytes());
  const nlohmann::json config{{"beg_size", 8},
                              {"mid_size", 0},
                              {"end_size", 8},
                              {"use_inputs_at_offsets", false},
                              {"medium_confidence_threshold", 0.5},
                              {"min_file_size_for_dl", 4},
                              {"padding_token", 256},
                              {"block_size", 32},
                              {"target_labels_space", {"upper", "lower", "third"}},
                              {"thresholds", {{"upper", threshold}}},
                              {"overwrite_map", {{"lower", "small"}}}};
  write_file(folder + "/config.min.json", config.dump());
  nlohmann::json kinds;
  for (const char* name : {"upper", "small", "third", "txt", "unknown", "empty"})
    kinds[name] = {{"mime_type", nullptr}, {"group", "text"}, {"description", name}, {"is_text", name[0] != 't'}};
  write_file(folder + "/content_types_kb.min.json", kinds.dump());
}

TEST(Pipelines, FilesHaveKinds) {
  const TempDir dir;
  write_magika(dir / "");
  std::vector<std::string> call{"run", "classify", "--json", "--weights", dir / ""};
  int number = 0;
  for (const std::string text : {"ABCDEF", " \n\t efghij", "dddddd", "", "ab", "\xff", "      \n\n", "   z\n"})
    call.push_back(write_file(dir / str("f", number++), text));
  const ProcessResult r = tg_program(call);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::istringstream lines(r.out);
  std::vector<std::string> labels;
  for (std::string line; std::getline(lines, line);) labels.push_back(nlohmann::json::parse(line)["label"]);
  EXPECT_EQ(labels, (std::vector<std::string>{"upper", "small", "txt", "empty", "txt", "unknown", "txt", "txt"}));
  write_magika(dir / "", 0.3);  // each of the three labels has a third for 'd'
  EXPECT_THAT(tg_program({"run", "classify", dir / "f2", "--weights", dir / ""}).out,
              HasSubstr("f2: upper, upper (0.3"));
  EXPECT_THAT(tg_program({"run", "classify", dir / "f2", "--weights", dir / "model.onnx"}).err,
              HasSubstr("give --weights a folder or a wheel"));
  write_file(dir / "config.min.json", std::string("{\"beg_size\": 4}"));
  EXPECT_THAT(tg_program({"run", "classify", dir / "f2", "--weights", dir / ""}).err,
              HasSubstr("the description of the model is damaged"));
}

/// Puts the files of a folder into a wheel under "package/model/".
std::string wheel_of(const std::string& folder, const std::string& path) {
  io::ZipWriter zip;
  std::deque<std::vector<uint8_t>> contents;
  for (const auto& e : std::filesystem::recursive_directory_iterator(folder)) {
    if (!e.is_regular_file()) continue;
    contents.push_back(io::read_file(e.path(), 1 << 20));
    zip.add("package/model/" + std::filesystem::relative(e.path(), folder).string(), {contents.back()});
  }
  std::string all;
  for (const auto& part : zip.finish()) all.append(part.begin(), part.end());
  return write_file(path, all);
}

TEST(Pipelines, TextsHaveVectors) {
  const TempDir dir;
  std::vector<float> words(48, 0.f);
  for (const size_t token : {2u, 3u, 4u}) {  // [CLS], [SEP] and "a"
    words[token * 8] = 1;
    words[token * 8 + 1] = -1;
  }
  words[5 * 8 + 2] = 1;  // "##b"
  words[5 * 8 + 3] = -1;
  write_tiny_bert(dir / "model", Tensor::from(words, Shape{6, 8}), 1);
  const std::string wheel = wheel_of(dir / "model", dir / "tiny-1.0.whl");
  for (const std::string& weights : {wheel, wheel, dir / ""}) {  // the second time the files are there
    const ProcessResult r =
        tg_program({"run", "embed", "a", "ab", "--json", "--weights", weights}, {{"XDG_CACHE_HOME", dir / "cache"}});
    ASSERT_EQ(r.exit_code, 0) << r.err;
    const auto out = nlohmann::json::parse(r.out);
    EXPECT_EQ(out["texts"][1]["tokens"], 4);
    EXPECT_NEAR(out["texts"][0]["norm"].get<double>(), std::sqrt(8), 1e-4);
    EXPECT_NEAR(out["texts"][1]["norm"].get<double>(), std::sqrt(5), 1e-4);
    EXPECT_NEAR(out["similarities"][0][1].get<double>(), 3 / std::sqrt(10), 1e-5);
    EXPECT_NEAR(out["similarities"][1][1].get<double>(), 1, 1e-6);
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "cache/tinygrad_cpp/packages/tiny-1.0/1_Pooling/config.json"));
  EXPECT_THAT(tg_program({"run", "embed", "a", "ab", "--weights", dir / "model"}).out,
              HasSubstr("2  4 tokens, norm 2.2361"));
}

/// A model as YOLOv8 exports them, of 64 x 64 pixels. What it finds is in the file, but for the score of "it's", which
/// is the mean of the picture.
std::string fixed_yolo(const std::string& path, const std::vector<int64_t>& shape, const std::vector<float>& found,
                       const std::vector<float>& by_mean) {
  OnnxGraph g;
  g.nodes = {onnx_node("ReduceMean", {"images"}, {"mean"}, {onnx_attribute("keepdims", int64_t{0})}),
             onnx_node("Mul", {"mean", "by"}, {"m"}), onnx_node("Add", {"m", "found"}, {"output0"})};
  g.initializers = {onnx_tensor<float>("found", 1, shape, found), onnx_tensor<float>("by", 1, shape, by_mean)};
  g.inputs = {onnx_value("images", {1, 3, 64, 64})};
  g.outputs = {onnx_value("output0", shape)};
  PbMessage model = onnx_model(g.build());
  model.message(14, PbMessage().text(1, "names").text(2, R"({0: 'cat', 1: "it's"})"));
  return write_file(path, model.bytes());
}

TEST(Pipelines, ObjectsHaveBoxes) {
  const TempDir dir;
  const std::string picture =
      write_file(dir / "p.png", io::encode_png({16, 32, 3, std::vector<uint8_t>(16 * 32 * 3, 255)}));
  // Columns: a cat; the same one, less certain; "it's" in the same place; one that is too faint.
  const std::vector<float> found{32, 33, 32, 5, 32,  32,  32, 20,  20, 20, 20, 4,
                                 10, 10, 10, 4, .9f, .8f, 0,  .1f, 0,  0,  0,  0};
  std::vector<float> by(24, 0.f);
  by[22] = 1;  // the score of the second class for the third column
  const std::string model = fixed_yolo(dir / "y.onnx", {1, 6, 4}, found, by);
  const ProcessResult r = tg_program({"run", "detect", picture, "--weights", model, "--json", "-o", dir / "found.png"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto objects = nlohmann::json::parse(r.out)["objects"];
  ASSERT_EQ(objects.size(), 2u) << r.out;
  EXPECT_EQ(objects[0]["label"], "cat");
  EXPECT_EQ(objects[0]["box"], (std::vector<double>{11, 5.5, 21, 10.5}));
  EXPECT_EQ(objects[1]["label"], "it's");
  EXPECT_NEAR(objects[1]["score"].get<double>(), (1 + 114 / 255.0) / 2, 1e-5);  // half of what it sees is grey
  const io::Image drawn = io::decode_image(io::read_file(dir / "found.png", 1 << 20), 3, "drawn");
  const auto is_white = [&](size_t x, size_t y) { return drawn.pixels[(y * 32 + x) * 3 + 1] == 255; };
  EXPECT_FALSE(is_white(11, 6) || is_white(20, 10) || is_white(15, 6));
  EXPECT_TRUE(is_white(10, 6) && is_white(15, 8) && is_white(21, 10));

  // Rows of corners, score and class, of models that suppress boxes themselves.
  const std::vector<float> rows{22, 27, 42, 37, .5f, 1, 0, 0, 9, 9, .1f, 0};
  const std::string ready = fixed_yolo(dir / "e.onnx", {1, 2, 6}, rows, std::vector<float>(12, 0.f));
  EXPECT_THAT(tg_program({"run", "detect", picture, "--weights", ready}).out,
              HasSubstr(" 50.0 %  it's  (11, 6) to (21, 10)\n"));
  EXPECT_THAT(tg_program({"run", "detect", picture}).err, HasSubstr("detect needs a model: give --weights"));
  const std::string flat = fixed_yolo(dir / "f.onnx", {1, 4, 3}, std::vector<float>(12), std::vector<float>(12));
  EXPECT_THAT(tg_program({"run", "detect", picture, "--weights", flat}).err, HasSubstr("expected scores of classes"));
}

/// The weights of a small Whisper as files of CTranslate2 name them: one layer on each side, 64 numbers wide.
std::vector<std::tuple<std::string, std::vector<int64_t>, std::vector<float>>> small_whisper() {
  std::vector<std::tuple<std::string, std::vector<int64_t>, std::vector<float>>> out;
  uint64_t state = 1;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    size_t n = 1;
    for (const int64_t s : shape) n *= static_cast<size_t>(s);
    out.emplace_back(name, shape, some_weights(n, name.ends_with("gamma") ? 1 : 0.3, state));
  };
  const auto affine = [&](const std::string& name, int64_t to, int64_t from) {
    add(name + "/weight", {to, from});
    add(name + "/bias", {to});
  };
  const auto norm = [&](const std::string& name) {
    add(name + "/gamma", {64});
    add(name + "/beta", {64});
  };
  for (const std::string side : {"encoder/", "decoder/"}) {
    const std::string l = side + "layer_0/";
    norm(l + "self_attention/layer_norm");
    affine(l + "self_attention/linear_0", 192, 64);
    affine(l + "self_attention/linear_1", 64, 64);
    norm(l + "ffn/layer_norm");
    affine(l + "ffn/linear_0", 256, 64);
    affine(l + "ffn/linear_1", 64, 256);
    norm(side + "layer_norm");
    add(side + "position_encodings/encodings", {side == "encoder/" ? 50 : 32, 64});
  }
  norm("decoder/layer_0/attention/layer_norm");
  affine("decoder/layer_0/attention/linear_0", 64, 64);
  affine("decoder/layer_0/attention/linear_1", 128, 64);
  affine("decoder/layer_0/attention/linear_2", 64, 64);
  add("decoder/embeddings/weight", {16, 64});
  add("encoder/conv1/weight", {64, 8, 3});
  add("encoder/conv1/bias", {64});
  add("encoder/conv2/weight", {64, 64, 3});
  add("encoder/conv2/bias", {64});
  return out;
}

/// Writes them as model.bin, of another version or with another type than these have.
void write_ctranslate2(const std::string& path, uint32_t version = 6, uint8_t type = 0) {
  ByteWriter out;
  const auto text = [&](const std::string& s) {
    out.value(static_cast<uint16_t>(s.size() + 1));
    out.bytes.insert(out.bytes.end(), s.c_str(), s.c_str() + s.size() + 1);
  };
  const auto arrays = small_whisper();
  out.value(version);
  text("WhisperSpec");
  out.value(uint32_t{3});
  out.value(static_cast<uint32_t>(arrays.size()));
  for (const auto& [name, shape, values] : arrays) {
    text(name);
    out.value(static_cast<uint8_t>(shape.size()));
    for (const int64_t n : shape) out.value(static_cast<uint32_t>(n));
    out.value(type);
    out.value(static_cast<uint32_t>(values.size() * sizeof(float)));
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    out.bytes.insert(out.bytes.end(), bytes, bytes + values.size() * sizeof(float));
  }
  write_file(path, out.bytes);
}

/// Writes the same weights as transformers name them.
void write_transformers(const std::string& path) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"/", "."},
      {"layer_0.", "layers.0."},
      {"self_attention.layer_norm", "self_attn_layer_norm"},
      {".attention.layer_norm", ".encoder_attn_layer_norm"},
      {"ffn.layer_norm", "final_layer_norm"},
      {"self_attention.linear_0", "self_attn.q_proj k_proj v_proj"},
      {"self_attention.linear_1", "self_attn.out_proj"},
      {"attention.linear_0", "encoder_attn.q_proj"},
      {"attention.linear_1", "encoder_attn.k_proj v_proj"},
      {"attention.linear_2", "encoder_attn.out_proj"},
      {"ffn.linear_0", "fc1"},
      {"ffn.linear_1", "fc2"},
      {"gamma", "weight"},
      {"beta", "bias"},
      {"position_encodings.encodings", "embed_positions.weight"},
      {"embeddings.weight", "embed_tokens.weight"}};
  nn::StateDict all;
  for (const auto& [own, shape, values] : small_whisper()) {
    std::string name = own;
    for (const auto& [from, to] : names)
      for (size_t at = name.find(from); at != std::string::npos; at = name.find(from, at + to.size()))
        name.replace(at, from.size(), to);
    Shape sizes;
    for (const int64_t n : shape) sizes.push_back(n);
    const Tensor t = Tensor::from(values, sizes);
    std::vector<std::string> parts;  // "k_proj v_proj" are one below the other
    const size_t space = name.find(' '), last = name.rfind('.');
    if (space == std::string::npos) {
      all.emplace_back("model." + name, t);
      continue;
    }
    const size_t first = name.rfind('.', space) + 1;
    std::istringstream words(name.substr(first, last - first));
    for (std::string w; words >> w;) parts.push_back(w);
    const auto n = static_cast<int64_t>(parts.size());
    for (int64_t i = 0; i < n; i++) {
      const std::string part = name.substr(0, first) + parts[static_cast<size_t>(i)] + name.substr(last);
      if (part.find("k_proj.bias") != std::string::npos) continue;
      all.emplace_back("model." + part, t.slice(0, i * t.shape(0) / n, (i + 1) * t.shape(0) / n).contiguous());
    }
  }
  nn::safe_save(all, path);
}

TEST(Pipelines, SpeechIsWritten) {
  const TempDir dir;
  nlohmann::json vocabulary, added = nlohmann::json::array();
  for (int i = 0; i < 11; i++) vocabulary[std::string(1, static_cast<char>('a' + i))] = i;
  int id = 11;
  for (const char* name :
       {"<|endoftext|>", "<|startoftranscript|>", "<|transcribe|>", "<|startofprev|>", "<|notimestamps|>"})
    added.push_back({{"id", id++}, {"content", name}, {"special", true}});
  const nlohmann::json tokenizer{
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}},
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  for (const char* kind : {"c", "t"}) {
    std::filesystem::create_directories(dir / kind);
    write_file(dir / str(kind, "/tokenizer.json"), tokenizer.dump());
  }
  write_ctranslate2(dir / "c/model.bin");
  write_transformers(dir / "t/model.safetensors");
  std::vector<float> samples;
  for (int i = 0; i < 16000; i++) samples.push_back(0.5f * std::sin(static_cast<float>(i * i) * 1e-5f));
  const std::string file = write_file(dir / "s.wav", io::encode_wav({16000, 1, samples}));
  const ProcessResult c = tg_program({"run", "transcribe", file, "--json", "--weights", dir / "c"});
  const ProcessResult t = tg_program({"run", "transcribe", file, "--json", "--weights", dir / "t"});
  ASSERT_EQ(c.exit_code, 0) << c.err;
  EXPECT_EQ(c.out, t.out) << t.err;
  const auto out = nlohmann::json::parse(c.out);
  EXPECT_FALSE(out["text"].get<std::string>().empty());
  EXPECT_EQ(out["seconds"], 1);
  EXPECT_FALSE(out.contains("language"));
  const auto error = [&] { return tg_program({"run", "transcribe", file, "--weights", dir / "c"}).err; };
  write_ctranslate2(dir / "c/model.bin", 2);
  EXPECT_THAT(error(), HasSubstr("got a file of another version than 4 to 6"));
  write_ctranslate2(dir / "c/model.bin", 6, 1);
  EXPECT_THAT(error(), HasSubstr("got an array whose size in bytes is not that of its elements"));
  std::filesystem::remove(dir / "c/model.bin");
  EXPECT_THAT(error(), HasSubstr("has neither model.safetensors nor model.bin"));
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
