/// \file tg run and tg inspect on files of several formats.
#ifdef TG_PROGRAM
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "helpers/onnx_bytes.h"
#include "helpers/tg_program.h"
#include "temp_dir.h"
#include "tinygrad/io/picture.h"
#include "tinygrad/io/sound.h"
#include "tinygrad/nn/npy_file.h"
#include "tinygrad/nn/state_file.h"

namespace tg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;
using namespace test;

/// y = 2 x, of these sizes; negative ones are names.
std::string doubling(const std::string& path, const std::vector<int64_t>& sizes, int type = 1) {
  OnnxGraph g;
  g.nodes = {onnx_node("Add", {"x", "x"}, {"y"})};
  g.inputs = {onnx_value("x", sizes, type)};
  g.outputs = {onnx_value("y", sizes, type)};
  return write_file(path, onnx_model(g.build()).bytes());
}

TEST(RunCommand, NumbersInNumbersOut) {
  const TempDir dir;
  const std::string model = doubling(dir / "m.onnx", {1, 3});
  const ProcessResult r = tg_program({"run", model, "-i", "x=1,2.5,-3", "-o", "y=" + (dir / "y.npy")});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("x  float32 (1, 3)  (1, 3) (1,2.5,-3)"), HasSubstr("y  float32 (1, 3)   2 5 -6")));
  EXPECT_EQ(nn::npy_load(dir / "y.npy").to_vector<float>(), (std::vector<float>{2, 5, -6}));
}

TEST(RunCommand, ArraysAndOpenSizes) {
  const TempDir dir;
  const std::string model = doubling(dir / "m.onnx", {-1, 2});
  nn::npy_save(Tensor({{1.0, 2.0}, {3.0, 4.0}}), dir / "x.npy");
  EXPECT_THAT(tg_program({"run", model, "-i", "x=" + (dir / "x.npy")}).out, HasSubstr("y  float32 (2, 2)   2 4 6 8"));
  EXPECT_THAT(tg_program({"run", model, "-i", "x=ones", "--size", "n1=3"}).out, HasSubstr("(3, 2)   2 2 2 2 2 2"));
  EXPECT_THAT(tg_program({"run", model, "-i", "x=ones", "--size", "x=2x2"}).out, HasSubstr("(2, 2)   2 2 2 2"));
  const std::string random = tg_program({"run", model, "--seed", "3"}).out;
  EXPECT_THAT(random, HasSubstr("(random)"));
  EXPECT_EQ(random.substr(random.find("y  ")), [&] {
    const std::string again = tg_program({"run", model, "--seed", "3"}).out;
    return again.substr(again.find("y  "));
  }());
}

TEST(RunCommand, PicturesBothWays) {
  const TempDir dir;
  io::Image image{8, 8, 3, std::vector<uint8_t>(192, 51)};
  const std::string picture = write_file(dir / "p.png", io::encode_png(image));
  const std::string model = doubling(dir / "m.onnx", {1, 3, -1, -2});
  const ProcessResult r = tg_program({"run", model, "-i", "x=" + picture, "-o", "y=" + (dir / "y.png")});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("p.png, 8 x 8)"), HasSubstr("least 0.4, mean 0.4, greatest 0.4")));
  const ProcessResult back =
      tg_program({"run", model, "-i", "x=" + (dir / "y.png"), "--scale", "1", "--mean", "100", "--std", "1,2,4"});
  EXPECT_THAT(back.out, HasSubstr("least 1, mean 2.33333, greatest 4"));  // the bytes are 102
  const std::string small = doubling(dir / "s.onnx", {1, 4, 4, 3}, 2);    // bytes, channels last
  EXPECT_THAT(tg_program({"run", small, "-i", "x=" + picture}).out,
              AllOf(HasSubstr("resized to 4 x 4"), HasSubstr("least 102, mean 102, greatest 102")));
}

TEST(RunCommand, ScalarsAndBytes) {
  const TempDir dir;
  EXPECT_THAT(tg_program({"run", doubling(dir / "m.onnx", {}), "-i", "x=3"}).out, HasSubstr("y  float32 ()   6"));
  const std::string picture = write_file(dir / "p.png", io::encode_png({8, 8, 1, std::vector<uint8_t>(64, 9)}));
  OnnxGraph g;  // a model that decodes pictures itself
  g.nodes = {onnx_node("ImageDecoder", {"x"}, {"y"})};
  g.inputs = {onnx_value("x", {-1}, 2)};
  g.outputs = {onnx_value("y", {-2, -3, 3}, 2)};
  const std::string model = write_file(dir / "d.onnx", onnx_model(g.build()).bytes());
  EXPECT_THAT(tg_program({"run", model, "-i", "x=" + picture}).out, HasSubstr("y  uint8 (8, 8, 3)  least 9, mean 9"));
}

TEST(RunCommand, Json) {
  const TempDir dir;
  const std::string model = doubling(dir / "m.onnx", {1, 3});
  const ProcessResult r = tg_program({"run", model, "-i", "x=1,2,3", "--json", "--benchmark", "--seconds", "1"});
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_EQ(json["inputs"][0]["type"], "float32 (1, 3)");
  EXPECT_EQ(json["outputs"][0]["name"], "y");
  EXPECT_EQ(json["outputs"][0]["value"]["values"], (std::vector<double>{2, 4, 6}));
  EXPECT_EQ(json["benchmark"]["kernels"], 1);
  EXPECT_EQ(tg_program({"run", model, "--json", "--profile"}).exit_code, 2);
}

TEST(RunCommand, MapsAreShown) {
  const TempDir dir;
  const PbMessage labels = PbMessage().text(1, "classlabels_strings").text(9, "a").text(9, "b").integer(20, 8);
  OnnxGraph g;
  g.nodes = {onnx_node("ZipMap", {"x"}, {"y"}, {labels}, "ai.onnx.ml")};
  g.inputs = {onnx_value("x", {1, 2})};
  g.outputs = {PbMessage().text(1, "y")};
  const std::string model = write_file(dir / "m.onnx", onnx_model(g.build()).bytes());
  EXPECT_THAT(tg_program({"run", model, "-i", "x=1,2.5"}).out, HasSubstr("y[0]  map {\"a\":1.0,\"b\":2.5}\n"));
}

TEST(RunCommand, SoundIsCutToTheLength) {
  const TempDir dir;
  const std::string sound = write_file(dir / "s.wav", io::encode_wav({16000, 1, std::vector<float>(100, 0.25f)}));
  const ProcessResult r = tg_program({"run", doubling(dir / "m.onnx", {1, 64}), "-i", "x=" + sound});
  EXPECT_THAT(r.out, AllOf(HasSubstr("of which 64 are taken"), HasSubstr("least 0.5, mean 0.5, greatest 0.5")))
      << r.err;
}

TEST(RunCommand, ClassesHaveLabels) {
  const TempDir dir;
  const std::string labels = write_file(dir / "labels.txt", std::string_view("cat\ndog\nfox\n"));
  const ProcessResult r =
      tg_program({"run", doubling(dir / "m.onnx", {1, 3}), "-i", "x=0,2,1", "--labels", labels, "--top", "2"});
  EXPECT_THAT(r.out, HasSubstr("     86.7 %  1  dog\n     11.7 %  2  fox\n"));
}

TEST(RunCommand, TimesAndKernels) {
  const TempDir dir;
  const ProcessResult r =
      tg_program({"run", doubling(dir / "m.onnx", {4, 16}), "--benchmark", "--seconds", "1", "--profile"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("1 kernels, "), HasSubstr("calls: median "), HasSubstr(" operations, ")));
}

TEST(RunCommand, ErrorsSayWhatIsExpected) {
  const TempDir dir;
  const std::string model = doubling(dir / "m.onnx", {1, 3});
  const auto error = [&](std::vector<std::string> more, int code) {
    more.insert(more.begin(), {"run", model});
    const ProcessResult r = tg_program(more);
    EXPECT_EQ(r.exit_code, code);
    return r.err;
  };
  EXPECT_THAT(error({"-i", "z=1"}, 2), HasSubstr("[run] got input z, expected one of: x"));
  EXPECT_THAT(error({"-i", "x"}, 2), HasSubstr("[run] got --input x, expected NAME=VALUE"));
  EXPECT_THAT(error({"-i", "x=nothing"}, 2), HasSubstr("expected a file, random, zeros, ones, or numbers"));
  EXPECT_THAT(error({"-i", "x=1,2"}, 1), HasSubstr("[run] got 2 values for input x, which is float32 (1, 3)"));
  EXPECT_THAT(error({"--size", "x=axb"}, 2), HasSubstr("[run] got size axb, expected a number or several"));
  EXPECT_THAT(error({"--size", "z=2"}, 2), HasSubstr("[run] got a size of z, expected one of: x"));
  EXPECT_THAT(error({"-o", "q=" + (dir / "q.npy")}, 2), HasSubstr("[run] got output q, expected one of: y"));
  EXPECT_THAT(error({"-o", "y=" + (dir / "y.gif")}, 1), HasSubstr("expected a name that ends with .png or .jpg"));
  const std::string picture = write_file(dir / "p.png", io::encode_png({1, 1, 1, {7}}));
  EXPECT_THAT(error({"-i", "x=" + picture}, 2),
              HasSubstr("is a picture, and input x is float32 (1, 3), which takes none"));
  EXPECT_THAT(tg_program({"run", dir / "none.onnx"}).err, HasSubstr("none.onnx: No such file or directory"));
}

TEST(InspectCommand, OnnxAndItsOperators) {
  const TempDir dir;
  OnnxGraph g;
  g.nodes = {onnx_node("Add", {"x", "w"}, {"m"}), onnx_node("Add", {"m", "w"}, {"n"}),
             onnx_node("Fry", {"n"}, {"y"}, {}, "my.kitchen")};
  g.initializers = {onnx_tensor<float>("w", 1, {3}, {1, 2, 3})};
  g.inputs = {onnx_value("x", {-1, 3})};
  g.outputs = {onnx_value("y", {-1, 3})};
  const std::string model = write_file(dir / "m.onnx", onnx_model(g.build()).bytes());
  const std::string out = tg_program({"inspect", model, "--tensors"}).out;
  EXPECT_THAT(out, AllOf(HasSubstr("m.onnx: ONNX"), HasSubstr("operators of ai.onnx  20"),
                         HasSubstr("x  float32 (n1, 3)"), HasSubstr("tensors: 1, 3 values, 12 B"),
                         HasSubstr("w  FLOAT (3)"), HasSubstr("operators: 2, 3 nodes, 1 not supported"),
                         HasSubstr("2  Add\n"), HasSubstr("1  my.kitchen.Fry  version 1 is not supported")));
  const auto json = nlohmann::json::parse(tg_program({"inspect", model, "--json"}).out);
  EXPECT_EQ(json["operators"][0]["nodes"], 2);
  EXPECT_EQ(json["operators"][1]["supported"], false);
  EXPECT_EQ(json["tensors"][0]["bytes"], 12);
}

TEST(InspectCommand, OtherFormats) {
  const TempDir dir;
  nn::safe_save({{"a", Tensor::zeros({2, 3})}, {"b", Tensor::zeros({4}, dtypes::int8)}}, dir / "w.safetensors",
                {{"made by", "a test\nof two lines"}});
  EXPECT_THAT(tg_program({"inspect", dir / "w.safetensors"}).out,
              AllOf(HasSubstr("safetensors"), HasSubstr("made by  a test"), HasSubstr("tensors: 2, 10 values, 28 B"),
                    HasSubstr("int8  1 tensors, 4 B")));
  nn::npy_save(Tensor::zeros({2, 3}), dir / "x.npy");
  EXPECT_THAT(tg_program({"inspect", dir / "x.npy", "--tensors"}).out, HasSubstr("array  float32 (2, 3)"));
  const std::string text = write_file(dir / "x.txt", std::string_view("hello"));
  const ProcessResult other = tg_program({"inspect", text});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("x.txt: this is no ONNX, GGUF, safetensors, torch.save or NumPy file"));
  EXPECT_EQ(tg_program({"inspect", dir / "none"}).exit_code, 1);
}

}  // namespace
}  // namespace tg
#endif
