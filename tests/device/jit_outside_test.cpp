/// \file Captured functions and what is computed outside of them: a capture computes what it builds, reads what it is
/// given as storage, and says so when that is gone.
#include <gtest/gtest.h>

#include <thread>

#include "several_devices.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;
Floats floats(const Tensor& t) { return t.to_vector<float>(); }
Tensor vec(float a, float b) { return Tensor({a, b}).contiguous().realize(); }

/// Calls a function of x and w that is captured, five times, while `look` holds what it computes of them between the
/// calls and w grows: it always sees the new w.
void expect_fresh_sums(bool marked, const std::function<Tensor(const Tensor& x, const Tensor& w)>& look) {
  Tensor x = vec(3, 4), w = vec(1, 2);
  if (marked) w.requires_grad_();
  auto f = jit([&](const Tensor& given) { return (given * w).sum(); });
  for (int i = 0; i < 5; i++) {
    const float k = static_cast<float>(i);
    const Tensor held = look(x, w);
    EXPECT_EQ(f(x).item<float>(), 11 + 7 * k) << "call " << i << (marked ? ", marked" : "");
    if (held.defined()) EXPECT_EQ(held.item<float>(), 11 + 7 * k);
    w.assign(w.detach() + 1).realize();
  }
}

TEST(JitOutside, AnEqualExpressionThatWasReadIsComputedAgain) {
  for (const bool marked : {false, true}) {
    const auto sum = [](const Tensor& x, const Tensor& w) { return (x * w).sum(); };
    expect_fresh_sums(marked, [&](const Tensor& x, const Tensor& w) {
      Tensor t = sum(x, w);
      t.item<float>();
      return t;
    });
    expect_fresh_sums(marked, [&](const Tensor& x, const Tensor& w) { return sum(x, w).realize(); });
    expect_fresh_sums(marked, sum);
    expect_fresh_sums(marked, [&](const Tensor& x, const Tensor& w) {
      sum(x, w).item<float>();
      return Tensor();
    });
    expect_fresh_sums(marked, [&](const Tensor& x, const Tensor& w) {
      Tensor t;
      std::thread([&] { t = sum(x, w).realize(); }).join();
      return t;
    });
    auto other = jit(sum);
    expect_fresh_sums(marked, [&](const Tensor& x, const Tensor& w) { return other(x.clone(), w.detach().clone()); });
  }
}

TEST(JitOutside, StoredPartsOfAnEqualExpressionAreComputedAgain) {
  Tensor w = vec(1, 2);
  auto f = jit([&](const Tensor& x) { return (w * 2).contiguous() + x; });
  for (int i = 0; i < 4; i++) {
    const float k = static_cast<float>(i);
    const Tensor doubled = (w * 2).contiguous().realize();
    EXPECT_EQ(floats(f(vec(1, 1))), (Floats{3 + 2 * k, 5 + 2 * k}));
    w.assign(w + 1).realize();
  }
}

TEST(JitOutside, AConstantThatWasStoredAndWrittenIsMadeAgain) {
  auto f = jit([](const Tensor& x) { return Tensor::arange(2).to_float() + x; });
  Tensor places = Tensor::arange(2).to_float().contiguous().realize();
  for (int i = 0; i < 4; i++) {
    EXPECT_EQ(floats(f(vec(1, 1))), (Floats{1, 2}));
    places.assign(places + 10).realize();
  }
}

TEST(JitOutside, ATensorThatWasComputedBeforeIsState) {
  for (const bool marked : {false, true}) {
    Tensor w = vec(1, 2);
    if (marked) w.requires_grad_();
    Tensor h = w * 10;
    floats(h);
    auto f = jit([&](const Tensor& x) { return h + w * 10 * x; });
    for (int i = 0; i < 5; i++) {
      const float k = static_cast<float>(i);
      EXPECT_EQ(floats(f(vec(1, 1))), (Floats{20 + 10 * k, 40 + 10 * k})) << i;
      w.assign(w.detach() + 1).realize();
    }
    h.assign(Tensor({0.f, 0.f}));
    EXPECT_EQ(floats(f(vec(0, 0))), (Floats{0, 0})) << "what is written to its storage is seen";
  }
}

TEST(JitOutside, APendingTensorKeepsTheValueItHadWhenItWasBuilt) {
  Tensor w = vec(1, 2), h = w * 10;
  auto f = jit([&](const Tensor& x) {
    Tensor sum = h + x;
    w.assign(w + 1);
    return sum;
  });
  for (int i = 0; i < 5; i++) {
    const float k = static_cast<float>(i);
    EXPECT_EQ(floats(f(vec(k, 0))), (Floats{10 + k, 20})) << i;
    EXPECT_EQ(floats(w), (Floats{2 + k, 3 + k}));
  }
}

TEST(JitOutside, GradientsPassThroughWhatWasComputedBefore) {
  Tensor w = vec(1, 2).requires_grad_(), h = (w * w).sum();
  EXPECT_EQ(h.item<float>(), 5);
  auto f = jit([&](const Tensor& x) {
    w.zero_grad();
    Tensor loss = (h * x).sum() + (w * w).sum();
    loss.backward();
    return loss;
  });
  for (int i = 0; i < 4; i++) {
    const float k = static_cast<float>(i);
    EXPECT_EQ(f(vec(k, 1)).item<float>(), 5 * (k + 1) + 5);
    EXPECT_EQ(floats(w.grad()), (Floats{2 * (k + 2), 4 * (k + 2)})) << i;
  }
}

TEST(JitOutside, WhatAnArgumentWasComputedFromGetsNoGradientSilently) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: the gradient is computed";
  Tensor a = vec(1, 2).requires_grad_(), w = vec(3, 4).requires_grad_();
  auto f = jit([&](const Tensor& x) { return (x * w).sum().backward(); });
  for (int i = 0; i < 4; i++) {
    a.zero_grad();
    w.zero_grad();
    Tensor x = a * 2;
    f(x);
    EXPECT_EQ(floats(w.grad()), (Floats{2, 4}));
    if (i == 0) EXPECT_EQ(floats(a.grad()), (Floats{6, 8})) << "the function itself";
    if (i == 1) EXPECT_THROW(a.grad(), GradientError) << "the capture";
  }
}

TEST(JitOutside, SizesThatAreVariables) {
  Tensor w = (Tensor::arange(8).to_float() + 1).contiguous().realize();
  auto f = jit([&](const Tensor& x) { return (x * 2).sum() + w.sum(); });
  for (int n = 2; n < 7; n++) {
    const Tensor part = w.shrink({{0, Variable("n", 1, 8).bind(n)}}), held = (part * 2).sum().realize();
    EXPECT_EQ(f(part).item<float>(), static_cast<float>(n * (n + 1) + 36)) << n;
    EXPECT_EQ(held.item<float>(), static_cast<float>(n * (n + 1)));
  }
}

TEST(JitOutside, ShardedTensors) {
  if (const std::string why = several_devices_missing(2); !why.empty()) GTEST_SKIP() << why;
  const std::string device = Device::default_name();
  const std::vector<std::string> both{device, device + ":1"};
  Tensor w = Tensor({1.f, 2.f, 3.f, 4.f}).shard(both, 0).contiguous().realize();
  Tensor lazy = w * 10;
  auto f = jit([&](const Tensor& x) { return (w * x).sum() + lazy.sum(); });
  for (int i = 0; i < 5; i++) {
    const float k = static_cast<float>(i);
    Tensor x = Tensor({1.f, 1.f, 1.f, 1.f}).shard(both, 0).contiguous().realize();
    const Tensor held = (w * x).sum().realize();
    EXPECT_EQ(f(x).item<float>(), 110 + 4 * k) << i;
    w.assign(w + 1).realize();
  }
}

TEST(JitOutside, AFunctionInsideOfAnother) {
  Tensor w = vec(1, 2);
  auto inner = jit([&](const Tensor& x) { return (x * w).sum(); });
  auto outer = jit([&](const Tensor& x) { return inner(x) + (x * w).sum(); });
  for (int i = 0; i < 5; i++) {
    const float k = static_cast<float>(i);
    Tensor x = vec(3, 4);
    const Tensor held = inner(x);
    EXPECT_EQ(outer(x).item<float>(), 2 * (11 + 7 * k)) << i;
    w.assign(w + 1).realize();
  }
}

TEST(JitOutside, ThreadsTrainWithATableTheyOnlyRead) {
  const Tensor table = vec(1, 2);
  std::vector<Floats> losses(4);
  const auto train = [&](Floats& out) {
    const nn::Training mode;
    Tensor w = vec(1, 1);
    nn::SGD opt({w}, {.lr = 0.125});
    auto step = jit([&](const Tensor& x) {
      opt.zero_grad();
      Tensor loss = (table * w * x).sum().square().backward();
      opt.step();
      return loss;
    });
    for (int i = 0; i < 6; i++) out.push_back(step(vec(0.5f, 0.25f)).item<float>());
  };
  std::vector<std::thread> threads;
  for (Floats& out : losses) threads.emplace_back(train, std::ref(out));
  for (std::thread& t : threads) t.join();
  Floats alone;
  train(alone);
  for (const Floats& out : losses) EXPECT_EQ(out, alone);
  EXPECT_NE(alone[2], alone[5]);
}

TEST(JitOutside, ATensorInTheOthersPlaceIsAnError) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: it sees the new tensor";
  struct {
    Tensor weight = vec(1, 2);
  } layer;
  auto f = jit([&](const Tensor& x) { return x * layer.weight; });
  for (int i = 0; i < 3; i++) EXPECT_EQ(floats(f(vec(1, 1))), (Floats{1, 2}));
  layer.weight = vec(5, 6);
  for (int i = 0; i < 2; i++) {
    try {
      f(vec(1, 1));
      FAIL();
    } catch (const JitError& e) {
      EXPECT_EQ(std::string(e.what()),
                "[jit] got another tensor in the place of a float32 tensor of shape (2,) that function was captured "
                "with, expected the same one: assign() the new value to it, or reset()");
    }
  }
  f.reset();
  for (int i = 0; i < 3; i++) EXPECT_EQ(floats(f(vec(1, 1))), (Floats{5, 6}));
  layer.weight.replace(vec(7, 8));
  EXPECT_THROW(f(vec(1, 1)), JitError);
  f.reset();
  for (int i = 0; i < 3; i++) EXPECT_EQ(floats(f(vec(1, 1))), (Floats{7, 8}));
  layer.weight.assign(vec(9, 1));
  EXPECT_EQ(floats(f(vec(1, 1))), (Floats{9, 1}));
}

}  // namespace
}  // namespace tg
