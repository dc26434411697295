/// \file TaskGraph: order, visibility of what was written, few threads, busy pools, exceptions.
#include "tinygrad/runtime/task_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

namespace tg {
namespace {
using Before = std::vector<std::vector<uint32_t>>;

/// Each task adds up what those before it wrote, without atomics: a missing order is a wrong sum, and a data race for
/// the thread sanitizer.
std::vector<int64_t> sums(TaskGraph& graph, const Before& before, ThreadPool& pool, int threads) {
  std::vector<int64_t> value(before.size(), 0);
  graph.run(pool, threads, [&](uint32_t t) {
    int64_t v = t + 1;
    for (uint32_t b : before[t]) v = (v * 31 + value[b]) % 1000003;
    value[t] = v;
  });
  return value;
}

TEST(TaskGraph, EveryTaskAfterThoseItWaitsFor) {
  std::mt19937 random(3);
  ThreadPool pool(4);
  for (int program = 0; program < 40; program++) {
    Before before(1 + random() % 60);
    for (uint32_t t = 1; t < before.size(); t++)
      for (uint32_t b = 0; b < t; b++)
        if (random() % before.size() < 2) before[t].push_back(b);
    TaskGraph graph(before);
    ThreadPool one(1);
    const std::vector<int64_t> want = sums(graph, before, one, 1);
    for (int threads : {1, 2, 3, 4, 100})
      for (int again = 0; again < 5; again++)
        ASSERT_EQ(sums(graph, before, pool, threads), want) << program << ", " << threads << " threads";
  }
}

TEST(TaskGraph, InsideOfAnotherJobOfThePool) {
  ThreadPool pool(2);
  const Before before{{}, {}, {0, 1}, {2}, {2}, {3, 4}};
  std::vector<TaskGraph> graphs;
  for (int i = 0; i < 8; i++) graphs.emplace_back(before);
  const std::vector<int64_t> want = sums(graphs[0], before, pool, 2);
  std::vector<std::vector<int64_t>> got(8);
  pool.parallel_for(0, 8, 1, [&](int64_t b, int64_t e) {
    for (; b < e; b++) got[static_cast<size_t>(b)] = sums(graphs[static_cast<size_t>(b)], before, pool, 2);
  });
  for (const auto& g : got) EXPECT_EQ(g, want);
}

TEST(TaskGraph, AnExceptionEndsTheRunAndNotTheGraph) {
  ThreadPool pool(3);
  Before before(20);
  for (uint32_t t = 1; t < 20; t++) before[t] = {t / 2};
  TaskGraph graph(before);
  for (int i = 0; i < 10; i++) {
    std::vector<int> ran(20, 0);
    EXPECT_THROW(graph.run(pool, 3,
                           [&](uint32_t t) {
                             if (t == 2) throw std::runtime_error("two");
                             ran[t] = 1;
                           }),
                 std::runtime_error);
    EXPECT_EQ(ran[5], 0) << "it waits for 2";
    EXPECT_EQ(sums(graph, before, pool, 3).size(), 20u);
  }
}

TEST(TaskGraph, Empty) {
  TaskGraph graph(Before{});
  graph.run(ThreadPool::global(), 2, [](uint32_t) { FAIL(); });
}

}  // namespace
}  // namespace tg
