/// \file Tensors without axes where functions work along one, and samples without a batch, as PyTorch takes them.
#include <gtest/gtest.h>

#include "device/nn_helpers.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;

void expect_equal(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
}

TEST(WithoutAxes, GatherAndScatter) {
  const Tensor x = Tensor::full({}, 5.0).contiguous(), v = Tensor({1.0, 2.0, 3.0}), seven = Tensor::full({}, 7.0);
  const Tensor zero = Tensor::zeros(Shape{}, dtypes::int32), one = Tensor::ones(Shape{}, dtypes::int32);
  EXPECT_EQ(x.gather(0, zero).shape(), Shape{});
  EXPECT_EQ(x.gather(0, zero).item<float>(), 5);
  EXPECT_EQ(x.gather(-1, Tensor({0, 0})).to_vector<float>(), (Floats{5, 5}));
  EXPECT_EQ(v.gather(0, one).shape(), Shape{});
  EXPECT_EQ(v.gather(0, one).item<float>(), 2);
  EXPECT_EQ(x.scatter(0, zero, seven).shape(), Shape{});
  EXPECT_EQ(x.scatter(0, zero, seven).item<float>(), 7);
  EXPECT_EQ(v.scatter(0, one, seven).to_vector<float>(), (Floats{1, 7, 3}));
  EXPECT_EQ(v.scatter(0, one, 7.0).to_vector<float>(), (Floats{1, 7, 3}));
  EXPECT_EQ(v.scatter(0, one, Tensor({7.0})).to_vector<float>(), (Floats{1, 7, 3}));
  EXPECT_EQ(x.scatter_add(0, zero, seven).item<float>(), 12);
  EXPECT_EQ(v.scatter_add(0, zero, seven).to_vector<float>(), (Floats{8, 2, 3}));
  EXPECT_EQ(x.scatter_reduce(0, zero, seven, ScatterReduce::kMean).item<float>(), 6);
  EXPECT_EQ(v.scatter_reduce(0, zero, seven, ScatterReduce::kMean).to_vector<float>(), (Floats{4, 2, 3}));
  EXPECT_THROW(v.reshape(1, 3).gather(0, zero), ShapeError);
  const Tensor t = Tensor::full({}, 5.0).requires_grad_();
  (t.gather(0, Tensor({0, 0})) * 2).sum().backward();
  EXPECT_EQ(t.grad().item<float>(), 4);
}
TEST(WithoutAxes, OrderAndPrefixes) {
  const Tensor x = Tensor::full({}, 5.0).contiguous();
  for (int axis : {0, -1}) {
    for (const auto& [values, places] : {x.sort(axis), x.topk(1, axis), x.cummax(axis), x.cummin(axis)}) {
      EXPECT_EQ(values.shape(), Shape{});
      EXPECT_EQ(values.item<float>(), 5);
      EXPECT_EQ(places.item<int>(), 0);
    }
    for (const Tensor& t : {x.cumsum(axis), x.cumprod(axis), x.logcumsumexp(axis), x.sum(axis), x.max(axis)}) {
      EXPECT_EQ(t.shape(), Shape{});
      EXPECT_EQ(t.item<float>(), 5);
    }
    EXPECT_EQ(x.argmax(axis).item<int>(), 0);
    EXPECT_EQ(x.argmin(axis, true).item<int>(), 0);
    EXPECT_EQ(x.softmax(axis).item<float>(), 1);
  }
  EXPECT_THROW(x.topk(2), ValueError);
  EXPECT_THROW(x.topk(1, 1), IndexError);
}
TEST(WithoutABatch, Convolutions) {
  const Tensor x = test::ramp({2, 5, 4}, 0.1f, 0), w = test::ramp({3, 2, 3, 2}, 0.2f, 0),
               t = test::ramp({2, 3, 3, 2}, 0.2f, 0), bias = Tensor({1.0, 2.0, 3.0});
  expect_equal(x.conv2d(w, bias), x.unsqueeze(0).conv2d(w, bias)[0]);
  expect_equal(x.conv_transpose2d(t, bias), x.unsqueeze(0).conv_transpose2d(t, bias)[0]);
  EXPECT_EQ(nn::Conv2d(2, 3, 3)(x).shape(), (Shape{3, 3, 2}));
  EXPECT_EQ(nn::ConvTranspose1d(2, 3, 4, {.stride = 3})(x[0].reshape(2, 10)).shape(), (Shape{3, 31}));
}
TEST(WithoutABatch, RecurrentLayers) {
  for (bool batch_first : {false, true}) {
    const nn::RecurrentOptions o{.layers = 2, .batch_first = batch_first, .bidirectional = true};
    const Tensor x = test::ramp({5, 3}, 0.1f, 0), h = test::ramp({4, 2}, 0.1f, 0), c = test::ramp({4, 2}, 0.2f, 0);
    const int batch = batch_first ? 0 : 1;
    const nn::LSTM lstm(3, 2, o);
    const nn::LSTM::Result one = lstm(x, nn::LstmState{h, c}),
                           all = lstm(x.unsqueeze(batch), nn::LstmState{h.unsqueeze(1), c.unsqueeze(1)});
    expect_equal(one.output, all.output.squeeze(batch));
    expect_equal(one.state.h, all.state.h.squeeze(1));
    expect_equal(one.state.c, all.state.c.squeeze(1));
    const nn::GRU gru(3, 2, o);
    expect_equal(gru(x).output, gru(x.unsqueeze(batch)).output.squeeze(batch));
    EXPECT_EQ(gru(x, h).h.shape(), (Shape{4, 2}));
    EXPECT_THROW(lstm(x, nn::LstmState{h.unsqueeze(1), c}), ShapeError);
  }
  const Tensor x = test::ramp({3}, 0.1f, 0), h = test::ramp({2}, 0.1f, 0);
  const nn::LSTMCell lstm(3, 2);
  const nn::LstmState next = lstm(x, nn::LstmState{h, h});
  expect_equal(next.h, lstm(x.unsqueeze(0), nn::LstmState{h.unsqueeze(0), h.unsqueeze(0)}).h[0]);
  EXPECT_EQ(next.c.shape(), Shape{2});
  const nn::GRUCell gru(3, 2);
  expect_equal(gru(x, h), gru(x.unsqueeze(0), h.unsqueeze(0))[0]);
  EXPECT_EQ(gru(x).shape(), Shape{2});
}
TEST(WithoutABatch, InstanceNorm) {
  const nn::InstanceNorm norm(3);
  for (const Shape& shape : {Shape{3, 5}, Shape{3, 5, 4}, Shape{3, 3}, Shape{3, 2, 5, 4}}) {
    const Tensor x = test::ramp(shape, 0.1f, 0.5f);
    expect_equal(norm(x), norm(x.unsqueeze(0))[0]);
  }
  EXPECT_EQ(norm(test::ramp({2, 3, 5}, 0.1f, 0)).shape(), (Shape{2, 3, 5}));
  EXPECT_THROW(norm(Tensor::ones(4, 5)), ShapeError);
}

}  // namespace
}  // namespace tg
