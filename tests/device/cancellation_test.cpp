/// \file Stopping: schedules, compilations, runs and replays end soon, tensors stay as they were, and everything works
/// afterwards.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

using std::chrono::milliseconds;

double seconds_of(const auto& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
/// Requests a stop after a while.
struct StopAfter {
  std::stop_source source;
  std::jthread thread;
  explicit StopAfter(milliseconds ms)
      : thread([this, ms] {
          std::this_thread::sleep_for(ms);
          source.request_stop();
        }) {}
};

TEST(Cancellation, NothingRunsOnceItIsRequested) {
  const Tensor a = Tensor({1.f, 2.f}).realize();
  std::stop_source source;
  source.request_stop();
  Tensor b = Tensor({0.f, 0.f}).realize();
  {
    const Context lazy{{"EAGER", 0}};
    b = a * 3;
    const StopScope scope(source.get_token());
    EXPECT_THROW(b.realize(), Cancelled);
    EXPECT_THROW(b.to_vector<float>(), Cancelled) << "still";
  }
  EXPECT_FALSE(b.is_realized());
  EXPECT_EQ(b.to_vector<float>(), (std::vector<float>{3, 6}));
}

TEST(Cancellation, ScopesNestAndEnd) {
  const Context lazy{{"EAGER", 0}};
  std::stop_source outer;
  std::atomic<bool> flag{false};
  {
    const StopScope a(outer.get_token());
    {
      const StopScope b(flag);
      Tensor({1.f}).realize();
      flag = true;
      EXPECT_THROW((Tensor({1.f}) + 41).realize(), Cancelled);
    }
    EXPECT_EQ((Tensor({1.f}) + 42).item<float>(), 43);
    outer.request_stop();
    EXPECT_THROW((Tensor({1.f}) + 43).realize(), Cancelled);
  }
  EXPECT_EQ((Tensor({1.f}) + 44).item<float>(), 45);
}

TEST(Cancellation, ARunOfManyKernels) {
  const Context lazy{{"EAGER", 0}};
  const int64_t n = interprets_kernels() ? 24 : 512;
  const Tensor a = (Tensor::eye(n) * 0.5f).contiguous().realize();
  Tensor w = Tensor({1.f, 2.f}).realize();
  Tensor t = a;
  for (int i = 0; i < 2000; i++) t = t.matmul(a).contiguous();
  t = t + 1;
  w.assign(w + t(0, 1));  // at the end
  const int64_t before = GlobalCounters::kernels;
  {
    StopAfter stop(milliseconds(60));
    const StopScope scope(stop.source.get_token());
    bool cancelled = false;
    const double seconds = seconds_of([&] {
      try {
        realize({t, w});
      } catch (const Cancelled&) { cancelled = true; }
    });
    EXPECT_TRUE(cancelled);
    EXPECT_LT(seconds, 1.5) << "the whole takes many seconds";
    EXPECT_LT(GlobalCounters::kernels - before, 2001);
  }
  EXPECT_FALSE(t.is_realized());
  EXPECT_EQ(a.sum().item<float>(), static_cast<float>(n) / 2);
  const Tensor fresh = Tensor({1.f, 2.f}).realize();
  EXPECT_EQ((fresh * 2).to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(Cancellation, AssignmentsHappenTogetherOrNotAtAll) {
  const Context lazy{{"EAGER", 0}};
  const int64_t n = interprets_kernels() ? 16 : 256;
  Tensor u = Tensor::zeros({n, n}).contiguous().realize(), v = Tensor::zeros({n, n}).contiguous().realize();
  const Tensor a = (Tensor::eye(n)).contiguous().realize();
  int done = 0, stopped = 0;
  for (int round = 0; round < 12; round++) {
    Tensor t = a;
    for (int i = 0; i < 20; i++) t = t.matmul(a).contiguous();
    const Tensor before_u = u.clone().realize(), before_v = v.clone().realize();
    Tensor next_u = u + t, next_v = v + t;
    bool cancelled = false;
    {
      StopAfter stop{milliseconds(round)};
      const StopScope scope(stop.source.get_token());
      try {
        u.assign(next_u);
        v.assign(next_v);
        realize({u, v});
      } catch (const Cancelled&) { cancelled = true; }
    }
    (cancelled ? stopped : done)++;
    realize({u, v});  // what was stopped is still pending
    const float expected = static_cast<float>(round + 1);
    EXPECT_EQ(u(1, 1).item<float>(), expected) << round;
    EXPECT_EQ(v(1, 1).item<float>(), expected) << round;
  }
  EXPECT_EQ(done + stopped, 12);
}

TEST(Cancellation, Compiling) {
  const Context lazy{{"EAGER", 0}, {"CCACHE", 0}, {"PARALLEL", 1}};
  Tensors all;
  for (int64_t i = 1; i <= 300; i++) all.push_back((Tensor::ones({i, 7}).contiguous().sum(0) * i).exp());
  const int64_t before = GlobalCounters::compiled;
  StopAfter stop(milliseconds(40));
  bool cancelled = false;
  {
    const StopScope scope(stop.source.get_token());
    try {
      realize(all);
    } catch (const Cancelled&) { cancelled = true; }
  }
  EXPECT_TRUE(cancelled);
  EXPECT_LT(GlobalCounters::compiled - before, 500);
  EXPECT_NEAR((Tensor::ones({4}) * 2).exp().sum().item<float>(), 4 * 7.389056f, 1e-3);
  EXPECT_FALSE(all.back().is_realized());
}

TEST(Cancellation, Replaying) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself";
  Tensor state = Tensor({0.f}).realize();
  auto f = jit([&](const Tensor& x) {
    Tensor t = x;
    for (int i = 0; i < 50; i++) t = (t + 1).contiguous();
    state.assign(state + t);
    return t.realize();
  });
  const auto input = [](float v) { return Tensor({v}).contiguous().realize(); };
  for (int i = 0; i < 3; i++) f(input(1));
  const float before = state.item<float>();
  std::stop_source source;
  source.request_stop();
  const Tensor x = input(2);
  {
    const StopScope scope(source.get_token());
    EXPECT_THROW(f(x), Cancelled);
  }
  EXPECT_EQ(state.item<float>(), before);
  EXPECT_EQ(f(input(3)).item<float>(), 53);
  EXPECT_EQ(state.item<float>(), before + 53);
}

TEST(Cancellation, RandomNumbersOfAReplayAreNotLost) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself";
  auto numbers = [](bool stops) {
    Tensor::manual_seed(11);
    auto f = jit([&](const Tensor& x) { return ((x + Tensor::rand(4)).contiguous() * Tensor::rand(4)).realize(); });
    std::vector<std::vector<float>> out;
    for (int i = 0; i < 6; i++) {
      const Tensor x = Tensor({1.f, 2.f, 3.f, static_cast<float>(i)}).contiguous().realize();
      if (stops && i >= 2) {
        std::stop_source source;
        source.request_stop();
        const StopScope scope(source.get_token());
        EXPECT_THROW(f(x), Cancelled);
      }
      out.push_back(f(x).to_vector<float>());
    }
    EXPECT_TRUE(f.core().captured());
    return out;
  };
  EXPECT_EQ(numbers(true), numbers(false));
}

}  // namespace
}  // namespace tg
