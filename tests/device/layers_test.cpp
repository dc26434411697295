/// \file Transposed convolutions, norms, recurrent layers and attention: values and gradients against PyTorch, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/nn_helpers.h"
#include "tinygrad/nn/nn.h"

namespace tg::nn {
namespace {

namespace expected {
#include "device/layers_reference.inc"
}
using test::expect_close;
using test::ramp;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor input(const Shape& shape, float scale, float shift = 0) {
  return ramp(shape, scale, shift).requires_grad_(true);
}
template <class M> void fill(const M& module, float scale) {
  for (const auto& [name, t] : get_state_dict(module)) t.replace(ramp(t.shape(), scale, 0)).requires_grad_(true);
}
Tensor flat(const Tensors& tensors) {
  Tensors parts;
  for (const Tensor& t : tensors) parts.push_back(t.flatten());
  return Tensor::cat(parts);
}

/// Values, and gradients for the seed of layers_reference.py.
void expect_record(const Tensor& y, const Tensors& targets, std::span<const float> values, std::span<const float> grads,
                   double tolerance = 1e-5) {
  std::vector<float> seed(static_cast<size_t>(y.numel()));
  for (size_t i = 0; i < seed.size(); i++) seed[i] = static_cast<float>(static_cast<int>(i % 5) - 2) / 4;
  expect_close(y, values, tolerance);
  expect_close(flat(y.gradient(targets, Tensor::from(seed, y.shape()))), grads, tolerance);
}
Tensors with_parameters(Tensors inputs, const Tensors& params) {
  inputs.insert(inputs.end(), params.begin(), params.end());
  return inputs;
}
std::string message(const auto& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "no error";
}

TEST(Layers, ConvTranspose) {
  ConvTranspose2d layer(
      4, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .output_padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  fill(layer, 0.125);
  const Tensor x = input({2, 4, 3, 3}, 0.25, 0.5);
  expect_record(layer(x), {x, layer.weight, layer.bias}, expected::kConvTranspose, expected::kConvTransposeGrads);
  EXPECT_EQ(ConvTranspose1d(2, 3, 4, {.stride = 3})(Tensor::zeros(1, 2, 5)).shape(), (Shape{1, 3, 16}));
  EXPECT_EQ(ConvTranspose2d(2, 3, {2, 2, 2})(Tensor::zeros(1, 2, 3, 4, 5)).shape(), (Shape{1, 3, 4, 5, 6}));
  EXPECT_FALSE(ConvTranspose2d(2, 3, 2, {.bias = false}).bias.defined());
}

TEST(Layers, GroupAndInstanceNorm) {
  const Tensor x = input({2, 4, 3, 3}, 0.25, 0.5);
  GroupNorm group(2, 4);
  InstanceNorm instance(4);
  for (GroupNorm* layer : {&group, static_cast<GroupNorm*>(&instance)}) {
    layer->weight = input({4}, 0.25, 1);
    layer->bias = input({4}, 0.5);
  }
  expect_record(group(x), {x, group.weight, group.bias}, expected::kGroupNorm, expected::kGroupNormGrads, 2e-5);
  expect_record(instance(x), {x, instance.weight, instance.bias}, expected::kInstanceNorm, expected::kInstanceNormGrads,
                2e-5);
  const Tensor plain = GroupNorm(2, 4, {.affine = false})(x);
  expect_close(plain.reshape(4, -1).mean(1), std::vector<float>(4, 0.f), 1e-5);
  EXPECT_TRUE(get_state_dict(GroupNorm(2, 4, {.affine = false})).empty());
}

TEST(Layers, LayerNorm2d) {
  LayerNorm2d layer(4);
  layer.weight = input({4}, 0.25, 1);
  layer.bias = input({4}, 0.5);
  const Tensor x = input({2, 4, 3, 3}, 0.25, 0.5);
  expect_record(layer(x), {x, layer.weight, layer.bias}, expected::kLayerNorm2d, expected::kLayerNorm2dGrads, 2e-5);
  EXPECT_EQ(layer(Tensor::ones(2, 4, 5)).shape(), (Shape{2, 4, 5}));
}

TEST(Layers, RmsNorm) {
  RMSNorm layer(3);
  layer.weight = input({3}, 0.25, 1);
  const Tensor x = input({2, 4, 3, 3}, 0.25, 0.5);
  expect_record(layer(x), {x, layer.weight}, expected::kRmsNorm, expected::kRmsNormGrads);
  EXPECT_EQ(RMSNorm(3, {.affine = false})(x.half()).dtype(), dtypes::float16);
}

TEST(Recurrent, Cells) {
  const Tensor x = input({3, 5}, 0.125, 0.1f), h = input({3, 4}, 0.125, 0.1f), c = input({3, 4}, 0.125, 0.1f);
  const LSTMCell lstm(5, 4);
  fill(lstm, 0.0625);
  const LstmState next = lstm(x, LstmState{h, c});
  expect_record(Tensor::cat({next.h, next.c}), with_parameters({x, h, c}, get_parameters(lstm)), expected::kLstmCell,
                expected::kLstmCellGrads);
  const GRUCell gru(5, 4);
  fill(gru, 0.0625);
  expect_record(gru(x, h), with_parameters({x, h}, get_parameters(gru)), expected::kGruCell, expected::kGruCellGrads);
  // No state is a state of zeros.
  const Tensor zero = Tensor::zeros(3, 4);
  EXPECT_EQ(gru(x).to_vector<float>(), gru(x, zero).to_vector<float>());
  EXPECT_EQ(lstm(x).c.to_vector<float>(), lstm(x, LstmState{zero, zero}).c.to_vector<float>());
  EXPECT_EQ(get_state_dict(LSTMCell(5, 4, false)).size(), 2u);
}

TEST(Recurrent, LayersInBothDirections) {
  const Tensor x = input({4, 3, 5}, 0.125);
  const LSTM lstm(5, 4, {.layers = 2, .bidirectional = true});
  fill(lstm, 0.0625);
  const LSTM::Result r = lstm(x);
  EXPECT_EQ(r.output.shape(), (Shape{4, 3, 8}));
  EXPECT_EQ(r.state.c.shape(), (Shape{4, 3, 4}));
  expect_record(flat({r.output, r.state.h, r.state.c}), with_parameters({x}, get_parameters(lstm)), expected::kLstm,
                expected::kLstmGrads);
  const GRU gru(5, 4, {.layers = 2, .bidirectional = true});
  fill(gru, 0.0625);
  const GRU::Result g = gru(x);
  expect_record(flat({g.output, g.h}), with_parameters({x}, get_parameters(gru)), expected::kGru, expected::kGruGrads);
}

TEST(Recurrent, BatchFirstWithInitialState) {
  const Tensor x = ramp({4, 3, 5}, 0.125, 0), start = ramp({1, 4, 4}, 0.125, 0);
  const LSTM lstm(5, 4, {.bias = false, .batch_first = true});
  fill(lstm, 0.0625);
  expect_close(lstm(x, LstmState{start, start}).output, expected::kLstmBatchFirst, 1e-5);
  const GRU gru(5, 4, {.bias = false, .batch_first = true});
  fill(gru, 0.0625);
  expect_close(gru(x, start).output, expected::kGruBatchFirst, 1e-5);
}

TEST(Recurrent, WeightNamesMatchPyTorch) {
  std::vector<std::string> names;
  for (const auto& [name, t] : get_state_dict(GRU(2, 3, {.bidirectional = true}), "rnn.")) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0",
                                 "rnn.weight_ih_l0_reverse", "rnn.weight_hh_l0_reverse", "rnn.bias_ih_l0_reverse",
                                 "rnn.bias_hh_l0_reverse"));
}

TEST(Attention, ValuesAndGradients) {
  const Tensor q = input({2, 3, 8}, 0.125), kv = input({2, 5, 8}, 0.125, 0.25);
  const MultiheadAttention layer(8, 2);
  fill(layer, 0.0625);
  const MultiheadAttention::Result r = layer.with_weights(q, kv, kv);
  expect_record(r.output, with_parameters({q, kv}, get_parameters(layer)), expected::kAttention,
                expected::kAttentionGrads);
  expect_close(r.weights, expected::kAttentionWeights, 1e-5);
  const Tensor seen = Tensor({{true, true, true, false, false}, {true, true, true, true, true}});
  expect_close(layer(q, kv, kv, {.key_mask = seen}), expected::kAttentionKeyMask, 1e-5);
  expect_close(layer(q, {.causal = true}), expected::kAttentionCausal, 1e-5);
  expect_close(layer(q, {.mask = Tensor::ones(Shape{3, 3}, {.dtype = dtypes::bool_}).tril()}),
               expected::kAttentionCausal, 1e-5);
}

TEST(Attention, TimeFirst) {
  MultiheadAttention layer(8, 4);
  const Tensor x = ramp({2, 3, 8}, 0.125, 0);
  const Tensor y = layer(x);
  layer.options.batch_first = false;
  expect_close(layer(x.transpose(0, 1)).transpose(0, 1), y.to_vector<float>(), 1e-6);
}

TEST(Layers, SameSeedSameWeightsOfCellsAndTransposedConvolutions) {
  Tensor::manual_seed(7);
  const ConvTranspose2d conv(2, 4, {2, 3}, {.groups = 2});
  const LSTMCell cell(3, 2);
  expect_close(flat(get_parameters(conv)), expected::kInitTransposed, 1e-7);
  expect_close(flat(get_parameters(cell)), expected::kInitCell, 1e-7);
}

TEST(Layers, ErrorsNameWhatIsExpected) {
  EXPECT_THROW(ConvTranspose2d(3, 4, 3, {.groups = 2}), ValueError);
  EXPECT_THROW(GroupNorm(3, 4), ValueError);
  EXPECT_THROW(GRUCell(0, 4), ShapeError);
  EXPECT_THROW(LSTM(3, 4, {.layers = 0}), ValueError);
  EXPECT_THROW(LSTM(3, 4, {.dropout = 2}), ValueError);
  EXPECT_THROW(MultiheadAttention(8, 3), ValueError);
  EXPECT_THAT(message([] { GroupNorm(2, 4)(Tensor::zeros(2, 6, 3)); }),
              testing::AllOf(HasSubstr("(2, 6, 3)"), HasSubstr("(batch, 4, ...)")));
  EXPECT_THAT(message([] { RMSNorm(4)(Tensor::zeros(2, 6)); }), HasSubstr("(2, 6)"));
  EXPECT_THAT(message([] { LayerNorm2d(4)(Tensor::zeros(4)); }), HasSubstr("(batch, channels, ...)"));
  EXPECT_THAT(message([] { LSTMCell(3, 4)(Tensor::zeros(2, 5)); }), HasSubstr("(batch, 3)"));
  EXPECT_THAT(message([] { GRUCell(3, 4)(Tensor::zeros(2, 3), Tensor::zeros(2, 3)); }), HasSubstr("(2, 4)"));
  EXPECT_THAT(message([] { GRU(3, 4)(Tensor::zeros(2, 5, 6)); }), HasSubstr("(time, batch, 3)"));
  EXPECT_THAT(message([] { GRU(3, 4)(Tensor::zeros(2, 5, 3), Tensor::zeros(1, 2, 4)); }), HasSubstr("(1, 5, 4)"));
  EXPECT_THAT(message([] { MultiheadAttention(8, 2)(Tensor::zeros(2, 3, 4)); }), HasSubstr("(batch, time, 8)"));
  EXPECT_THAT(message([] { MultiheadAttention(8, 2)(Tensor::zeros(2, 3, 8), {.key_mask = Tensor::ones(2, 4)}); }),
              HasSubstr("(2, 3)"));
}

}  // namespace
}  // namespace tg::nn
