/// \file Kernels and threads: the same numbers on any number of them, and several threads of a program that share the
/// pool.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "tinygrad/base/env.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

std::vector<float> numbers(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = normal(random);
  return v;
}
Tensor tensor(const std::vector<int64_t>& shape, uint32_t seed = 1) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return Tensor::from(numbers(n, seed), Shape(std::span<const int64_t>(shape)));
}

TEST(Threads, ResultsDoNotDependOnTheirNumber) {
  const Tensor wide = tensor({700, 1500}).realize(), flat = tensor({3000000}).realize(),
               a = tensor({257, 300}, 2).realize(), b = tensor({300, 131}, 3).realize(),
               image = tensor({4, 16, 33, 33}, 4).realize(), filter = tensor({24, 16, 3, 3}, 5).realize();
  const std::vector<std::pair<const char*, std::function<Tensor()>>> cases{
      {"sum of everything", [&] { return flat.sum(); }},
      {"mean of everything", [&] { return flat.mean(); }},
      {"max of everything", [&] { return flat.max(); }},
      {"sum of squares", [&] { return (flat * flat).sum(); }},
      {"sum of columns", [&] { return wide.sum(0); }},
      {"sum of rows", [&] { return wide.sum(1); }},
      {"deviation", [&] { return wide.std(1); }},
      {"softmax", [&] { return wide.softmax(1); }},
      {"log softmax of columns", [&] { return wide.log_softmax(0); }},
      {"layernorm", [&] { return wide.layernorm(); }},
      {"running sum", [&] { return wide.cumsum(1); }},
      {"product", [&] { return a.matmul(b); }},
      {"product with a transpose", [&] { return wide.matmul(wide.transpose()); }},
      {"vector product", [&] { return wide.matmul(tensor({1500}, 6)); }},
      {"convolution", [&] { return image.conv2d(filter); }},
      {"weight gradient",
       [&] {
         Tensor w = filter.detach();
         w.requires_grad_();
         image.conv2d(w).square().sum().backward();
         return w.grad();
       }},
      {"elementwise", [&] { return (wide.exp() + wide * 3).gelu(); }},
  };
  for (const auto& [name, compute] : cases) {
    std::vector<float> one;
    for (int threads : {1, 2, 3, 5}) {
      const Context context{{"NUM_CPU_THREADS", threads}};
      const std::vector<float> got = compute().to_vector<float>();
      if (threads == 1) one = got;
      ASSERT_EQ(got.size(), one.size());
      EXPECT_EQ(std::memcmp(got.data(), one.data(), one.size() * sizeof(float)), 0)
          << name << " on " << threads << " threads";
    }
  }
}

/// A write that one thread is making is not made again by another that finds it pending, however long its kernels take
/// to compile.
TEST(Threads, EachWriteToASharedTensorHappensOnce) {
  const Tensor total = Tensor::zeros(1).contiguous().realize();
  const int rounds = 20;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      for (int k = 0; k < rounds; k++) {
        Tensor handle = total;
        handle += k * 4 + t + 1;  // another kernel each time
        handle.realize();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(total.item<float>(), 80 * 81 / 2);
}

/// The readers of what is overwritten see it as it was when their read was written down.
TEST(Threads, ReadersOfASharedTensorSeeWholeWrites) {
  const Tensor shared = Tensor::zeros(50000).contiguous().realize();
  std::atomic<int> torn{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 15; k++) {
        if (t == 0) {
          Tensor handle = shared;
          (handle += 1).realize();
        } else {
          const Tensor seen = shared * 2;  // read once: two reads may have a write between them
          const Tensor range = (seen.max() - seen.min() + seen * (k * 2 + t) * 0).max();
          torn += range.item<float>() != 0;
        }
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(shared(0).item<float>(), 15);
}

#if defined(__linux__)
int threads_of_this_process() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) n++;
  return n;
}

/// One pool for all: threads of the program that find it busy compute alone, so that no more threads run than the
/// program's own and the pool's.
TEST(Threads, ThoseOfTheProgramShareThePool) {
  constexpr int kThreads = 4, kRounds = 12, kOfPool = 3;
  const Context context{{"NUM_CPU_THREADS", kOfPool}};
  const Tensor a = tensor({400, 400}, 2).realize(), b = tensor({400, 400}, 3).realize();
  auto work = [&](float scale) { return ((a * scale).matmul(b).sum(1) + a.sum(1)).to_vector<float>(); };
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < kThreads; i++) expected.push_back(work(static_cast<float>(i)));
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  for (int i = 0; i < kThreads * kRounds; i++) work(static_cast<float>(i % kThreads));
  const double in_turn = std::chrono::duration<double>(Clock::now() - begin).count();
  const int before = threads_of_this_process();
  std::atomic<int> wrong{0}, most{0};
  std::atomic<bool> done{false};
  begin = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++)
    threads.emplace_back([&, i] {
      const Context own{{"NUM_CPU_THREADS", kOfPool}};
      for (int r = 0; r < kRounds; r++) wrong += work(static_cast<float>(i)) != expected[static_cast<size_t>(i)];
    });
  std::thread watch([&] {
    while (!done) {
      most = std::max(most.load(), threads_of_this_process());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (std::thread& t : threads) t.join();
  const double at_once = std::chrono::duration<double>(Clock::now() - begin).count();
  done = true;
  watch.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(most, before + kThreads + 1 + kOfPool - 1)
      << "the program's threads, the one that watches, the pool's workers";
  EXPECT_LT(at_once, in_turn * 4 + 0.5) << "the same work by several threads, against one after another";
}
#endif

}  // namespace
}  // namespace tg
