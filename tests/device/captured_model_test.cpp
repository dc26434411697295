/// \file Captured ONNX models: one capture for every size within a range.
#include "tinygrad/onnx/captured_model.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "helpers/error_text.h"
#include "helpers/onnx_bytes.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tensor/jit/jit.h"

using namespace tg;
using namespace test;

namespace {

using Floats = std::vector<float>;
using ::testing::HasSubstr;

onnx::Model model_of(const OnnxGraph& g) { return onnx::Model::from_bytes(bytes_of(onnx_model(g.build()))); }

/// y = softmax(x w) over (rows, 4), and the sizes of x.
onnx::Model rows_model() {
  OnnxGraph g;
  Floats w;
  for (int i = 0; i < 12; i++) w.push_back(static_cast<float>(i % 5) / 4.f - 0.5f);
  g.nodes = {onnx_node("MatMul", {"x", "w"}, {"m"}), onnx_node("Softmax", {"m"}, {"y"}),
             onnx_node("Shape", {"x"}, {"s"})};
  g.initializers = {onnx_tensor<float>("w", 1, {4, 3}, w)};
  g.inputs = {onnx_value("x", {-1, 4})};
  g.outputs = {onnx_value("y", {-1, 3}), onnx_value("s", {2}, 7)};
  return model_of(g);
}

Tensor some_rows(int64_t n) { return (Tensor::arange(n * 4).to_float().reshape(n, 4) * 0.37).sin().realize(); }

void expect_near(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.shape(), want.shape());
  EXPECT_THAT(got.to_vector<float>(), ::testing::Pointwise(::testing::FloatNear(1e-5f), want.to_vector<float>()));
}

TEST(CapturedModel, OneCaptureServesEverySizeOfTheRange) {
  const onnx::Model model = rows_model();
  onnx::CapturedModel captured(model, {{"n1", {1, 9}}});
  std::vector<std::pair<int64_t, Tensor>> held;
  for (const int64_t n : {3, 5, 1, 9, 4, 9, 2}) {
    const auto out = captured({{"x", some_rows(n)}});
    held.emplace_back(n, out.at("y"));
    EXPECT_EQ(out.at("s").to_vector<int64_t>(), (std::vector<int64_t>{n, 4}));
  }
  for (const auto& [n, y] : held) expect_near(y, model({{"x", some_rows(n)}}).at("y"));
}

TEST(CapturedModel, OtherSizesCompileNothing) {
  onnx::CapturedModel captured(rows_model(), {{"n1", {1, 9}}});
  std::map<int64_t, Tensor> inputs;
  for (int64_t n = 1; n <= 9; n++) inputs.emplace(n, some_rows(n));
  for (int i = 0; i < 3; i++) captured({{"x", inputs.at(3)}});
  const int64_t before = GlobalCounters::compiled;
  for (const auto& [n, x] : inputs) captured({{"x", x}});
  EXPECT_EQ(GlobalCounters::compiled, before);
}

TEST(CapturedModel, SeveralVariablesAndViews) {
  // Attention without scales: (batch, length, 4) by itself, then the mean over the length.
  OnnxGraph g;
  const PbMessage order = onnx_ints_attribute("perm", {0, 2, 1});
  g.nodes = {onnx_node("Transpose", {"x"}, {"t"}, {order}), onnx_node("MatMul", {"x", "t"}, {"scores"}),
             onnx_node("Softmax", {"scores"}, {"weights"}), onnx_node("MatMul", {"weights", "x"}, {"mixed"}),
             onnx_node("Add", {"mixed", "x"}, {"sum"}),     onnx_node("ReduceMean", {"sum", "axes"}, {"y"})};
  g.initializers = {onnx_tensor<int64_t>("axes", 7, {1}, {1})};
  g.inputs = {onnx_value("x", {-1, -2, 4})};
  g.outputs = {onnx_value("y", {-1, 1, 4})};
  const onnx::Model model = model_of(g);
  onnx::CapturedModel captured(model, {{"n1", {1, 4}}, {"n2", {1, 16}}});
  for (const auto& [b, n] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 3}, {2, 16}, {4, 1}, {3, 7}, {1, 16}, {4, 16}}) {
    const Tensor x = some_rows(b * n).reshape(b, n, 4), flipped = x.flip(1).permute(0, 1, 2);
    expect_near(captured(x), model(x));
    expect_near(captured(flipped), model(flipped));  // no storage of its own
  }
}

TEST(CapturedModel, SizesWithoutANameAreThoseOfTheirPlace) {
  // y = x + z of one row: sizes of both are left open.
  OnnxGraph g;
  const auto open = [](const char* name) {  // a size that says nothing
    const PbMessage shape = PbMessage().message(1, PbMessage());
    return PbMessage().text(1, name).message(2, PbMessage().message(1, PbMessage().integer(1, 1).message(2, shape)));
  };
  g.nodes = {onnx_node("Add", {"x", "z"}, {"y"})};
  g.inputs = {open("x"), open("z")};
  g.outputs = {open("y")};
  onnx::CapturedModel captured(model_of(g), {{"x.0=z.0", {1, 8}}});
  for (const int64_t n : {2, 7, 1, 8, 3}) {
    const Tensor x = some_rows(n).flatten().slice(0, 0, n).contiguous().realize();
    EXPECT_EQ(captured({{"x", x}, {"z", x * 2}}).at("y").to_vector<float>(), (x + x * 2).to_vector<float>());
  }
  EXPECT_EQ(error_text<ShapeError>([&] { captured({{"x", Tensor::ones(2)}, {"z", Tensor::ones(3)}}); }),
            "[onnx] got shape (3,) for input z, expected size 2 of axis 0, as x.0=z.0 is elsewhere");
}

TEST(CapturedModel, WindowsAndPaddingOverSizesOfARange) {
  // Convolution, both poolings, and padding by reflection over (batch, 2, 6, width).
  OnnxGraph g;
  Floats w;
  for (int i = 0; i < 54; i++) w.push_back(static_cast<float>(i % 7) / 7.f - 0.4f);
  g.nodes = {onnx_node("Conv", {"x", "w"}, {"c"}, {onnx_ints_attribute("pads", {1, 1, 1, 1})}),
             onnx_node("MaxPool", {"c"}, {"m"},
                       {onnx_ints_attribute("kernel_shape", {2, 2}), onnx_ints_attribute("strides", {2, 2})}),
             onnx_node("AveragePool", {"m"}, {"a"},
                       {onnx_ints_attribute("kernel_shape", {3, 3}), onnx_ints_attribute("pads", {1, 1, 1, 1}),
                        onnx_attribute("count_include_pad", 0)}),
             onnx_node("Pad", {"a", "amounts"}, {"p"}, {onnx_text_attribute("mode", "reflect")}),
             onnx_node("ReduceMax", {"p", "axes"}, {"y"})};
  g.initializers = {onnx_tensor<float>("w", 1, {3, 2, 3, 3}, w),
                    onnx_tensor<int64_t>("amounts", 7, {8}, {0, 0, 1, 0, 0, 0, 1, 0}),
                    onnx_tensor<int64_t>("axes", 7, {1}, {1})};
  g.inputs = {onnx_value("x", {-1, 2, 6, -2})};
  g.outputs = {onnx_value("y", {-1, 1, 5, -3})};
  const onnx::Model model = model_of(g);
  onnx::CapturedModel captured(model, {{"n1", {1, 4}}, {"n2", {2, 20}}});
  for (const auto& [b, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 6}, {4, 20}, {2, 2}, {3, 7}, {1, 13}}) {
    const Tensor x = (Tensor::arange(b * 12 * n).to_float() * 0.37).sin().reshape(b, 2, 6, n).realize();
    expect_near(captured(x), model(x));
  }
}

TEST(CapturedModel, OtherShapesAndTypesAreCapturedByThemselves) {
  OnnxGraph g;
  g.nodes = {onnx_node("Add", {"x", "x"}, {"y"})};
  g.inputs = {onnx_value("x", {-1, -2})};
  g.outputs = {onnx_value("y", {-1, -2})};
  onnx::CapturedModel captured(model_of(g), {{"n1", {1, 9}}});
  for (int i = 0; i < 3; i++)
    for (int64_t columns = 1; columns <= 12; columns++)  // more than there are captures
      for (const int64_t rows : {2, 5}) {
        const Tensor x = Tensor::arange(rows * columns).to_float().reshape(rows, columns).realize();
        EXPECT_EQ(captured(x).to_vector<float>(), (x * 2).to_vector<float>());
      }
  EXPECT_EQ(captured(Tensor({{1, 2}})).to_vector<float>(), (Floats{2, 4}));  // integers: converted
}

TEST(CapturedModel, ResultsThatAreInputsStay) {
  OnnxGraph g;
  g.nodes = {onnx_node("Identity", {"x"}, {"y"}), onnx_node("Neg", {"x"}, {"z"})};
  g.inputs = {onnx_value("x", {-1})};
  g.outputs = {onnx_value("y", {-1}), onnx_value("z", {-1})};
  onnx::CapturedModel captured(model_of(g), {{"n1", {1, 4}}});
  std::vector<std::map<std::string, Tensor>> held;
  for (int i = 0; i < 5; i++) held.push_back(captured({{"x", Tensor::full({i % 4 + 1}, i).contiguous().realize()}}));
  for (int i = 0; i < 5; i++) {
    const Floats want(static_cast<size_t>(i % 4 + 1), static_cast<float>(i));
    EXPECT_EQ(held[static_cast<size_t>(i)].at("y").to_vector<float>(), want);
    EXPECT_EQ((-held[static_cast<size_t>(i)].at("z")).to_vector<float>(), want);
  }
}

TEST(CapturedModel, ThreadsShareOne) {
  const onnx::Model model = rows_model();
  onnx::CapturedModel captured(model, {{"n1", {1, 9}}});
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int64_t k = 0; k < 4; k++)
    threads.emplace_back([&, k] {
      for (int64_t i = 0; i < 12; i++) {
        const int64_t n = (k * 5 + i) % 9 + 1;
        const Floats got = captured({{"x", some_rows(n)}}).at("y").to_vector<float>();
        const Floats want = model({{"x", some_rows(n)}}).at("y").to_vector<float>();
        bool same = got.size() == want.size();
        for (size_t j = 0; same && j < got.size(); j++) same = std::abs(got[j] - want[j]) < 1e-5f;
        wrong += !same;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CapturedModel, SizesThatDecide) {
  // y = x * 2 with more than 3 rows, else x * 10: by a maximum that the host does not know of a symbolic size.
  OnnxGraph g;
  g.nodes = {onnx_node("Shape", {"x"}, {"n"}),
             onnx_node("Max", {"n", "three"}, {"m"}),
             onnx_node("ConstantOfShape", {"m"}, {"zeros"}),
             onnx_node("ReduceSum", {"x"}, {"sum"}),
             onnx_node("Size", {"zeros"}, {"count"}),
             onnx_node("Cast", {"count"}, {"c"}, {onnx_attribute("to", 1)}),
             onnx_node("Add", {"sum", "c"}, {"y"})};
  g.initializers = {onnx_tensor<int64_t>("three", 7, {1}, {3})};
  g.inputs = {onnx_value("x", {-1})};
  g.outputs = {onnx_value("y", {-2})};
  onnx::CapturedModel captured(model_of(g), {{"n1", {1, 8}}});
  for (const int64_t n : {2, 2, 2, 5, 5, 8, 1, 4, 5})
    EXPECT_EQ(captured(Tensor::ones(n).contiguous().realize()).to_vector<float>()[0],
              static_cast<float>(n + std::max<int64_t>(n, 3)))
        << n;
}

TEST(CapturedModel, InsideOfACapturedFunction) {
  const onnx::Model model = rows_model();
  onnx::CapturedModel captured(model, {{"n1", {1, 9}}});
  auto f = jit([&](const Tensor& x) { return captured({{"x", x}}).at("y") * 2; });
  for (int i = 0; i < 5; i++) {
    const Tensor x = (some_rows(3) + i).realize();
    expect_near(f(x), model({{"x", x}}).at("y") * 2);
  }
}

TEST(CapturedModel, OneTensorForTwoInputs) {
  OnnxGraph g;
  g.nodes = {onnx_node("Add", {"x", "z"}, {"y"})};
  g.inputs = {onnx_value("x", {2}), onnx_value("z", {2})};
  g.outputs = {onnx_value("y", {2})};
  onnx::CapturedModel captured(model_of(g));
  for (int i = 0; i < 4; i++) {
    const Tensor x = Tensor::full({2}, i).contiguous().realize();
    EXPECT_EQ(captured({{"x", x}, {"z", x}}).at("y").to_vector<float>(), Floats(2, 2.f * static_cast<float>(i)));
  }
}

TEST(CapturedModel, AnErrorLeavesTheCaptures) {
  OnnxGraph g;
  g.nodes = {onnx_node("Reshape", {"x", "to"}, {"y"})};
  g.inputs = {onnx_value("x", {12}), onnx_value("to", {2}, 7)};
  g.outputs = {onnx_value("y", {-1, -2})};
  onnx::CapturedModel captured(model_of(g));
  const Tensor x = Tensor::arange(12).to_float().contiguous().realize();
  const auto call = [&](int64_t a, int64_t b) {
    return captured({{"x", x}, {"to", Tensor(std::vector<int64_t>{a, b}).contiguous().realize()}}).at("y").shape();
  };
  for (int round = 0; round < 2; round++)
    for (const auto& [a, b] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 12}, {2, 6}, {3, 4}, {4, 3}, {6, 2}, {12, 1}, {-1, 2}, {-1, 3}, {-1, 4}})
      for (int i = 0; i < 2; i++) EXPECT_EQ(call(a, b).numel(), 12);
  EXPECT_THROW(call(11, 11), ShapeError);
  for (int i = 0; i < 3; i++) EXPECT_EQ(call(1, 12), (Shape{1, 12}));
}

TEST(CapturedModel, Errors) {
  using Ranges = std::map<std::string, onnx::SizeRange>;
  const auto made = [](Ranges r) { return onnx::CapturedModel(rows_model(), std::move(r)); };
  EXPECT_EQ(error_text<ValueError>([&] { made({{"n7", {1, 2}}}); }),
            "[onnx] got a range of \"n7\", which no input has");
  EXPECT_EQ(error_text<ValueError>([&] { made({{"n1", {3, 2}}}); }),
            "[onnx] got sizes of n1 from 3 to 2, expected at least 1 and in order");
  EXPECT_EQ(error_text<ShapeError>([&] { made({{"n1", {2, 4}}})({{"x", some_rows(5)}}); }),
            "[onnx] got shape (5, 4) for input x, expected a size of axis 0 from 2 to 4");
  EXPECT_THAT(error_text<ShapeError>([&] { made({{"n1", {2, 4}}})({{"x", Tensor::ones(3)}}); }),
              HasSubstr("expected 2 axes"));
  EXPECT_THAT(error_text<ValueError>([&] { made({})(std::map<std::string, Tensor>()); }),
              HasSubstr("got no input \"x\""));
  EXPECT_THAT(error_text<ValueError>([&] { made({})({{"q", some_rows(1)}}); }), HasSubstr("got input \"q\""));
  EXPECT_THAT(error_text<ValueError>([&] { made({})(some_rows(2)); }), HasSubstr("give tensors by name"));
}

}  // namespace
