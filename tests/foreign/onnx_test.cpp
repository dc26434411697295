/// \file ONNX models: what they compute, and how damaged ones and those that are not supported are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "helpers/onnx_bytes.h"
#include "temp_dir.h"
#include "tinygrad/base/error.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/onnx/graph_plan.h"
#include "tinygrad/onnx/model.h"
#include "tinygrad/onnx/operators.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg {
namespace {

using onnx::Model;
using test::bytes_of, test::onnx_attribute, test::onnx_model, test::onnx_node, test::onnx_tensor, test::onnx_value;
using test::OnnxGraph, test::PbMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Model load(const OnnxGraph& g, int64_t version = 20, const onnx::ModelOptions& o = {}) {
  return Model::from_bytes(bytes_of(onnx_model(g.build(), version)), o);
}
std::vector<float> run(const Model& m, const Tensor& x) { return m(x).to_vector<float>(); }

/// y = x * w + w, with a weight of 3 elements.
OnnxGraph affine() {
  return {{onnx_node("Mul", {"x", "w"}, {"m"}), onnx_node("Add", {"m", "w"}, {"y"})},
          {onnx_tensor<float>("w", 1, {3}, {1, 2, 3})},
          {onnx_value("x", {-1, 3})},
          {onnx_value("y", {-1, 3})}};
}
const Tensor kRow({{1.F, 10.F, 100.F}});

TEST(Onnx, ComputesOutputsOfNamedInputs) {
  const Model m = load(affine());
  EXPECT_THAT(run(m, kRow), ElementsAre(2, 22, 303));
  ASSERT_EQ(m.inputs().size(), 1u);
  EXPECT_EQ(m.inputs()[0].name, "x");
  EXPECT_EQ(m.inputs()[0].type.shape->at(0).name, "n1");
  EXPECT_EQ(m.outputs()[0].name, "y");
  EXPECT_THAT(run(m, Tensor::ones(2, 3)), ElementsAre(2, 4, 6, 2, 4, 6));  // another size of n1
}

TEST(Onnx, ReadsFilesAndStreams) {
  const testing::TempDir dir;
  const std::string bytes = onnx_model(affine().build()).bytes();
  std::ofstream(dir / "m.onnx", std::ios::binary) << bytes;
  EXPECT_THAT(run(Model::from_file(dir / "m.onnx"), kRow), ElementsAre(2, 22, 303));
  std::istringstream in(bytes);
  EXPECT_THAT(run(Model::from_stream(in), kRow), ElementsAre(2, 22, 303));
}

TEST(Onnx, NamesInputsThatDoNotFit) {
  const Model m = load(affine());
  const auto call = [&](const char* name, const Tensor& t) { return [&m, name, t] { m({{name, t}}); }; };
  EXPECT_THAT(call("z", kRow), ThrowsMessage<ValueError>(HasSubstr("got input \"z\", which the model does not have")));
  EXPECT_THAT([&] { m(std::map<std::string, Tensor>{}); }, ThrowsMessage<ValueError>(HasSubstr("got no input \"x\"")));
  EXPECT_THAT(call("x", Tensor::ones(2, 4)), ThrowsMessage<ShapeError>(HasSubstr("expected size 3 of axis 1")));
  EXPECT_THAT(call("x", Tensor::ones(3)), ThrowsMessage<ShapeError>(HasSubstr("expected 2 axes")));
}

TEST(Onnx, EqualNamesAreEqualSizes) {
  OnnxGraph g{{onnx_node("Add", {"a", "b"}, {"y"})},
              {},
              {onnx_value("a", {-1}), onnx_value("b", {-1})},
              {onnx_value("y", {-1})}};
  EXPECT_THAT([&] { load(g)({{"a", Tensor::ones(2)}, {"b", Tensor::ones(3)}}); },
              ThrowsMessage<ShapeError>(HasSubstr("for input b, expected size 2 of axis 0, as n1 is elsewhere")));
}

TEST(Onnx, ErrorsNameTheNodeAndWhatIsSupported) {
  OnnxGraph g = affine();
  g.nodes[0] = onnx_node("Fry", {"x", "w"}, {"m"});
  EXPECT_THAT([&] { load(g)(kRow); }, ThrowsMessage<FormatError>(HasSubstr(
                                          "node \"the_Fry\" (Fry): version 20 of this operator is not supported: "
                                          "there is no version of it")));
  g.nodes[0] = onnx_node("Gelu", {"x"}, {"m"});
  EXPECT_THAT([&] { load(g, 19)(kRow); }, ThrowsMessage<FormatError>(HasSubstr("there is versions from 20")));
  g.nodes[0] = onnx_node("Gelu", {"x"}, {"m"}, {test::onnx_text_attribute("approximate", "sine")});
  EXPECT_THAT([&] { load(g)(kRow); },
              ThrowsMessage<FormatError>(HasSubstr("attribute approximate is \"sine\", expected one of none, tanh")));
  g.nodes[0] = onnx_node("Concat", {"x"}, {"m"});
  EXPECT_THAT([&] { load(g)(kRow); }, ThrowsMessage<FormatError>(HasSubstr("attribute axis is missing")));
  g.nodes[0] = onnx_node("Mul", {"nowhere", "w"}, {"m"});
  EXPECT_THAT([&] { load(g)(kRow); },
              ThrowsMessage<FormatError>(HasSubstr("takes \"nowhere\", which nothing before it gives")));
  g.nodes[0] = onnx_node("MatMul", {"x", "x"}, {"m"});
  EXPECT_THAT([&] { load(g)(Tensor::ones(2, 3)); },
              ThrowsMessage<ShapeError>(HasSubstr("[onnx] node \"the_MatMul\" (MatMul): ")));
}

TEST(Onnx, NodesThatNothingNeedsDoNotRun) {
  OnnxGraph g = affine();
  g.nodes.push_back(onnx_node("Fry", {"x"}, {"unused"}));
  EXPECT_THAT(run(load(g), kRow), ElementsAre(2, 22, 303));
}

TEST(Onnx, ShapesAreKnownOnTheHost) {
  // y = reshape(x, [shape(x)[0] * 3])
  OnnxGraph g{{onnx_node("Shape", {"x"}, {"s"}), onnx_node("Gather", {"s", "zero"}, {"n"}),
               onnx_node("Mul", {"n", "three"}, {"k"}), onnx_node("Reshape", {"x", "k"}, {"y"})},
              {onnx_tensor<int64_t>("zero", 7, {1}, {0}), onnx_tensor<int64_t>("three", 7, {1}, {3})},
              {onnx_value("x", {-1, 3})},
              {onnx_value("y", {-2})}};
  const Model m = load(g);
  EXPECT_EQ(m(Tensor::ones(4, 3)).shape(), Shape{12});
  auto jit = tg::jit([&](const Tensor& x) { return m(x) * 2; });
  for (int i = 0; i < 4; i++)
    EXPECT_EQ(jit(Tensor::full({2, 3}, i).contiguous().realize()).to_vector<float>(),
              std::vector<float>(6, 2.F * static_cast<float>(i)));
}

/// y = x + 1 if c, else x flattened to half its elements: branches of two shapes.
OnnxGraph branching() {
  const OnnxGraph yes{{onnx_node("Add", {"x", "one"}, {"a"})}, {}, {}, {onnx_value("a", {4})}};
  const OnnxGraph no{{onnx_node("Slice", {"x", "from", "to"}, {"b"})}, {}, {}, {onnx_value("b", {2})}};
  return {{onnx_node("If", {"c"}, {"y"},
                     {onnx_attribute("then_branch", yes.build()), onnx_attribute("else_branch", no.build())})},
          {onnx_tensor<float>("one", 1, {}, {1}), onnx_tensor<int64_t>("from", 7, {1}, {2}),
           onnx_tensor<int64_t>("to", 7, {1}, {9})},
          {onnx_value("x", {4}), onnx_value("c", {}, 9)},
          {onnx_value("y", {-1})}};
}

TEST(Onnx, BranchesMayHaveOtherShapes) {
  const Model m = load(branching());
  const Tensor x({1.F, 2.F, 3.F, 4.F});
  const auto y = [&](bool c) {
    return m({{"x", x}, {"c", Tensor::full({}, c).contiguous()}}).at("y").to_vector<float>();
  };
  EXPECT_THAT(y(true), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(y(false), ElementsAre(3, 4));
}

TEST(Onnx, LoopsCarryValuesAndCollectOthers) {
  // carried = carried + x, three times; scans carried.
  const OnnxGraph body{{onnx_node("Add", {"v", "x"}, {"w"}), onnx_node("Identity", {"go"}, {"on"}),
                        onnx_node("Identity", {"w"}, {"seen"})},
                       {},
                       {onnx_value("i", {}, 7), onnx_value("go", {}, 9), onnx_value("v", {1})},
                       {onnx_value("on", {}, 9), onnx_value("w", {1}), onnx_value("seen", {1})}};
  const OnnxGraph g{{onnx_node("Loop", {"n", "", "x"}, {"last", "all"}, {onnx_attribute("body", body.build())})},
                    {onnx_tensor<int64_t>("n", 7, {}, {3})},
                    {onnx_value("x", {1})},
                    {onnx_value("last", {1}), onnx_value("all", {3, 1})}};
  const auto out = load(g)(std::map<std::string, Tensor>{{"x", Tensor({5.F})}});
  EXPECT_THAT(out.at("last").to_vector<float>(), ElementsAre(20));
  EXPECT_THAT(out.at("all").to_vector<float>(), ElementsAre(10, 15, 20));
}

TEST(Onnx, EndlessLoopsAreRefused) {
  const OnnxGraph body{{onnx_node("Identity", {"go"}, {"on"})},
                       {},
                       {onnx_value("i", {}, 7), onnx_value("go", {}, 9)},
                       {onnx_value("on", {}, 9)}};
  const OnnxGraph g{{onnx_node("Loop", {"n", "yes", "x"}, {"y"}, {onnx_attribute("body", body.build())})},
                    {onnx_tensor<int64_t>("n", 7, {}, {INT64_MAX}), onnx_tensor<uint8_t>("yes", 9, {}, {1})},
                    {onnx_value("x", {1})},
                    {onnx_value("y", {1})}};
  EXPECT_THROW(load(g)(Tensor({1.F})), FormatError);
}

TEST(Onnx, FunctionsOfTheFileAreCalled) {
  // scaled(x) { k = Constant(value_float = @factor); y = x * k }, with a default of the attribute.
  PbMessage value = PbMessage().text(1, "value_float").integer(20, 1).text(21, "factor");
  const auto call = [&](const std::vector<PbMessage>& attributes) {
    PbMessage f =
        PbMessage().text(1, "Scaled").text(4, "a").text(5, "b").message(7, onnx_node("Constant", {}, {"k"}, {value}));
    f.message(7, onnx_node("Mul", {"a", "k"}, {"b"})).message(9, PbMessage().integer(2, 20)).text(10, "own");
    f.message(11, PbMessage().text(1, "factor").real(2, 2).integer(20, 1));
    const OnnxGraph g{
        {onnx_node("Scaled", {"x"}, {"y"}, attributes, "own")}, {}, {onnx_value("x", {1})}, {onnx_value("y", {1})}};
    return run(Model::from_bytes(bytes_of(onnx_model(g.build()).message(25, f))), Tensor({5.F}));
  };
  EXPECT_THAT(call({}), ElementsAre(10));
  EXPECT_THAT(call({PbMessage().text(1, "factor").real(2, 7).integer(20, 1)}), ElementsAre(35));
}

TEST(Onnx, FunctionsThatCallThemselvesAreRefused) {
  PbMessage f = PbMessage()
                    .text(1, "F")
                    .text(4, "a")
                    .text(5, "b")
                    .message(7, onnx_node("F", {"a"}, {"b"}, {}, "own"))
                    .text(10, "own");
  const OnnxGraph g{{onnx_node("F", {"x"}, {"y"}, {}, "own")}, {}, {onnx_value("x", {1})}, {onnx_value("y", {1})}};
  const Model m = Model::from_bytes(bytes_of(onnx_model(g.build()).message(25, f)));
  EXPECT_THAT([&] { m(Tensor({1.F})); },
              ThrowsMessage<FormatError>(HasSubstr("calls functions inside of more than 64 others")));
}

TEST(Onnx, GradientsReachParametersOfATrainableModel) {
  const Model m = load(affine(), 20, {.trainable = true});
  const nn::StateDict parameters = m.parameters();
  ASSERT_EQ(parameters.size(), 1u);
  EXPECT_EQ(parameters[0].first, "w");
  const Tensor w = parameters[0].second, g = m(kRow).sum().gradient({w})[0];
  EXPECT_THAT(g.to_vector<float>(), ElementsAre(2, 11, 101));
}

TEST(Onnx, FloatsBecomeHalf) {
  const Model m = load(affine(), 20, {.float_type = dtypes::float16});
  EXPECT_EQ(m(kRow).dtype(), dtypes::float16);
  EXPECT_THAT(run(m, kRow), ElementsAre(2, 22, 303));
}

TEST(Onnx, ThreadsMayCallAModelAtOnce) {
  const Model m = load(affine());
  std::vector<std::vector<float>> got(4);
  std::vector<std::thread> threads;
  for (auto& out : got) threads.emplace_back([&] { out = run(m, kRow); });
  for (std::thread& t : threads) t.join();
  for (const auto& out : got) EXPECT_THAT(out, ElementsAre(2, 22, 303));
}

TEST(Onnx, DataOutsideOfTheFileStayInTheFolder) {
  const testing::TempDir dir;
  std::filesystem::create_directories(dir / "model");
  const std::vector<float> w{1, 2, 3};
  for (const char* name : {"model/w.bin", "secret.bin"})
    std::ofstream(dir / name, std::ios::binary).write(reinterpret_cast<const char*>(w.data()), 12);
  std::filesystem::create_symlink(dir / "secret.bin", dir / "model/link.bin");
  const auto entry = [](const char* key, const std::string& v) { return PbMessage().text(1, key).text(2, v); };
  const auto read = [&](const std::string& location, const std::string& offset, const std::string& length) {
    OnnxGraph g = affine();
    g.initializers[0] = PbMessage()
                            .integer(1, 3)
                            .integer(2, 1)
                            .text(8, "w")
                            .integer(14, 1)
                            .message(13, entry("location", location))
                            .message(13, entry("offset", offset))
                            .message(13, entry("length", length));
    std::ofstream(dir / "model/m.onnx", std::ios::binary) << onnx_model(g.build()).bytes();
    return run(Model::from_file(dir / "model/m.onnx"), kRow);
  };
  EXPECT_THAT(read("w.bin", "0", "12"), ElementsAre(2, 22, 303));
  for (const char* location : {"../secret.bin", "/etc/passwd", "link.bin", "a/../../secret.bin", ""})
    EXPECT_THAT([&] { read(location, "0", "12"); },
                ThrowsMessage<FormatError>(HasSubstr("expected one inside of the model's folder")))
        << location;
  EXPECT_THAT([&] { read("w.bin", "4", "12"); },
              ThrowsMessage<FormatError>(HasSubstr("tensor \"w\": external_data takes bytes 4 to 16 of the 12")));
  EXPECT_THAT([&] { read("w.bin", "0", "8"); },
              ThrowsMessage<FormatError>(HasSubstr("raw_data has 8 bytes, expected 3 elements of type FLOAT")));
  EXPECT_THAT([&] { read("w.bin", "-1", "8"); },
              ThrowsMessage<FormatError>(HasSubstr("external_data has offset \"-1\", expected a number")));
}

TEST(Onnx, DataOutsideOfTheFileAreFiles) {
  const testing::TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe.bin").c_str(), 0600), 0);
  OnnxGraph g = affine();
  g.initializers[0] = PbMessage().integer(1, 3).integer(2, 1).text(8, "w").integer(14, 1).message(
      13, PbMessage().text(1, "location").text(2, "pipe.bin"));
  std::ofstream(dir / "m.onnx", std::ios::binary) << onnx_model(g.build()).bytes();
  EXPECT_THAT([&] { Model::from_file(dir / "m.onnx"); }, ThrowsMessage<FormatError>(HasSubstr("not a regular file")));
}

TEST(Onnx, DataOutsideOfTheFileAreNotWidenedAgainAndAgain) {
  const testing::TempDir dir;
  std::ofstream(dir / "w.bin", std::ios::binary) << std::string(1 << 18, '\0');
  OnnxGraph g = affine();
  for (int i = 0; i < 100; i++)  // half a million elements of 4 bits, which become 2 MB each
    g.initializers.push_back(PbMessage()
                                 .integer(1, 1 << 19)
                                 .integer(2, 23)
                                 .text(8, "w" + std::to_string(i))
                                 .integer(14, 1)
                                 .message(13, PbMessage().text(1, "location").text(2, "w.bin")));
  std::ofstream(dir / "m.onnx", std::ios::binary) << onnx_model(g.build()).bytes();
  EXPECT_THAT([&] { Model::from_file(dir / "m.onnx"); },
              ThrowsMessage<FormatError>(HasSubstr("got more entries than a file of this size can have")));
}

TEST(Onnx, ReasonsOfRefusal) {
  const auto parse = [](const PbMessage& m) { return [m] { onnx::parse_model(bytes_of(m), "model.onnx"); }; };
  EXPECT_THAT(parse(PbMessage()), ThrowsMessage<FormatError>(HasSubstr("[onnx] model.onnx: got no graph")));
  EXPECT_THAT(parse(PbMessage().text(1, "x")),
              ThrowsMessage<FormatError>(HasSubstr("field 1 has wire type 2, expected 0")));
  OnnxGraph g = affine();
  g.initializers[0] = onnx_tensor<float>("w", 1, {4}, {1, 2, 3});
  EXPECT_THAT(parse(onnx_model(g.build())),
              ThrowsMessage<FormatError>(HasSubstr("tensor \"w\": raw_data has 12 bytes, expected 4 elements")));
  g.initializers[0] = onnx_tensor<float>("w", 99, {3}, {1, 2, 3});
  EXPECT_THAT(parse(onnx_model(g.build())), ThrowsMessage<FormatError>(HasSubstr("data_type is type 99")));
  g.initializers[0] = onnx_tensor<float>("w", 1, {INT64_MAX, 8}, {1});
  EXPECT_THAT(parse(onnx_model(g.build())),
              ThrowsMessage<FormatError>(HasSubstr("more elements than a tensor can have")));
  PbMessage inner = OnnxGraph{}.build();
  for (int i = 0; i < 40; i++)
    inner = OnnxGraph{{onnx_node("If", {"c"}, {"y"}, {onnx_attribute("then_branch", inner)})}, {}, {}, {}}.build();
  EXPECT_THAT(parse(onnx_model(inner)), ThrowsMessage<FormatError>(HasSubstr("more than 24 levels of graphs")));
  OnnxGraph twice = affine();
  twice.nodes.push_back(onnx_node("Relu", {"x"}, {"y"}));
  EXPECT_THAT([&] { load(twice); }, ThrowsMessage<FormatError>(HasSubstr(
                                        "gives \"y\", which another node, an input or an initializer gives already")));
}

TEST(Onnx, AttributesAndShapesOutsideOfTheirDomainAreRefused) {
  const auto call = [](const PbMessage& node, const std::vector<PbMessage>& constants) {
    const OnnxGraph g{{node}, constants, {onnx_value("x", {2, 2})}, {onnx_value("y", {})}};
    return [m = load(g)] { m(Tensor::ones(2, 2)); };
  };
  const PbMessage blocks = onnx_tensor<int64_t>("b", 7, {1}, {0}), image = onnx_tensor<int64_t>("i", 7, {1}, {4});
  EXPECT_THAT(call(onnx_node("Col2Im", {"x", "i", "b"}, {"y"}), {image, blocks}),
              ThrowsMessage<FormatError>(HasSubstr("strides and dilations must be 1 or more")));
  const PbMessage index = onnx_tensor<int64_t>("n", 7, {1, 3}, {0, 0, 0}),
                  update = onnx_tensor<float>("u", 1, {1}, {1});
  EXPECT_THAT(call(onnx_node("ScatterND", {"x", "n", "u"}, {"y"}), {index, update}),
              ThrowsMessage<ShapeError>(HasSubstr("got axes 0 to 3 of shape (2, 2)")));
  EXPECT_THAT(call(onnx_node("Resize", {"x", "", "s"}, {"y"}), {onnx_tensor<float>("s", 1, {2}, {1e9F, 1})}),
              ThrowsMessage<FormatError>(HasSubstr("axis 0 of 2 elements gets")));
  EXPECT_THAT(call(onnx_node("DepthToSpace", {"x"}, {"y"}, {onnx_attribute("blocksize", int64_t{0})}), {}),
              ThrowsMessage<FormatError>(HasSubstr("for blocksize 0")));
}

/// A value whose type is a map from texts to floats, of which `sequence` makes a sequence.
PbMessage map_value(const char* name, bool sequence) {
  const PbMessage number = PbMessage().message(1, PbMessage().integer(1, 1));
  PbMessage type = PbMessage().message(5, PbMessage().integer(1, 8).message(2, number));
  if (sequence) type = PbMessage().message(4, PbMessage().message(1, type));
  return PbMessage().text(1, name).message(2, type);
}

TEST(Onnx, MapsAreValues) {
  const auto words = [](const char* name) {
    return PbMessage().text(1, name).text(9, "a").text(9, "b").integer(20, 8);
  };
  const char* ml = "ai.onnx.ml";
  const Model zip = load({{onnx_node("ZipMap", {"x"}, {"m"}, {words("classlabels_strings")}, ml)},
                          {},
                          {onnx_value("x", {-1, 2})},
                          {map_value("m", true)}});
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, Shape{2, 2});
  const onnx::Value rows = zip.run({{"x", x}}).at(0).second;
  ASSERT_TRUE(rows.sequence());
  ASSERT_EQ(rows.sequence()->items.size(), 2u);
  const onnx::ValueMap* second = rows.sequence()->items[1].map();
  ASSERT_TRUE(second);
  EXPECT_EQ(std::get<double>(second->items.at("b")), 4);
  EXPECT_THAT([&] { zip({{"x", x}}); }, ThrowsMessage<ValueError>(HasSubstr("output \"m\" is a sequence")));

  const Model back = load({{onnx_node("DictVectorizer", {"m"}, {"y"}, {words("string_vocabulary")}, ml)},
                           {},
                           {map_value("m", false)},
                           {onnx_value("y", {1, 2})}});
  const onnx::ValueMap one{{{std::string("b"), int64_t{7}}}, onnx::ElemType::kInt64};
  EXPECT_THAT(back.run({{"m", one}}).at(0).second.as_tensor().to_vector<float>(), ElementsAre(0, 7));
  EXPECT_THAT([&] { back.run({{"m", x}}); }, ThrowsMessage<ValueError>(HasSubstr("expected a map")));
}

TEST(Onnx, OperatorsOnOtherKindsRefuseMaps) {
  for (const char* op :
       {"Neg", "Reshape", "Transpose", "Shape", "Size", "Cast", "Concat", "Squeeze", "Gather", "If", "Identity",
        "SequenceAt", "Where", "Expand", "ConcatFromSequence", "ConstantOfShape", "Loop"}) {
    const Model m = load({{onnx_node(op, {"m", "m"}, {"y"})}, {}, {map_value("m", false)}, {onnx_value("y", {1})}});
    const onnx::ValueMap one{{{std::string("b"), 1.0}}};
    if (std::string_view(op) == "Identity") EXPECT_TRUE(m.run({{"m", one}}).at(0).second.map());
    else EXPECT_THROW(m.run({{"m", one}}), Error) << op;
  }
}

TEST(Onnx, EveryOperatorHasOneRowForAVersion) {
  const std::vector<onnx::OperatorRow> rows = onnx::all_operators();
  EXPECT_GT(rows.size(), 200u);
  for (size_t i = 1; i < rows.size(); i++)
    EXPECT_FALSE(rows[i].name == rows[i - 1].name && rows[i].domain == rows[i - 1].domain &&
                 rows[i].since == rows[i - 1].since)
        << rows[i].name;
}

}  // namespace
}  // namespace tg
