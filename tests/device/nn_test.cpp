/// \file Layers and their state: values against PyTorch, initial values against tinygrad at the same seed, errors.
#include "tinygrad/nn/nn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "device/nn_helpers.h"
#include "device_facts.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::nn {
namespace {

#include "device/nn_reference.inc"

using test::expect_close;
using test::ramp;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Layers, Linear) {
  Linear layer(5, 3);
  layer.weight = ramp({3, 5}, 0.125, 0);
  layer.bias = ramp({3}, 0.5, 0);
  expect_close(layer(ramp({2, 4, 5, 5}, 0.25, 0.5)(Slice(), 0)), kLinear, 1e-6);
  EXPECT_FALSE(Linear(5, 3, false).bias.defined());
}

TEST(Layers, Conv2dWithStridePaddingDilationGroups) {
  Conv2d layer(4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  layer.weight = ramp({6, 2, 3, 2}, 0.125, 0);
  layer.bias = ramp({6}, 0.5, 0);
  expect_close(layer(ramp({2, 4, 5, 5}, 0.25, 0.5)), kConv, 1e-6);
}

TEST(Layers, ConvShapes) {
  EXPECT_EQ(Conv2d(2, 3, 5).weight.shape(), (Shape{3, 2, 5, 5}));
  EXPECT_EQ(Conv1d(2, 3, 5)(Tensor::zeros(1, 2, 9)).shape(), (Shape{1, 3, 5}));
  EXPECT_EQ(Conv2d(2, 3, {3, 4}, {.dilation = {2, 1}, .same = true})(Tensor::zeros(1, 2, 6, 7)).shape(),
            (Shape{1, 3, 6, 7}));
  EXPECT_EQ(Conv2d(2, 4, {2, 3, 1})(Tensor::zeros(1, 2, 4, 5, 6)).shape(), (Shape{1, 4, 3, 3, 6}));
}

TEST(Layers, BatchNormTrainsAndTracks) {
  BatchNorm layer(4);
  layer.weight = ramp({4}, 0.25, 1);
  layer.bias = ramp({4}, 0.5, 0);
  const Tensor x = ramp({2, 4, 5, 5}, 0.25, 0.5);
  {
    const Training mode;
    const Tensor y = layer(x);
    expect_close(y(Slice(), Slice(), 0), kBatchNormTrain, 1e-5);
    layer(x * 2);
  }
  expect_close(layer.running_mean, kRunningMean, 1e-6);
  expect_close(layer.running_var, kRunningVar, 1e-6);
  EXPECT_EQ(layer.num_batches_tracked.item<int>(), 2);
  expect_close(layer(x)(Slice(), Slice(), 0), kBatchNormEval, 1e-5);
  EXPECT_EQ(layer.num_batches_tracked.item<int>(), 2) << "evaluation tracks nothing";
}

TEST(Layers, BatchNormOfEmptyBatchesAndOfSingleValues) {
  const BatchNorm layer(4);
  const Training mode;
  EXPECT_EQ(layer(Tensor::zeros(0, 4, 5)).shape(), (Shape{0, 4, 5}));
  expect_close(layer.running_mean, std::vector<float>(4, 0.f), 0);
  expect_close(layer.running_var, std::vector<float>(4, 1.f), 0);
  EXPECT_EQ(layer.num_batches_tracked.item<int>(), 1);
  EXPECT_THROW(layer(Tensor::ones(1, 4)), ShapeError) << "no variance of one value";
  EXPECT_NO_THROW(BatchNorm(4, {.track_running_stats = false})(Tensor::ones(1, 4)));
}

TEST(Layers, RmsNormKeepsTheDigitsOfFloat64) {
  TG_NEEDS_TYPE(dtypes::float64);
  const Tensor x = Tensor({1.0, 2.0, 3.0}, {.dtype = dtypes::float64});
  const double rms = std::sqrt(14.0 / 3 + 1e-6);
  const std::vector<double> y = RMSNorm(3, {.affine = false})(x).to_vector<double>();
  for (int i = 0; i < 3; i++) EXPECT_NEAR(y[static_cast<size_t>(i)], (i + 1) / rms, 1e-14);
}

TEST(Layers, BatchNormWithoutStatisticsOrParameters) {
  const BatchNorm layer(4, {.affine = false, .track_running_stats = false});
  const Tensor y = layer(ramp({2, 4, 5, 5}, 0.25, 0.5));
  expect_close(y.mean({0, 2, 3}), std::vector<float>(4, 0.f), 1e-6);
  expect_close(y.var({.axis = {0, 2, 3}, .correction = 0}), std::vector<float>(4, 1.f), 1e-4);
  EXPECT_EQ(get_state_dict(layer).size(), 1u);
}

TEST(Layers, LayerNorm) {
  LayerNorm layer({5, 5});
  layer.weight = ramp({5, 5}, 0.25, 1);
  layer.bias = ramp({5, 5}, 0.5, 0);
  expect_close(layer(ramp({2, 4, 5, 5}, 0.25, 0.5))(Slice(), Slice(), 1), kLayerNorm, 1e-5);
}

TEST(Layers, EmbeddingAndItsGradient) {
  Embedding layer(5, 3);
  layer.weight = ramp({5, 3}, 1, 0).requires_grad_(true);
  const Tensor rows = Tensor(std::vector<int32_t>{4, 0, 4, 1}).reshape(2, 2);
  const Tensor y = layer(rows);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  const std::vector<float> table = layer.weight.to_vector<float>();
  std::vector<float> expected;
  for (int row : {4, 0, 4, 1}) expected.insert(expected.end(), table.begin() + row * 3, table.begin() + row * 3 + 3);
  EXPECT_EQ(y.to_vector<float>(), expected);
  y.sum().backward();
  EXPECT_EQ(layer.weight.grad().to_vector<float>(), (std::vector<float>{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 2, 2, 2}));
}

TEST(Layers, DropoutOnlyWhileTraining) {
  const Dropout layer(0.25);
  const Tensor x = Tensor::ones(4000);
  EXPECT_EQ(layer(x).sum().item<float>(), 4000);
  const Training mode;
  Tensor::manual_seed(3);
  const std::vector<float> y = layer(x).to_vector<float>();
  const auto kept = std::count_if(y.begin(), y.end(), [](float v) { return v != 0; });
  EXPECT_NEAR(static_cast<double>(kept), 3000, 150);
  for (float v : y) ASSERT_TRUE(v == 0 || std::abs(v - 4.f / 3) < 1e-6) << v;
}

TEST(Layers, TrainingModeIsScoped) {
  const bool before = Tensor::training();
  {
    const Training mode;
    EXPECT_TRUE(Tensor::training());
    const Training off(false);
    EXPECT_FALSE(Tensor::training());
  }
  EXPECT_EQ(Tensor::training(), before);
}

TEST(Layers, SameSeedSameWeightsAsTinygrad) {
  Tensor::manual_seed(42);
  const Linear linear(3, 2);
  const Conv2d conv(2, 2, {2, 3}, {.groups = 2});
  const Embedding embedding(3, 2);
  expect_close(linear.weight, kLinearWeight, 1e-7);
  expect_close(linear.bias, kLinearBias, 1e-7);
  expect_close(conv.weight, kConvWeight, 1e-7);
  expect_close(conv.bias, kConvBias, 1e-7);
  expect_close(embedding.weight, kEmbeddingWeight, 1e-7);
}

/// Returns integers whose values the host does not know: those of lists are checked at once.
Tensor computed(const Tensor& t) { return t.to_float().cast(t.dtype()); }

TEST(Layers, EmbeddingOutOfRange) {
  Embedding e(3, 2);
  e.weight = Tensor({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}}).realize();
  for (DType d : {dtypes::int8, dtypes::int32, dtypes::int64}) {
    Tensor y = e(computed(Tensor({0, -1, 2, 3, -3, 100})).cast(d));
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 2, 0, 0, 5, 6, 0, 0, 0, 0, 0, 0})) << d;
    EXPECT_EQ(e(computed(Tensor({0, -1, 2, 3, -3, 100})).cast(d)).sum().gradient({e.weight})[0].to_vector<float>(),
              (std::vector<float>{1, 1, 0, 0, 1, 1}));
  }
  EXPECT_EQ(e(computed(Tensor({1, 255})).cast(dtypes::uint8)).to_vector<float>(), (std::vector<float>{3, 4, 0, 0}));
  // An index counts from the end, a gather does not.
  EXPECT_EQ(e.weight[computed(Tensor({-1, 3}))].to_vector<float>(), (std::vector<float>{5, 6, 0, 0}));
  EXPECT_EQ(e.weight.gather(0, computed(Tensor({{0, -1}, {3, 2}}))).to_vector<float>(),
            (std::vector<float>{1, 0, 0, 6}));
  EXPECT_EQ(computed(Tensor({0, -1, 3})).one_hot(3).to_vector<int>(), (std::vector<int>{1, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(Layers, Errors) {
  const auto message = [](auto f) {
    try {
      f();
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string("no error");
  };
  EXPECT_THROW(Linear(0, 3), ShapeError);
  EXPECT_THROW(Conv2d(3, 4, 3, {.groups = 2}), ValueError);
  EXPECT_THROW(Conv2d(4, 4, {3, 0}), ShapeError);
  EXPECT_THROW(Conv2d(4, 4, 3, {.stride = 2, .same = true}), ValueError);
  EXPECT_THROW(Dropout(1.5), ValueError);
  EXPECT_THROW(Embedding(4, 2)(Tensor::ones(3)), DTypeError);
  EXPECT_THROW(LayerNorm(Ints(std::vector<int64_t>{})), ShapeError);
  EXPECT_THAT(message([] { LayerNorm({3, 5})(Tensor::zeros(2, 4, 5)); }),
              testing::AllOf(HasSubstr("(2, 4, 5)"), HasSubstr("(3, 5)")));
  EXPECT_THAT(message([] { BatchNorm(3)(Tensor::zeros(2)); }), HasSubstr("(2,)"));
  EXPECT_THAT(message([] { Linear(3, 4)(Tensor::zeros(2, 5)); }), HasSubstr("(2, 5)"));
}

// ---- state ----

struct Block {
  Linear first{2, 3}, second_{3, 2, false};
  Tensor operator()(const Tensor& x) const { return second_(first(x)); }
  TG_STATE(first, second_)
};
struct Net {
  Tensor scale = Tensor::ones(1);
  Tensor absent;
  std::vector<Block> blocks = std::vector<Block>(2);
  std::optional<Block> maybe;
  std::unique_ptr<Dropout> drop = std::make_unique<Dropout>(0.5);
  std::pair<LayerNorm, Tensor> both{LayerNorm(2), Tensor::zeros(3)};
  std::map<std::string, Tensor> extra{{"x", Tensor::zeros(1)}};
  TG_STATE(scale, absent, blocks, maybe, drop, both, extra)
};

std::vector<std::string> names(const StateDict& d) {
  std::vector<std::string> out;
  for (const auto& [name, t] : d) out.push_back(name);
  return out;
}

TEST(State, NamesInOrderOfDeclaration) {
  const Net net;
  EXPECT_THAT(names(get_state_dict(net)),
              ElementsAre("scale", "blocks.0.first.weight", "blocks.0.first.bias", "blocks.0.second.weight",
                          "blocks.1.first.weight", "blocks.1.first.bias", "blocks.1.second.weight", "both.0.weight",
                          "both.0.bias", "both.1", "extra.x"));
  EXPECT_THAT(names(get_state_dict(net.blocks, "b.")), testing::Contains("b.1.first.bias"));
  EXPECT_EQ(get_parameters(net).size(), 11u);
  EXPECT_TRUE(get_state_dict(net).at("scale").is_same(net.scale));
  EXPECT_THROW(get_state_dict(net).at("scales"), IndexError);
  EXPECT_THAT(names(get_state_dict(BatchNorm(3))),
              ElementsAre("weight", "bias", "num_batches_tracked", "running_mean", "running_var"));
}

TEST(State, LoadsValuesIntoTheModel) {
  const Block from, to;
  const Tensor held = to.first.weight;
  const LoadReport report = load_state_dict(to, get_state_dict(from));
  EXPECT_THAT(report.loaded, ElementsAre("first.weight", "first.bias", "second.weight"));
  EXPECT_EQ(to.first.weight.to_vector<float>(), from.first.weight.to_vector<float>());
  EXPECT_TRUE(held.is_same(to.first.weight));
  from.first.weight.assign(Tensor::zeros(3, 2)).realize();
  EXPECT_NE(to.first.weight.to_vector<float>(), from.first.weight.to_vector<float>())
      << "the value was loaded, not the storage shared";
  to(Tensor::ones(1, 2)).sum().backward();
  EXPECT_TRUE(held.grad().defined()) << "a loaded parameter still learns";
}

TEST(State, CapturedFunctionsSeeLoadedValues) {
  const Block block;
  const auto forward = tg::jit([&](const Tensor& x) { return block(x); });
  const auto out = [&] { return forward(Tensor::ones(1, 2).contiguous().realize()).to_vector<float>(); };
  const std::vector<float> first = (out(), out(), out());
  StateDict values;
  for (auto& [name, t] : get_state_dict(block)) values.emplace_back(name, (t * 0).realize());
  const Tensor view = block.first.weight.flatten();
  load_state_dict(block, values);
  EXPECT_EQ(block(Tensor::ones(1, 2)).to_vector<float>(), std::vector<float>(first.size(), 0));
  EXPECT_NE(view.to_vector<float>()[0], 0) << "a view shows the storage: it was not written to";
  const Block other;
  const auto again = tg::jit([&](const Tensor& x) { return other(x); });
  const auto next = [&] { return again(Tensor::ones(1, 2).contiguous().realize()).to_vector<float>(); };
  next();
  next();
  next();
  load_state_dict(other, values);
  EXPECT_EQ(next(), std::vector<float>(first.size(), 0));
}

TEST(State, StrictLoadingNamesWhatDoesNotFit) {
  const Block block;
  StateDict values = get_state_dict(block);
  values[2].first = "third.weight";
  try {
    load_state_dict(block, values);
    FAIL() << "no error";
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("missing: second.weight"), HasSubstr("unexpected: third.weight")));
  }
  const LoadReport report = load_state_dict(block, values, {.strict = false});
  EXPECT_THAT(report.missing, ElementsAre("second.weight"));
  EXPECT_THAT(report.unexpected, ElementsAre("third.weight"));
}

TEST(State, WrongShapesChangeNothing) {
  const Block block;
  const std::vector<float> before = block.first.weight.to_vector<float>();
  StateDict values{
      {"first.weight", Tensor::zeros(3, 2)}, {"first.bias", Tensor::zeros(4)}, {"second.weight", Tensor::zeros(2, 3)}};
  EXPECT_THROW(load_state_dict(block, values), ShapeError);
  EXPECT_EQ(block.first.weight.to_vector<float>(), before);
  const BatchNorm bn(1);
  load_state_dict(StateDict{{"n", bn.num_batches_tracked}}, StateDict{{"n", Tensor(std::vector<int64_t>{7})}});
  EXPECT_EQ(bn.num_batches_tracked.shape(), Shape{});
  EXPECT_EQ(bn.num_batches_tracked.item<int>(), 7);
}

}  // namespace
}  // namespace tg::nn
