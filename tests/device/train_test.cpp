/// \file LARS, LAMB, Muon, groups, fused steps, schedules of the rate, and the helpers of training loops.
#include "tinygrad/nn/train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>

#include "device/nn_helpers.h"
#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/nn/lr_scheduler.h"
#include "tinygrad/nn/nn.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::nn {
namespace {

namespace expected {
#include "device/layers_reference.inc"
}
using test::expect_close;
using test::ramp;
using testing::HasSubstr;

std::string message(const auto& f) {
  try {
    f();
  } catch (const Error& e) { return e.what(); }
  return "no error";
}
std::vector<float> floats(const Tensor& t) { return t.to_vector<float>(); }

/// The steps of layers_reference.py.
template <class O, class Options> std::vector<float> steps(const Options& options) {
  const Tensor x = ramp({2, 4}, 0.125f, 0), w = ramp({4, 3}, 0.0625f, 0.25f), m = ramp({2, 3}, 0.25f, 0);
  m.requires_grad_(false);
  O optimizer({x, w}, options);
  const Training mode;
  for (int i = 0; i < 3; i++) {
    optimizer.zero_grad();
    (x.matmul(w).tanh() - m).square().sum().backward();
    optimizer.step();
  }
  return floats(Tensor::cat({x.flatten(), w.flatten()}));
}
void expect_near(const std::vector<float>& got, std::span<const float> expected, double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], expected[i], tolerance) << "element " << i;
}

TEST(Optim, Lars) {
  expect_near(steps<LARS>(LarsOptions{.lr = 0.5}), expected::kLars);
  const LarsOptions other{
      .lr = 0.5, .momentum = 0.5, .weight_decay = 0.01, .nesterov = true, .classic = false, .trust = 0.1};
  expect_near(steps<LARS>(other), expected::kLarsNesterov);
  expect_near(steps<LARS>(LarsOptions{.lr = 0.5, .fused = true}), expected::kLarsFused);
  expect_near(steps<SGD>(SgdOptions{.lr = 0.125, .momentum = 0.9, .weight_decay = 0.1, .classic = true}),
              expected::kSgdClassic);
}

TEST(Optim, Lamb) {
  expect_near(steps<LAMB>(LambOptions{.lr = 0.01, .weight_decay = 0.1}), expected::kLamb);
  expect_near(steps<LAMB>(LambOptions{.lr = 0.01, .fused = true}), expected::kLambFused);
}

TEST(Optim, Muon) {
  expect_near(steps<Muon>(MuonOptions{.lr = 0.01, .weight_decay = 0}), expected::kMuon, 1e-4);
  const MuonOptions plain{
      .lr = 0.01, .weight_decay = 0, .ns_steps = 3, .ns_coefficients = {2.0, -1.5, 0.5}, .nesterov = false};
  expect_near(steps<Muon>(plain), expected::kMuonPlain);
}

TEST(Optim, MuonDecaysTheWeight) {
  const Tensor p = ramp({3, 3}, 0.125, 1);
  const std::vector<float> before = floats(p);
  Muon optimizer({p}, {.lr = 0.5, .weight_decay = 0.1, .ns_steps = 0});
  const Training mode;
  p.set_grad(Tensor::zeros(3, 3));
  optimizer.step();
  const std::vector<float> after = floats(p);
  for (size_t i = 0; i < after.size(); i++) EXPECT_NEAR(after[i], before[i] * 0.95f, 1e-6);
}

TEST(Optim, FusedStepsAreTheSame) {
  expect_near(steps<SGD>(SgdOptions{.lr = 0.125, .momentum = 0.9, .fused = true}),
              steps<SGD>(SgdOptions{.lr = 0.125, .momentum = 0.9}), 1e-6);
  expect_near(steps<AdamW>(AdamWOptions{.lr = 0.01, .fused = true}), steps<AdamW>(AdamWOptions{.lr = 0.01}), 1e-6);
  expect_near(steps<RMSprop>(RmsPropOptions{.momentum = 0.5, .centered = true, .fused = true}),
              steps<RMSprop>(RmsPropOptions{.momentum = 0.5, .centered = true}), 1e-5);
  const Context ctx{{"FUSE_OPTIM", 1}};
  EXPECT_TRUE(Adam({Tensor({1.f})}).fused());
  EXPECT_THROW(Adam({Tensor({1.f}), Tensor({1.f}).half()}), ValueError);
  EXPECT_FALSE(Muon({Tensor({1.f})}).fused());
}

TEST(Optim, Group) {
  const Tensor a = Tensor({1.f, 2.f}), b = Tensor({3.f});
  SGD first({a}, {.lr = 0.5}), second({b}, {.lr = 1});
  OptimizerGroup both{first, second};
  EXPECT_EQ(both.size(), 2u);
  const Training mode;
  (a.sum() + b.sum()).backward();
  both.step();
  EXPECT_EQ(floats(a), (std::vector<float>{0.5f, 1.5f}));
  EXPECT_EQ(floats(b), (std::vector<float>{2.f}));
  both.zero_grad();
  EXPECT_FALSE(a.grad().defined() || b.grad().defined());
  EXPECT_THROW(both[2], std::out_of_range);
}

TEST(Optim, ScalarParameters) {
  const Tensor p = Tensor::full({}, 2.0, {.dtype = dtypes::float32});
  Adam optimizer({p}, {.lr = 0.5});
  const Training mode;
  p.square().backward();
  optimizer.step();
  EXPECT_EQ(p.shape(), Shape{});
  EXPECT_NEAR(p.item<float>(), 1.5, 1e-5);
}

TEST(Optim, MistakesAreExplained) {
  EXPECT_THAT(message([] { SGD optimizer({}); }),
              testing::AllOf(HasSubstr("no tensor"), HasSubstr("nn::get_parameters(model)")));
  EXPECT_THAT(message([] { SGD optimizer({Tensor({1.f}).requires_grad_(false)}); }), HasSubstr("requires_grad(false)"));
  EXPECT_THAT(message([] { SGD optimizer({Tensor()}); }), HasSubstr("undefined"));
  EXPECT_THROW(LARS({Tensor({1.f})}, {.momentum = -1}), ValueError);
  EXPECT_THROW(LAMB({Tensor({1.f})}, {.weight_decay = -1}), ValueError);
}

// ---- schedules ----

/// The rates of as many steps as the reference has.
template <class S, class... A> void expect_rates(std::span<const float> expected, const A&... arguments) {
  SGD optimizer({Tensor({1.f})}, {.lr = 0.5});
  S schedule(optimizer.lr, arguments...);
  for (size_t i = 0; i < expected.size(); i++, schedule.step()) {
    ASSERT_NEAR(optimizer.lr.item<float>(), expected[i], 1e-6) << "step " << i;
    ASSERT_NEAR(schedule.rate(), expected[i], 1e-6);
    if (i + 1 == expected.size()) break;
  }
}

TEST(LrScheduler, RatesArePyTorchs) {
  expect_rates<StepLR>(expected::kStepLr, 3, 0.5);
  expect_rates<MultiStepLR>(expected::kMultiStepLr, std::vector<int64_t>{2, 5, 5, 9}, 0.5);
  expect_rates<ExponentialLR>(expected::kExponentialLr, 0.9);
  expect_rates<LinearLR>(expected::kLinearLr, 0.25, 1.0, 4);
  expect_rates<PolynomialLR>(expected::kPolynomialLr, 8, 2.0);
  expect_rates<CosineAnnealingLR>(expected::kCosineLr, 11, WarmupOptions{.eta_min = 0.125});
  expect_rates<OneCycleLR>(expected::kOneCycleCosine, OneCycleOptions{.max_lr = 0.5, .total_steps = 12});
  expect_rates<OneCycleLR>(expected::kOneCycleLinear, OneCycleOptions{.max_lr = 0.5,
                                                                      .total_steps = 12,
                                                                      .pct_start = 0.25,
                                                                      .div_factor = 10,
                                                                      .final_div_factor = 100,
                                                                      .anneal = OneCycleOptions::kLinear});
  expect_rates<LambdaLR>(std::vector<float>{0.5f, 0.25f, 0.125f},
                         std::function([](int64_t i) { return std::pow(0.5, static_cast<double>(i)); }));
}

TEST(LrScheduler, WarmupThenCosine) {
  std::vector<float> rates;
  for (int i = 0; i < 3; i++) rates.push_back(0.5f * static_cast<float>(i + 1) / 3);
  for (int i = 0; i <= 5; i++) rates.push_back(0.1f + 0.2f * (1 + std::cos(static_cast<float>(i) / 5 * 3.14159265f)));
  expect_rates<CosineAnnealingLR>(rates, 5, WarmupOptions{.eta_min = 0.1, .warmup_steps = 3});
}

TEST(LrScheduler, Plateau) {
  const double losses[] = {1.0, 0.9, 0.9, 0.95, 0.9, 0.9, 0.5, 0.49999, 0.6, 0.6, 0.6, 0.4};
  const auto run = [&](const PlateauOptions& o, std::span<const float> expected) {
    SGD optimizer({Tensor({1.f})}, {.lr = 0.5});
    ReduceLROnPlateau schedule(optimizer.lr, o);
    for (size_t i = 0; i < expected.size(); i++) {
      ASSERT_NEAR(optimizer.lr.item<float>(), expected[i], 1e-6) << "step " << i;
      schedule.step(losses[i]);
    }
  };
  run({.factor = 0.5, .patience = 2}, expected::kPlateau);
  run({.maximize = true,
       .factor = 0.5,
       .patience = 1,
       .threshold = 0.05,
       .relative = false,
       .cooldown = 2,
       .min_lr = 0.1},
      expected::kPlateauMax);
}

TEST(LrScheduler, ContinuesAndRefuses) {
  SGD optimizer({Tensor({1.f})}, {.lr = 0.5});
  StepLR schedule(optimizer.lr, 2, 0.5);
  schedule.go_to(5);
  EXPECT_EQ(schedule.steps(), 5);
  EXPECT_EQ(optimizer.lr.item<float>(), 0.125f);
  EXPECT_THROW(schedule.go_to(-1), ValueError);
  EXPECT_THROW(StepLR(optimizer.lr, 0), ValueError);
  EXPECT_THROW(OneCycleLR(optimizer.lr, {.max_lr = 1, .total_steps = 4, .pct_start = 2}), ValueError);
  OneCycleLR cycle(optimizer.lr, {.max_lr = 1, .total_steps = 2});
  EXPECT_THROW(cycle.go_to(3), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(optimizer.lr).step(std::numeric_limits<double>::quiet_NaN()), ValueError);
  EXPECT_THAT(message([] { StepLR(Tensor(), 2); }), HasSubstr("optimizer.lr"));
}

// ---- clipping, accumulation, averages ----

TEST(Train, ClipGradNorm) {
  const Tensor a = Tensor({1.f, 1.f}), b = Tensor({{1.f}}), none = Tensor({1.f});
  a.set_grad(Tensor({3.f, 0.f}));
  b.set_grad(Tensor({{4.f}}));
  const Tensor norm = clip_grad_norm({a, b, none}, 1);
  EXPECT_NEAR(norm.item<float>(), 5, 1e-5);
  expect_close(a.grad(), std::vector<float>{0.6f, 0}, 1e-5);
  expect_close(b.grad(), std::vector<float>{0.8f}, 1e-5);
  EXPECT_NEAR(clip_grad_norm({a, b}, 10, std::numeric_limits<double>::infinity()).item<float>(), 0.8, 1e-5);
  expect_close(b.grad(), std::vector<float>{0.8f}, 1e-5);
  EXPECT_NEAR(clip_grad_norm({a, b}, 10, 1).item<float>(), 1.4, 1e-5);
  EXPECT_THROW(clip_grad_norm({none}, 1), GradientError);
  clip_grad_value({a, b, none}, 0.5);
  expect_close(a.grad(), std::vector<float>{0.5f, 0}, 1e-6);
  EXPECT_THROW(clip_grad_value({a}, -1), ValueError);
}

TEST(Train, Accumulation) {
  const Tensor p = Tensor({1.f, 2.f}), q = Tensor({1.f, 2.f});
  const Tensor first = Tensor({1.f, 3.f}), second = Tensor({5.f, 7.f});
  for (const Tensor& t : {first, second}) t.requires_grad_(false);
  SGD one({p}, {.lr = 0.5}), other({q}, {.lr = 0.5});
  const Training mode;
  GradAccumulator steps(one, 2);
  EXPECT_FALSE(steps.backward((p * first).sum()));
  EXPECT_EQ(floats(p), (std::vector<float>{1, 2}));
  EXPECT_TRUE(steps.backward((p * second).sum()));
  ((q * (first + second)).sum() / 2).backward();
  other.step();
  EXPECT_EQ(floats(p), floats(q));
  EXPECT_FALSE(p.grad().defined());
  EXPECT_THROW(GradAccumulator(one, 0), ValueError);
}

TEST(Train, AccumulationInACapturedFunction) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: nothing is captured";
  const Training mode;
  auto weights = [] { return Tensor({1.f, 2.f}); };
  auto input = [](int i) { return Tensor({1.f + static_cast<float>(i), 3.f}).requires_grad_(false).realize(); };
  const Tensor p = weights(), q = weights(), r = weights();
  SGD one({p}, {.lr = 0.5}), other({q}, {.lr = 0.5}), third({r}, {.lr = 0.5});
  GradAccumulator steps(one, 2), plain(other, 2), alone(third, 2);
  auto both = jit([&](const Tensor& a, const Tensor& b) {
    steps.backward((p * a).square().sum());
    steps.backward((p * b).square().sum());
    return p * 1;
  });
  for (int i = 0; i < 5; i++) {
    const Tensor a = input(i) * 0.01, b = input(i + 3) * 0.01;
    both(a.realize(), b.realize());
    for (const Tensor& x : {a, b}) plain.backward((q * x).square().sum());
    EXPECT_EQ(floats(p), floats(q)) << "call " << i;
  }
  EXPECT_TRUE(both.core().captured());
  auto half = jit([&](const Tensor& a) {
    alone.backward((r * a).sum());
    return r * 1;
  });
  half(input(0));
  EXPECT_THROW(half(input(1)), JitError) << "whether it steps would be frozen";
  const Tensor rate = Tensor(std::vector<float>{0.1f}).realize();
  StepLR schedule(rate, 2, 0.5);
  auto scheduled = jit([&](const Tensor& a) {
    schedule.step();
    return a * rate;
  });
  scheduled(input(0));
  EXPECT_THROW(scheduled(input(1)), JitError);
}

TEST(Train, Ema) {
  const Tensor p = Tensor({1.f, 2.f}), n = Tensor(std::vector<int64_t>{3});
  const Ema ema({p, n}, 0.75);
  p.assign(Tensor({5.f, 6.f})).realize();
  n.assign(Tensor(std::vector<int64_t>{4})).realize();
  ema.update();
  EXPECT_EQ(floats(ema.averages()[0]), (std::vector<float>{2, 3}));
  EXPECT_EQ(ema.averages()[1].item<int>(), 4);
  ema.swap();
  EXPECT_EQ(floats(p), (std::vector<float>{2, 3}));
  EXPECT_EQ(floats(ema.averages()[0]), (std::vector<float>{5, 6}));
  ema.swap();
  EXPECT_EQ(floats(p), (std::vector<float>{5, 6}));
  EXPECT_THROW(Ema({p}, 1.5), ValueError);
}

// ---- mixed precision ----

TEST(Train, LossScalerSkipsInfiniteGradients) {
  const Tensor p = Tensor({1.f, 2.f});
  SGD optimizer({p}, {.lr = 0.5});
  LossScaler scaler({.scale = 1024, .growth = 2, .backoff = 0.5, .interval = 2});
  const Training mode;
  p.set_grad(Tensor({std::numeric_limits<float>::infinity(), 1.f}));
  EXPECT_FALSE(scaler.step(optimizer));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_EQ(floats(p), (std::vector<float>{1, 2}));
  for (int i = 0; i < 2; i++) {
    optimizer.zero_grad();
    scaler.scale(p.sum()).backward();
    EXPECT_EQ(floats(p.grad())[0], 512);
    EXPECT_TRUE(scaler.step(optimizer));
  }
  EXPECT_EQ(floats(p), (std::vector<float>{0, 1}));
  EXPECT_EQ(scaler.scale(), 1024);
  optimizer.zero_grad();
  scaler.scale(p.sum()).backward();
  scaler.unscale({p});
  EXPECT_EQ(floats(p.grad()), (std::vector<float>{1, 1}));
  EXPECT_THROW(scaler.unscale({p}), ValueError);
  EXPECT_THROW(LossScaler({.scale = 0}), ValueError);
}

TEST(Train, MasterWeightsKeepSmallSteps) {
  const Linear model(2, 1);
  model.weight.replace(Tensor({{1.f, 2.f}}));
  const Tensors params = get_parameters(model);
  cast_parameters(params, dtypes::float16);
  EXPECT_EQ(model.weight.dtype(), dtypes::float16);
  const MasterWeights masters(params);
  EXPECT_EQ(masters.masters()[0].dtype(), dtypes::float32);
  SGD optimizer(masters.masters(), {.lr = 1e-4});
  const Training mode;
  for (int i = 0; i < 8; i++) {
    optimizer.zero_grad();
    model(Tensor::ones(Shape{1, 2}, {.dtype = dtypes::float16, .requires_grad = false})).sum().backward();
    masters.take_gradients();
    optimizer.step();
    masters.update();
  }
  EXPECT_NEAR(floats(masters.masters()[0])[1], 2 - 8e-4, 1e-6);
  EXPECT_NEAR(floats(model.weight)[0], 1 - 8e-4, 5e-4) << "steps below half's resolution add up";
  EXPECT_LT(floats(model.weight)[0], 1);
  EXPECT_EQ(model.weight.dtype(), dtypes::float16);
}

// ---- gradient checks ----

TEST(Train, GradientsOfReluNeedOnlyItsResult) {
  // Written in another way, the mask reads what relu was applied to, which is stored as well.
  const auto step = [](bool own) {
    const Tensor x = Tensor::ones(2, 4, 14, 14).contiguous().realize();
    const Tensor w = Tensor::ones(16, 4, 3, 3).contiguous().realize(),
                 v = Tensor::ones(16, 16, 5, 5).contiguous().realize();
    const Tensor h = x.conv2d(w), y = (own ? h.relu() : (h.isnan() | (h > 0)).where(h, 0)).conv2d(v);
    const Tensors gradients = y.square().sum().gradient({w, v});
    const int64_t kernels = GlobalCounters::kernels;
    const int64_t bytes = GlobalCounters::mem;
    realize(gradients);
    return std::pair{GlobalCounters::kernels - kernels, GlobalCounters::mem - bytes};
  };
  const auto own = step(true), other = step(false);
  if (!env::EAGER && env::IMAGE.get() <= 0) {  // images have what they hold in an order of their own
    EXPECT_LT(own.first, other.first);
    EXPECT_LT(own.second, other.second);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x({-1.0, 0.0, 2.0, nan});
  const Tensor dx = (x.relu() * Tensor({5.0, 6.0, 7.0, 8.0})).sum().gradient({x})[0];
  EXPECT_EQ(dx.to_vector<double>(), (std::vector<double>{0, 0, 7, 8}));
  const Tensor z({-1.0, 2.0}), first = z.relu().pow(3).sum().gradient({z})[0];
  EXPECT_EQ(first.sum().gradient({z})[0].to_vector<double>(), (std::vector<double>{0, 12}));
}

TEST(Gradcheck, AgreesForRightGradients) {
  TG_NEEDS_TYPE(dtypes::float64);
  const Tensor x = ramp({2, 3}, 0.125, 0.2f);
  const auto f = [](const Tensor& t) { return t.tanh().matmul(t.transpose()) + t.exp().sum(); };
  EXPECT_TRUE(gradcheck(f, x));
  if (has_type(dtypes::float64)) EXPECT_TRUE(gradcheck(f, x.to_double(), {.eps = 1e-5, .atol = 1e-8, .rtol = 1e-6}));
  EXPECT_EQ(jacobian(f, x).shape(), (Shape{4, 6}));
  expect_close(jacobian([](const Tensor& t) { return t * t; }, Tensor({1.f, 2.f})), std::vector<float>{2, 0, 0, 4},
               1e-6);
}
TEST(Gradcheck, FindsWrongGradients) {
  TG_NEEDS_TYPE(dtypes::float64);
  EXPECT_FALSE(gradcheck([](const Tensor& t) { return t * t.detach(); }, Tensor({1.f, 2.f})));
  EXPECT_THROW(gradcheck([](const Tensor& t) { return t; }, Tensor({1, 2})), DTypeError);
}

}  // namespace
}  // namespace tg::nn
