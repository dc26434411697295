/// \file Optimizers: several steps against PyTorch's, what a step realizes, errors.
#include "tinygrad/nn/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "device/nn_helpers.h"
#include "tinygrad/nn/nn.h"

namespace tg::nn {
namespace {

namespace expected {
#include "device/nn_reference.inc"
}

using test::ramp;
using testing::HasSubstr;

using Make = std::function<std::unique_ptr<Optimizer>(const Tensors&)>;
template <class O, class Options> Make make(const Options& options) {
  return [options](const Tensors& params) { return std::make_unique<O>(params, options); };
}

/// The steps of nn_reference.py.
void expect_steps(const Make& make, std::span<const float> reference, int steps = 3, double tolerance = 2e-6) {
  const Tensor x = ramp({2, 4}, 0.125f, 0), w = ramp({4, 3}, 0.0625f, 0.25f), m = ramp({2, 3}, 0.25f, 0);
  m.requires_grad_(false);
  const std::unique_ptr<Optimizer> optimizer = make({x, w});
  const Training mode;
  for (int i = 0; i < steps; i++) {
    optimizer->zero_grad();
    (x.matmul(w).tanh() - m).square().sum().backward();
    optimizer->step();
  }
  test::expect_close(Tensor::cat({x.flatten(), w.flatten()}), reference, tolerance);
}

TEST(Optim, Sgd) {
  expect_steps(make<SGD>(SgdOptions{.lr = 0.125}), expected::kSgd);
  expect_steps(make<SGD>(SgdOptions{.lr = 0.125, .weight_decay = 0.1}), expected::kSgdDecay);
  expect_steps(make<SGD>(SgdOptions{.lr = 0.125, .momentum = 0.9, .weight_decay = 0.1}), expected::kSgdMomentum);
  expect_steps(make<SGD>(SgdOptions{.lr = 0.125, .momentum = 0.9, .nesterov = true}), expected::kSgdNesterov);
}

TEST(Optim, RmsProp) {
  expect_steps(make<RMSprop>(RmsPropOptions{}), expected::kRmsProp, 3, 1e-5);
  expect_steps(make<RMSprop>(RmsPropOptions{.alpha = 0.9, .weight_decay = 0.1, .momentum = 0.5}),
               expected::kRmsPropMomentum, 3, 1e-5);
  expect_steps(make<RMSprop>(RmsPropOptions{.momentum = 0.5, .centered = true}), expected::kRmsPropCentered, 3, 1e-5);
}

TEST(Optim, Adam) {
  expect_steps(make<Adam>(AdamOptions{.lr = 0.01}), expected::kAdam, 3, 1e-5);
  expect_steps(make<Adam>(AdamOptions{.lr = 0.01, .b1 = 0.8, .b2 = 0.95, .eps = 1e-6}), expected::kAdam20, 20, 2e-5);
  expect_steps(make<AdamW>(AdamWOptions{.lr = 0.01, .weight_decay = 0.1}), expected::kAdamW, 3, 1e-5);
}

TEST(Optim, LearningRateIsATensor) {
  const Tensor p = Tensor({1.f, 2.f});
  SGD optimizer({p}, {.lr = 0.5});
  const Training mode;
  p.sum().backward();
  optimizer.step();
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{0.5f, 1.5f}));
  optimizer.lr.assign(Tensor::full({}, 0.25, {.dtype = dtypes::float32}));
  optimizer.step();
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{0.25f, 1.25f}));
}

TEST(Optim, ParametersKeepTheirTypeAndAreCountedOnce) {
  const Tensor p = Tensor({1.f, 2.f}).half();
  Adam optimizer({p, p}, {.lr = 0.5});
  EXPECT_EQ(optimizer.params().size(), 1u);
  const Training mode;
  (p * p).sum().backward();
  optimizer.step();
  EXPECT_EQ(p.dtype(), dtypes::float16);
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{0.5f, 1.5f}));  // Adam's first step is lr in the gradient's sign
}

TEST(Optim, BuffersAreRealizedNotTrained) {
  const BatchNorm bn(2);
  SGD optimizer(get_parameters(bn), {.lr = 0.1});
  EXPECT_EQ(optimizer.params().size(), 2u);
  EXPECT_EQ(optimizer.buffers().size(), 3u);
  const Training mode;
  bn(ramp({3, 2, 2, 2}, 0.5f, 1)).square().sum().backward();
  const Tensors changed = optimizer.schedule_step();
  realize(changed);
  for (const Tensor& t : {bn.weight, bn.bias, bn.running_mean, bn.running_var, bn.num_batches_tracked})
    EXPECT_TRUE(t.is_realized());
  EXPECT_EQ(bn.num_batches_tracked.item<int>(), 1);
  EXPECT_FALSE(bn.running_mean.grad().defined());
}

TEST(Optim, ZeroGradForgets) {
  const Tensor p = Tensor({1.f, 2.f});
  SGD optimizer({p});
  p.sum().backward();
  EXPECT_TRUE(p.grad().defined());
  optimizer.zero_grad();
  EXPECT_FALSE(p.grad().defined());
}

TEST(Optim, Errors) {
  const auto message = [](auto f) {
    try {
      f();
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string("no error");
  };
  const Tensor p = Tensor({1.f, 2.f}), q = Tensor({{1.f, 2.f, 3.f}});
  EXPECT_THROW(SGD({}), ValueError);
  EXPECT_THROW(SGD({p}, {.lr = -1}), ValueError);
  EXPECT_THROW(SGD({p}, {.nesterov = true}), ValueError);
  EXPECT_THROW(Adam({p}, {.b1 = 1}), ValueError);
  EXPECT_THROW(AdamW({p}, {.weight_decay = -0.1}), ValueError);
  EXPECT_THROW(RMSprop({p}, {.momentum = -0.1}), ValueError);
  EXPECT_THROW(SGD({Tensor({1, 2})}), DTypeError);
  Adam optimizer({p, q});
  p.sum().backward();
  EXPECT_THAT(message([&] {
                const Training off(false);
                optimizer.step();
              }),
              HasSubstr("nn::Training train;"));
  const Training mode;
  EXPECT_THROW(optimizer.step(), GradientError);
  EXPECT_THAT(message([&] { optimizer.step(); }), testing::AllOf(HasSubstr("[Adam] parameter 1"), HasSubstr("(1, 3)")));
  EXPECT_EQ(p.to_vector<float>(), (std::vector<float>{1, 2})) << "a step that fails changes nothing";
}

}  // namespace
}  // namespace tg::nn
