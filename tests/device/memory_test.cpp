/// \file Memory: limits, errors that name who holds it, what a schedule needs, memory that comes back, and bounds for
/// what nobody realizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

std::string memory_error(const auto& f) {
  try {
    f();
  } catch (const OutOfMemoryError& e) { return e.what(); }
  return "no error";
}
Tensor stored(int64_t rows, int64_t columns, float value) {
  return Tensor::from(std::vector<float>(static_cast<size_t>(rows * columns), value), Shape{rows, columns}).realize();
}

TEST(Memory, LimitIsAnErrorThatNamesWhoHoldsIt) {
  free_memory_caches();
  const Context limit{{"MEMORY_LIMIT", 64}};
  const Tensor a = stored(256, 1024, 1.5f), b = stored(64, 128, 2);
  const int64_t kernels = GlobalCounters::kernels, used = memory_stats().used;
  const std::string what = memory_error([&] { (a.sum() + Tensor::ones({32, 1024, 1024})).contiguous().realize(); });
  EXPECT_THAT(what, AllOf(HasSubstr("134217728 bytes"), HasSubstr("the limit is 67.1 MB"), HasSubstr("live tensors"),
                          HasSubstr("(1048576 bytes) (256, 1024) float32"),
                          HasSubstr("(32768 bytes) (64, 128) float32"), HasSubstr("made by ")));
  EXPECT_LT(what.find("(256, 1024)"), what.find("(64, 128)")) << "largest first";
  if (!env::EAGER) EXPECT_EQ(GlobalCounters::kernels, kernels) << "before the first launch";
  EXPECT_LE(memory_stats().used, used + kMiB / 8) << "what was allocated for it is free again";
  EXPECT_EQ((a.sum(1)(0) + 1).item<float>(), 1.5f * 1024 + 1) << "the process goes on";
  EXPECT_THAT(memory_error([&] { Tensor::from(std::vector<float>(20 << 20), Shape{20, kMiB}); }),
              HasSubstr("(256, 1024) float32"));
  EXPECT_EQ(b.sum().item<float>(), 64 * 128 * 2);
}

TEST(Memory, TooMuchInTheMiddleOfAGraph) {
  if (env::EAGER) GTEST_SKIP() << "operations run one by one";
  free_memory_caches();
  const Tensor a = stored(1, 8192, 1);
  Tensor w = stored(1, 8192, 3);
  const Tensor column = (a * 2).contiguous(), square = (column.reshape(8192, 1) * column).contiguous(),
               row = square.sum(0) + a;
  w.assign(w + row);
  {
    const Context limit{{"MEMORY_LIMIT", 64}};
    EXPECT_THAT(memory_error([&] { realize({row, w}); }),
                AllOf(HasSubstr("intermediates of "), HasSubstr("(32768 bytes) (1, 8192) float32")));
    EXPECT_EQ((a + 1)(0, 0).item<float>(), 2);
    EXPECT_THAT(memory_error([&] { realize({row, w}); }), HasSubstr("live tensors")) << "again";
    EXPECT_EQ(w(0, 7).item<float>(), 3) << "the write that could not be computed is taken back";
  }
  EXPECT_TRUE(a.is_realized());
  EXPECT_FALSE(row.is_realized());
  EXPECT_EQ((column(0, 5) * 8192).item<float>(), 16384) << "parts of the graph are as they were";
}

TEST(Memory, ATrainingStepThatDidNotFitLeavesTheModelUsable) {
  if (env::EAGER) GTEST_SKIP() << "operations run one by one";
  free_memory_caches();
  const Context training{{"TRAINING", 1}}, limit{{"MEMORY_LIMIT", 64}};
  nn::Linear layer(64, 64);
  nn::BatchNorm norm(64);
  auto opt = nn::Adam({layer.weight, layer.bias, norm.weight, norm.bias});
  auto step = [&](int64_t rows) {
    opt.zero_grad();
    Tensor h = norm(layer(Tensor::ones({rows, 64}) * 0.5 + Tensor::arange(64) * 0.01)).contiguous();
    Tensor loss = (h.reshape(Shape{rows, 64, 1}) * h.reshape(Shape{rows, 1, 64})).contiguous().square().mean() +
                  layer.weight.square().sum();
    loss.backward();
    opt.step();
    return loss.item<float>();
  };
  EXPECT_THAT(memory_error([&] { step(20000); }), HasSubstr("live tensors")) << "the very first step";
  EXPECT_GT(step(8), 0);
  const std::vector<float> weight = layer.weight.to_vector<float>(), mean = norm.running_mean.to_vector<float>();
  EXPECT_THAT(memory_error([&] { step(20000); }), HasSubstr("live tensors"));
  EXPECT_EQ(layer.weight.to_vector<float>(), weight);
  EXPECT_GT(step(8), 0);
  EXPECT_NE(layer.weight.to_vector<float>(), weight) << "and trains on";
  EXPECT_EQ(norm.running_mean.to_vector<float>().size(), mean.size());
}

TEST(Memory, CachedBlocksAreGivenBackBeforeAnErrorIsOne) {
  free_memory_caches();
  const Context limit{{"MEMORY_LIMIT", 48}, {"LRU", 1}};
  { Tensor::from(std::vector<float>(8 << 20, 1.f)); }
  EXPECT_GE(memory_stats("").cached, 32 * kMiB);
  const Tensor t = Tensor::from(std::vector<float>(9 << 20, 2.f));  // not the size of what is cached
  EXPECT_EQ(t(5).item<float>(), 2);
  EXPECT_LT(memory_stats().cached, 32 * kMiB);
}

TEST(Memory, FreedTensorsReleaseItAtOnce) {
  if (env::EAGER) GTEST_SKIP() << "results keep what they were computed from, for gradients";
  const int64_t before = memory_stats().used;
  Tensor t = stored(512, 512, 1), u = (t + 1).realize();
  EXPECT_EQ(memory_stats().used, before + 2 * kMiB);
  t = Tensor();
  EXPECT_EQ(memory_stats().used, before + kMiB);
  u = u + 1;
  u.realize();
  EXPECT_EQ(memory_stats().used, before + kMiB);
  u = Tensor();
  EXPECT_EQ(memory_stats().used, before);
}

TEST(Memory, AScheduleKnowsItsPeak) {
  if (env::EAGER) GTEST_SKIP() << "nothing is left to schedule";
  const Tensor a = stored(256, 256, 1);
  const auto chain = [&] {
    Tensor t = a;
    for (int i = 0; i < 8; i++) t = (t + i).contiguous();
    return t;
  };
  const int64_t one = 256 * 256 * 4;
  const Tensor t = chain();
  const MemoryNeeds m = t.schedule().schedule->memory();
  EXPECT_EQ(m.results, one);
  EXPECT_LE(m.intermediates, 2 * one) << "seven values in the memory of two";
  EXPECT_EQ(t.schedule().schedule->memory(a.device()).peak(), m.peak());
  EXPECT_EQ(t.schedule().schedule->memory("DISK:/x").peak(), 0);
  reset_memory_stats();
  const int64_t before = memory_stats().used;
  t.realize();
  EXPECT_EQ(memory_stats().peak - before, m.peak()) << "as announced";
  EXPECT_EQ(memory_stats().used - before, m.results);
  EXPECT_EQ(t.min().item<float>(), 29);
  {
    const Context off{{"NO_MEMORY_PLANNER", 1}};
    const Tensor b = stored(256, 256, 2);
    Tensor u = b;
    for (int i = 0; i < 8; i++) u = (u + i).contiguous();
    EXPECT_EQ(u.schedule().schedule->memory().intermediates, 7 * one);
    EXPECT_EQ(u.max().item<float>(), 30);
  }
}

TEST(Memory, UpdatesInPlaceNeedNone) {
  if (env::EAGER) GTEST_SKIP() << "nothing is left to schedule";
  Tensor w = stored(256, 256, 1), m = stored(256, 256, 0);
  const Tensor g = stored(256, 256, 0.5f);
  m.assign(m * 0.5f + g);
  w.assign(w - m * 0.125f);
  const BoundSchedule s = schedule({m, w});
  EXPECT_EQ(s.schedule->memory().peak(), 0);
  realize({m, w});
  EXPECT_EQ(m(3, 4).item<float>(), 0.5f);
  EXPECT_EQ(w(3, 4).item<float>(), 1 - 0.0625f);
}

// ---- what nobody realizes ----

size_t nodes() { return Graph::global().live_nodes(); }
/// Returns by how much nodes may grow until the live tensors are looked at: PENDING_NODES, or half of those that were
/// there before, of other cases in the process.
size_t growth(size_t pending_nodes, size_t before) { return std::max(pending_nodes, before / 2); }

TEST(Pending, ALoopOfAddsIsComputedOnTheWay) {
  const Context few{{"PENDING_NODES", 400}};
  Tensor x = Tensor({1.f, 2.f}).realize();
  const size_t before = nodes();
  size_t most = 0;
  for (int i = 0; i < 3000; i++) {
    x = x + 1;
    most = std::max(most, nodes());
  }
  EXPECT_LT(most, before + 3 * growth(400, before));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{3001, 3002}));
}

TEST(Pending, TwoLoopsAndAssignments) {
  const Context few{{"PENDING_NODES", 400}};
  Tensor x = Tensor({1.f, 2.f}).realize(), y = Tensor({0.f, 0.f}).realize(), z = Tensor({5.f, 5.f}).realize();
  const size_t before = nodes();
  size_t most = 0;
  for (int i = 0; i < 600; i++) {
    x = x + 1;
    y = y + x * 0.5f;
    z.assign(z + 1);
    most = std::max(most, nodes());
  }
  EXPECT_LT(most, before + 6 * growth(400, before));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{601, 602}));
  EXPECT_EQ(z.to_vector<float>(), (std::vector<float>{605, 605}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0.5f * (600 * 601 / 2 + 600), 0.5f * (600 * 601 / 2 + 1200)}));
}

TEST(Pending, GradientsAreWhatTheyWere) {
  const Context few{{"PENDING_NODES", 200}};
  const Tensor w = Tensor({2.f, 3.f}).realize(), marked = Tensor({1.f, -1.f}).requires_grad_();
  Tensor x = w, y = marked;
  for (int i = 0; i < 300; i++) {
    x = x + w;
    y = y + marked * 2;
  }
  EXPECT_EQ(x.sum().gradient({w})[0].to_vector<float>(), (std::vector<float>{301, 301}));
  y.sum().backward();
  EXPECT_EQ(marked.grad().to_vector<float>(), (std::vector<float>{601, 601}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{602, 903}));
}

TEST(Pending, CapturedFunctionsAreLeftAlone) {
  const Context few{{"PENDING_NODES", 100}};
  auto f = jit([](const Tensor& a) {
    Tensor t = a;
    for (int i = 0; i < 300; i++) t = t + a;
    return t;
  });
  for (int i = 0; i < 4; i++) {
    const float v = static_cast<float>(i);
    EXPECT_EQ(f(Tensor({v, 1.f}).realize()).to_vector<float>(), (std::vector<float>{301 * v, 301}));
  }
}

TEST(Pending, WhatCannotBeComputedStaysPending) {
  const Context few{{"PENDING_NODES", 100}};
  const Variable n("n", 1, 10);
  Tensor t = Tensor({1.f, 2.f}).realize();
  for (int i = 0; i < 150; i++) t = t + n.bind(3).tensor();
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{451, 452}));
}

TEST(Pending, MemoryThatOnlyExpressionsHold) {
  free_memory_caches();
  const Context few{{"PENDING_MB", 1}};
  Tensor x = Tensor::zeros({64, 1024}).contiguous().realize();
  const int64_t before = memory_stats().used;
  int64_t most = 0;
  for (int i = 0; i < 60; i++) {
    x = x + Tensor::from(std::vector<float>(64 * 1024, 1.f), Shape{64, 1024});
    most = std::max(most, memory_stats().used - before);
  }
  EXPECT_LT(most, 6 * kMiB) << "of 15 in all";
  EXPECT_EQ(x.max().item<float>(), 60);
}

TEST(Pending, BudgetsCanBeTurnedOff) {
  if (env::EAGER) GTEST_SKIP() << "operations run one by one";
  const Context off{{"PENDING_NODES", 0}, {"PENDING_MB", 0}};
  Tensor x = Tensor({1.f}).realize();
  const int64_t kernels = GlobalCounters::kernels;
  for (int i = 0; i < 500; i++) x = x + 1;
  EXPECT_EQ(GlobalCounters::kernels, kernels);
  EXPECT_EQ(x.item<float>(), 501);
}

TEST(Memory, AReplayWithoutMemoryDrawsNoRandomNumbers) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself";
  auto numbers = [](bool short_of_memory) {
    Tensor::manual_seed(5);
    auto f = jit([](const Tensor& x) { return (x + Tensor::rand(8 * kMiB / 4)).realize(); });
    const Tensor x = Tensor({1.f}).realize();
    for (int i = 0; i < 3; i++) f(x);
    Tensor held = f(x);
    if (short_of_memory) {
      free_memory_caches();
      const Context limit{{"MEMORY_LIMIT", memory_stats().used / kMiB + 4}};
      EXPECT_NE(memory_error([&] { f(x); }), "no error") << "the last result is held: a new one is needed";
    }
    return f(x)(7).item<float>();
  };
  EXPECT_EQ(numbers(true), numbers(false));
}

}  // namespace
}  // namespace tg
