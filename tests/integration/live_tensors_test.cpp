/// \file What a write, a read or a training step looks at: the nodes and tensors it concerns, however many others live.
#include <gtest/gtest.h>

#include <functional>

#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
constexpr int64_t kOthers = 3000;

/// Returns how many nodes and tensors were looked at while `f` ran.
int64_t searched(const std::function<void()>& f) {
  const int64_t before = GlobalCounters::searched;
  f();
  return GlobalCounters::searched - before;
}

Tensor stored(int64_t n, float v = 1) {
  return Tensor::from(std::vector<float>(static_cast<size_t>(n), v), Shape{n}).realize();
}

/// Tensors of all kinds that have nothing to do with what is measured.
Tensors others(int64_t n) {
  Tensors out;
  const Tensor base = stored(n);
  for (int64_t i = 0; i < n / 4; i++) {
    out.push_back(stored(4, static_cast<float>(i)));                                 // storage
    out.push_back(out.back() * 2 + 1);                                               // pending
    out.push_back(Tensor::full({4}, static_cast<double>(i)).requires_grad_(false));  // no storage
    out.push_back(base.shrink({{i, i + 1}}));                                        // a view
  }
  return out;
}

/// Checks that `f` looks at as much among thousands of other tensors as without them.
void expect_flat(const char* what, const std::function<void()>& f) {
  for (int i = 0; i < 3; i++) f();  // the first times are others: caches, histories
  const int64_t alone = searched(f);
  const Tensors beside = others(kOthers);
  f();
  EXPECT_EQ(searched(f), alone) << what;
  EXPECT_LT(alone, 400) << what;
}

TEST(LiveTensors, AWriteLooksAtItsOwnStorageOnly) {
  const Tensor w = stored(8), v = stored(8);
  const Tensor half = w.shrink({{0, 4}});
  expect_flat("assign", [&] { w.assign(v).realize(); });
  expect_flat("assign of itself", [&] { w.assign(w + 1).realize(); });
  expect_flat("assign to a view", [&] { half.assign(half * 2).realize(); });
  expect_flat("setitem", [&] {
    w.setitem({3}, 5.0f);
    w.realize();
  });
  expect_flat("a pending reader", [&] {
    const Tensor reader = w * 3;
    w.assign(v).realize();
    EXPECT_EQ(reader.to_vector<float>().size(), 8u);
  });
}

TEST(LiveTensors, AStepLooksAtItsOwnGraphOnly) {
  const nn::Training training;
  Tensor w = stored(8);
  nn::SGD opt({w}, {.lr = 0.1});
  const Tensor x = stored(8, 2);
  expect_flat("step", [&] {
    opt.zero_grad();
    (w * x).square().sum().backward();
    opt.step();
  });
  expect_flat("read", [&] { EXPECT_GE((w * x).sum().item<float>(), -1e30f); });
}

TEST(LiveTensors, OwnersAreFoundAmongThousands) {
  const Tensors beside = others(kOthers);
  const Tensor w = stored(8), other = stored(8), view = w.shrink({{0, 4}});
  const nn::StateDict model{{"w", w}, {"other", other}}, values{{"w", stored(8, 3)}, {"other", stored(8, 4)}};
  EXPECT_LT(searched([&] { nn::load_state_dict(model, values); }), 400);
  EXPECT_EQ(other.to_vector<float>(), std::vector<float>(8, 4));
  EXPECT_EQ(w.to_vector<float>(), std::vector<float>(8, 3));
  EXPECT_EQ(view.to_vector<float>(), std::vector<float>(4, 1)) << "the view keeps the storage it shows";
}

/// Returns how many nodes and tensors a step of `layers` layers looks at.
int64_t searched_by_step(int64_t layers) {
  const nn::Training training;
  Tensors weights;
  for (int64_t i = 0; i < layers; i++) weights.push_back(Tensor::full({4, 4}, 0.1).contiguous().realize());
  nn::AdamW opt(weights, {});
  const Tensor x = stored(4).reshape({1, 4});
  const auto step = [&] {
    opt.zero_grad();
    Tensor y = x;
    for (const Tensor& w : weights) y = y.matmul(w).relu() + y;
    const Tensor loss = y.square().mean();
    loss.backward();
    opt.step();
    loss.realize();
  };
  step();
  return searched(step);
}

TEST(LiveTensors, StepsGrowWithTheNumberOfLayers) {
  const int64_t few = searched_by_step(8), many = searched_by_step(64);
  EXPECT_LT(many, few * 8 * 11 / 10);
  EXPECT_LT(many, 64 * 400);
}

TEST(LiveTensors, ReplaysOfAStepLookAtNone) {
  const nn::Training training;
  Tensor::manual_seed(1);
  const nn::Linear first(4, 4), second(4, 4);
  nn::AdamW opt({first.weight, first.bias, second.weight, second.bias}, {});
  auto step = jit([&](const Tensor& x) {
    opt.zero_grad();
    const Tensor loss = second(first(x).relu()).square().mean();
    loss.backward();
    opt.step();
    return loss.realize();
  });
  const Tensor x = stored(8).reshape({2, 4});
  for (int i = 0; i < 4; i++) step(x);
  EXPECT_EQ(searched([&] { step(x); }), 0);
  // A view of what the step overwrites follows it; an expression of the view has the values of before.
  const Tensor view = second.bias.grad().reshape({2, 2});
  step(x);
  const std::vector<float> before = view.to_vector<float>();
  const Tensor twice = view * 2;
  step(x);
  const std::vector<float> doubled = twice.to_vector<float>(), now = view.to_vector<float>();
  EXPECT_NE(before, now);
  for (size_t i = 0; i < before.size(); i++) EXPECT_EQ(doubled[i], 2 * before[i]);
}

TEST(LiveTensors, TheCountStartsAgainWithTheOthers) {
  stored(4).assign(stored(4)).realize();
  EXPECT_GT(GlobalCounters::searched, 0);
  GlobalCounters::reset();
  EXPECT_EQ(GlobalCounters::searched, 0);
}

}  // namespace
}  // namespace tg
