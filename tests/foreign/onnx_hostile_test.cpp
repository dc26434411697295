/// \file ONNX models whose nodes lie about shapes, types and lists: each is refused, with its reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "helpers/onnx_bytes.h"
#include "tinygrad/base/error.h"
#include "tinygrad/onnx/model.h"

namespace tg {
namespace {

using onnx::Model;
using onnx::StringArray;
using onnx::Value;
using test::bytes_of, test::onnx_attribute, test::onnx_model, test::onnx_node, test::onnx_tensor, test::onnx_value;
using test::onnx_ints_attribute, test::OnnxGraph, test::PbMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kFloat = 1, kInt64 = 7, kString = 8;

PbMessage texts_attribute(const char* name, const std::vector<std::string>& v) {
  PbMessage a = PbMessage().text(1, name).integer(20, 8);
  for (const std::string& s : v) a.text(9, s);
  return a;
}
PbMessage tensor_attribute(const char* name, const PbMessage& t) {
  return PbMessage().text(1, name).message(5, t).integer(20, 4);
}
PbMessage int64s(const char* name, const std::vector<int64_t>& v) {
  return onnx_tensor<int64_t>(name, kInt64, {static_cast<int64_t>(v.size())}, v);
}
PbMessage texts(const char* name, const std::vector<std::string>& v) {
  PbMessage t = PbMessage().integer(1, static_cast<int64_t>(v.size())).integer(2, kString).text(8, name);
  for (const std::string& s : v) t.text(6, s);
  return t;
}

/// A model with operators of ai.onnx.ml as well.
PbMessage file_of(const OnnxGraph& g) {
  return PbMessage()
      .integer(1, 9)
      .message(7, g.build())
      .message(8, PbMessage().integer(2, 20))
      .message(8, PbMessage().text(1, "ai.onnx.ml").integer(2, 4));
}
/// Runs nodes that give y, with x as their input.
Value run(const std::vector<PbMessage>& nodes, const std::vector<PbMessage>& constants, const Value& x) {
  const int type = static_cast<int>(x.elem());
  const OnnxGraph g{nodes, constants, {onnx_value("x", {-1}, type)}, {onnx_value("y", {})}};
  return Model::from_bytes(bytes_of(file_of(g))).run({{"x", x}}).at(0).second;
}
auto running(std::vector<PbMessage> nodes, std::vector<PbMessage> constants, Value x = Tensor::ones(3)) {
  return [=] { run(nodes, constants, x); };
}
Value texts_value(const std::vector<std::string>& v) { return StringArray::of({static_cast<int64_t>(v.size())}, v); }

TEST(OnnxHostile, SizesInBitsDoNotWrap) {
  for (const int type : {23, 24}) {  // FLOAT4E2M1 and FLOAT8E8M0, which are stored wider
    OnnxGraph g{{onnx_node("Identity", {"x"}, {"y"})},
                {PbMessage().integer(1, int64_t{1} << 62).integer(2, type).text(8, "w")},
                {onnx_value("x", {1})},
                {onnx_value("y", {1})}};
    EXPECT_THAT([&] { Model::from_bytes(bytes_of(onnx_model(g.build()))); },
                ThrowsMessage<FormatError>(HasSubstr("dims have more elements than a tensor can have")));
  }
}

TEST(OnnxHostile, ElementsFillTheShape) {
  const PbMessage reshape = onnx_node("Reshape", {"w", "s"}, {"r"});
  const PbMessage to = int64s("s", {200});
  for (const PbMessage& next : {onnx_node("Add", {"r", "r"}, {"y"}), onnx_node("Transpose", {"r"}, {"y"}),
                                onnx_node("Slice", {"r", "s", "s"}, {"y"})})
    EXPECT_THAT(running({reshape, next}, {int64s("w", {7}), to}),
                ThrowsMessage<ShapeError>(HasSubstr("got 1 elements of type int64 for shape (200,), expected 200")));
  EXPECT_THAT(running({reshape, onnx_node("StringConcat", {"r", "r"}, {"y"})}, {texts("w", {"abc"}), to}),
              ThrowsMessage<ShapeError>(HasSubstr("got 1 texts for shape (200,), expected 200")));
  EXPECT_THAT(running({onnx_node("Reshape", {"w", "s"}, {"y"})}, {int64s("w", {1, 2}), int64s("s", {-2, -1})}),
              ThrowsMessage<ShapeError>(HasSubstr("Reshape")));
  EXPECT_THAT(running({onnx_node("Expand", {"w", "s"}, {"y"})}, {int64s("w", {7}), int64s("s", {-5, -5})}),
              ThrowsMessage<ShapeError>(HasSubstr("Expand")));
  const PbMessage one = tensor_attribute("value", int64s("v", {1}));
  EXPECT_THAT(running({onnx_node("ConstantOfShape", {"s"}, {"y"}, {one})}, {int64s("s", {-2, -3})}),
              ThrowsMessage<ShapeError>(HasSubstr("ConstantOfShape")));
}

TEST(OnnxHostile, EmptyArraysWithLargeAxesStayTensors) {
  const PbMessage reshape = onnx_node("Reshape", {"w", "s"}, {"r"}, {onnx_attribute("allowzero", int64_t{1})});
  const std::vector<PbMessage> constants{int64s("w", {}), int64s("s", {0, int64_t{1} << 40}), int64s("b", {0}),
                                         int64s("e", {int64_t{1} << 39}), int64s("a", {1})};
  const Value out = run({reshape, onnx_node("Slice", {"r", "b", "e", "a"}, {"y"})}, constants, Tensor::ones(3));
  EXPECT_EQ(out.shape(), (Shape{0, int64_t{1} << 39}));
}

TEST(OnnxHostile, IndicesAreIntegers) {
  const PbMessage index = onnx_tensor<float>("i", kFloat, {1}, {0});
  for (const char* from : {"x", "w", "t"})
    EXPECT_THAT(running({onnx_node("Gather", {from, "i"}, {"y"})}, {index, int64s("w", {7, 8}), texts("t", {"a"})}),
                ThrowsMessage<FormatError>(HasSubstr("input 1 has elements of type FLOAT, expected integers")));
}

TEST(OnnxHostile, BoundsOfGramsLieInThePool) {
  const auto grams = [](const std::vector<int64_t>& counts) {
    const PbMessage node =
        onnx_node("TfIdfVectorizer", {"x"}, {"y"},
                  {test::onnx_text_attribute("mode", "TF"), onnx_attribute("min_gram_length", int64_t{1}),
                   onnx_attribute("max_gram_length", int64_t{1}), onnx_attribute("max_skip_count", int64_t{0}),
                   onnx_ints_attribute("ngram_counts", counts), onnx_ints_attribute("ngram_indexes", {0, 1, 2, 3}),
                   texts_attribute("pool_strings", {"a", "b", "c"})});
    return running({node}, {}, texts_value({"a", "b"}));
  };
  EXPECT_NO_THROW(grams({0})());
  std::vector<int64_t> wrapping(200, 0);
  wrapping.back() = -200;
  for (const std::vector<int64_t>& counts : {std::vector<int64_t>{-1}, {4}, {2, 1}, {0, 4}, wrapping})
    EXPECT_THAT(grams(counts), ThrowsMessage<FormatError>(HasSubstr("ngram_counts has the bounds")));
}

TEST(OnnxHostile, NumbersHaveNoTexts) {
  PbMessage values = PbMessage().integer(1, 5).integer(2, kFloat).text(6, "s");
  for (const float v : {1.F, 2.F, 3.F, 4.F, 5.F}) values.real(4, v);
  const PbMessage node =
      onnx_node("LabelEncoder", {"x"}, {"y"},
                {texts_attribute("keys_strings", {"a", "b", "c", "d", "e"}), tensor_attribute("values_tensor", values)},
                "ai.onnx.ml");
  EXPECT_THAT(running({node}, {}, texts_value({"e"})),
              ThrowsMessage<FormatError>(HasSubstr("has texts, but elements of type FLOAT")));
}

TEST(OnnxHostile, CategoriesAreIntegersOrTexts) {
  const PbMessage node =
      onnx_node("CategoryMapper", {"x"}, {"y"},
                {texts_attribute("cats_strings", {"a"}), onnx_ints_attribute("cats_int64s", {1})}, "ai.onnx.ml");
  EXPECT_THAT(running({node}, {}), ThrowsMessage<FormatError>(HasSubstr("expected integers or texts")));
}

TEST(OnnxHostile, SequencesHoldNoSequences) {
  const std::vector<PbMessage> nodes{onnx_node("SequenceConstruct", {"x"}, {"s"}),
                                     onnx_node("SequenceConstruct", {"s"}, {"t"}),
                                     onnx_node("SequenceLength", {"t"}, {"y"})};
  EXPECT_THAT(running(nodes, {}), ThrowsMessage<FormatError>(HasSubstr("got a sequence inside of a sequence")));
  EXPECT_THAT(running({onnx_node("SequenceEmpty", {}, {"s"}), onnx_node("SequenceInsert", {"s", "s"}, {"t"}),
                       onnx_node("SequenceLength", {"t"}, {"y"})},
                      {}),
              ThrowsMessage<FormatError>(HasSubstr("got a sequence inside of a sequence")));
}

TEST(OnnxHostile, TextsOfARunAreCounted) {
  std::vector<PbMessage> nodes;
  std::vector<std::string> names{"x"};
  for (int i = 1; i < 40; i++) names.push_back(i == 39 ? "y" : "s" + std::to_string(i));
  for (size_t i = 1; i < names.size(); i++)
    nodes.push_back(onnx_node("StringConcat", {names[i - 1].c_str(), names[i - 1].c_str()}, {names[i].c_str()}));
  EXPECT_THAT(running(nodes, {}, texts_value({"a"})),
              ThrowsMessage<FormatError>(HasSubstr("bytes on the host, expected")));
  std::vector<std::string> words(20001);
  for (int i = 0; i < 20000; i++) words[0] += "a ";
  EXPECT_THAT(running({onnx_node("StringSplit", {"x"}, {"y", "n"})}, {}, texts_value(words)),
              ThrowsMessage<FormatError>(HasSubstr("bytes on the host, expected")));
}

TEST(OnnxHostile, TablesOfARunAreCounted) {
  const PbMessage grams =
      onnx_node("TfIdfVectorizer", {"x"}, {"y"},
                {test::onnx_text_attribute("mode", "TF"), onnx_attribute("min_gram_length", int64_t{1}),
                 onnx_attribute("max_gram_length", int64_t{1}), onnx_attribute("max_skip_count", int64_t{0}),
                 onnx_ints_attribute("ngram_counts", {0}), onnx_ints_attribute("ngram_indexes", {(1 << 24) - 1}),
                 onnx_ints_attribute("pool_int64s", {1})});
  const OnnxGraph g{{grams}, {}, {onnx_value("x", {100, 1}, kInt64)}, {onnx_value("y", {})}};
  EXPECT_THAT([&] { Model::from_bytes(bytes_of(file_of(g))).run({{"x", Tensor::ones(100, 1).cast(dtypes::int64)}}); },
              ThrowsMessage<FormatError>(HasSubstr("bytes on the host, expected")));
  const std::vector<PbMessage> edges{int64s("b", {65535}), int64s("l", {131068}), int64s("r", {16000}),
                                     onnx_tensor<float>("f", kFloat, {}, {0}),
                                     onnx_tensor<float>("t", kFloat, {}, {8000})};
  EXPECT_THAT(running({onnx_node("MelWeightMatrix", {"b", "l", "r", "f", "t"}, {"y"})}, edges),
              ThrowsMessage<FormatError>(HasSubstr("bytes on the host, expected")));
  const PbMessage resize = onnx_node("Resize", {"x", "", "", "s"}, {"y"},
                                     {test::onnx_text_attribute("mode", "nearest"),
                                      test::onnx_text_attribute("keep_aspect_ratio_policy", "not_smaller")});
  const OnnxGraph r{{resize}, {int64s("s", {1 << 22, 1000})}, {onnx_value("x", {1, 1000})}, {onnx_value("y", {})}};
  EXPECT_THAT([&] { Model::from_bytes(bytes_of(file_of(r))).run({{"x", Tensor::ones(1, 1000)}}); },
              ThrowsMessage<FormatError>(HasSubstr("axis 1 of 1000 elements gets")));
}

TEST(OnnxHostile, IterationsWithoutNodesAreCounted) {
  const PbMessage carried = OnnxGraph{
      {},
      {},
      {onnx_value("i", {}, kInt64), onnx_value("c", {}, 9), onnx_value("u", {3})},
      {onnx_value("c", {}, 9),
       onnx_value("u", {3})}}.build();
  const PbMessage body = OnnxGraph{
      {onnx_node("Loop", {"n", "", "v"}, {"w"}, {onnx_attribute("body", carried)})},
      {},
      {onnx_value("j", {}, kInt64), onnx_value("d", {}, 9), onnx_value("v", {3})},
      {onnx_value("d", {}, 9),
       onnx_value("w", {3})}}.build();
  EXPECT_THAT(running({onnx_node("Loop", {"n", "", "x"}, {"y"}, {onnx_attribute("body", body)})},
                      {onnx_tensor<int64_t>("n", kInt64, {}, {16384})}),
              ThrowsMessage<FormatError>(HasSubstr("is node or iteration number 524289 of a run")));
}

TEST(OnnxHostile, BodiesGiveTheStatesOfAScan) {
  const PbMessage body = OnnxGraph{
      {onnx_node("Identity", {"a"}, {"o"})},
      {},
      {onnx_value("a", {}), onnx_value("b", {}), onnx_value("c", {})},
      {onnx_value("o", {})}}.build();
  EXPECT_THAT(running({onnx_node("Scan", {"x", "x", "x"}, {"y"},
                                 {onnx_attribute("body", body), onnx_attribute("num_scan_inputs", int64_t{1})})},
                      {}),
              ThrowsMessage<FormatError>(HasSubstr("the body gives 1 values, expected at least the 2 states")));
}

TEST(OnnxHostile, NodesDoNotReplaceInitializers) {
  EXPECT_THAT(
      running({onnx_node("Add", {"x", "x"}, {"a"}), onnx_node("Neg", {"a"}, {"y"})},
              {onnx_tensor<float>("a", kFloat, {3}, {1, 2, 3})}),
      ThrowsMessage<FormatError>(HasSubstr("gives \"a\", which another node, an input or an initializer gives")));
}

TEST(OnnxHostile, ConstantsOfTwoTypesAreNotJoined) {
  EXPECT_THAT(running({onnx_node("Concat", {"a", "b"}, {"y"}, {onnx_attribute("axis", int64_t{0})})},
                      {onnx_tensor<float>("a", kFloat, {2}, {1, 2}), int64s("b", {3, 4})}),
              ThrowsMessage<DTypeError>(HasSubstr("Concat")));
}

TEST(OnnxHostile, UniqueTellsLargeIntegersAndNanApart) {
  const PbMessage unique = onnx_node("Unique", {"x"}, {"y"});
  const int64_t large = int64_t{1} << 53;
  EXPECT_THAT(run({unique}, {}, Tensor::from(std::vector<int64_t>{large + 1, large})).as_tensor().to_vector<int64_t>(),
              ElementsAre(large, large + 1));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(run({unique}, {}, Tensor::from(std::vector<float>{nan, 2, -1, nan, -2})).as_tensor().to_vector<float>(),
              ElementsAre(-2, -1, 2, testing::IsNan()));
}

PbMessage label_encoder(const std::vector<int64_t>& keys, const std::vector<int64_t>& values) {
  return onnx_node("LabelEncoder", {"x"}, {"y"},
                   {onnx_ints_attribute("keys_int64s", keys), onnx_ints_attribute("values_int64s", values)},
                   "ai.onnx.ml");
}
std::vector<int64_t> labels(const PbMessage& encoder, const std::vector<int64_t>& x) {
  return run({encoder}, {}, Tensor::from(x)).as_tensor().to_vector<int64_t>();
}

TEST(OnnxHostile, LabelsAreExactAndTheFirstKeyCounts) {
  const int64_t large = int64_t{1} << 53, odd = (int64_t{1} << 60) + 1;
  EXPECT_THAT(labels(label_encoder({large, large + 1}, {10, 20}), {large, large + 1}), ElementsAre(10, 20));
  EXPECT_THAT(labels(label_encoder({1, 1}, {10, 20}), {1, 2}), ElementsAre(10, -1));
  EXPECT_THAT(labels(label_encoder({1}, {odd}), {1, 2}), ElementsAre(odd, -1));
  const PbMessage of_texts =
      onnx_node("LabelEncoder", {"x"}, {"y"},
                {texts_attribute("keys_strings", {"a", "b", "a"}), onnx_ints_attribute("values_int64s", {odd, 2, 3})},
                "ai.onnx.ml");
  EXPECT_THAT(run({of_texts}, {}, texts_value({"b", "a", "c"})).as_tensor().to_vector<int64_t>(),
              ElementsAre(2, odd, -1));
  EXPECT_THAT(running({of_texts}, {}), ThrowsMessage<FormatError>(HasSubstr("expected texts, as the keys are")));
}

TEST(OnnxHostile, NamesOfMessagesArePrintable) {
  const std::string bad = "\xff\x1b[7m";
  const OnnxGraph g{
      {onnx_node("Identity", {bad.c_str()}, {"y"})}, {}, {onnx_value(bad.c_str(), {3, 2})}, {onnx_value("y", {})}};
  const Model m = Model::from_bytes(bytes_of(file_of(g)));
  EXPECT_THAT([&] { m(Tensor::ones(3, 3)); }, ThrowsMessage<ShapeError>(HasSubstr("for input ??[7m, expected size 2")));
  EXPECT_EQ(onnx::printable("a\nb\xc2\x9b"
                            "c\xc3\xa4\x7f"),
            "a b?c\xc3\xa4?");
}

}  // namespace
}  // namespace tg
