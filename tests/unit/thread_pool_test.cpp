/// \file ThreadPool: coverage of the range, real parallelism, nesting, several callers, exceptions, fork.
#include "tinygrad/runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tinygrad/base/env.h"

using tg::ThreadPool;

namespace {
/// Allocations this thread may still make before one fails; -1: all succeed.
thread_local int allocations_left = -1;
}  // namespace

// Not inlined: the compiler takes a free() it sees for one of other memory.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) allocations_left--;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace {

std::vector<int> counts(ThreadPool& pool, int64_t begin, int64_t end, int64_t grain, int max_threads = 0) {
  std::vector<std::atomic<int>> hits(static_cast<size_t>(end - begin));
  pool.parallel_for(
      begin, end, grain,
      [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) ++hits[static_cast<size_t>(i - begin)];
      },
      max_threads);
  return std::vector<int>(hits.begin(), hits.end());
}

TEST(ThreadPool, VisitsEachItemOnce) {
  ThreadPool pool(4);
  for (int64_t n : {1, 2, 3, 7, 64, 1000, 12345})
    for (int64_t grain : {1, 3, 100, 100000})
      EXPECT_EQ(counts(pool, -5, n - 5, grain), std::vector<int>(static_cast<size_t>(n), 1)) << n << " " << grain;
  pool.parallel_for(3, 3, 1, [](int64_t, int64_t) { FAIL() << "an empty range has no pieces"; });
}

/// Two threads meet inside the loop: neither leaves before the other came. A pool that runs pieces one after another
/// would time out.
TEST(ThreadPool, TwoThreadsRunAtOnce) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> arrived{0};
    std::atomic<bool> met{true};
    std::mutex mutex;
    std::set<std::thread::id> ids;
    pool.parallel_for(0, 2, 1, [&](int64_t, int64_t) {
      {
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      ++arrived;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived < 2)
        if (std::chrono::steady_clock::now() > deadline) {
          met = false;
          return;
        } else {
          std::this_thread::yield();
        }
    });
    ASSERT_TRUE(met);
    ASSERT_EQ(ids.size(), 2u);
  }
}

#if defined(__linux__)
TEST(ThreadPool, WorkersCanBePinned) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  for (int pinned : {1, 0}) {
    const tg::Context context{{"CPU_PINNING", pinned}};
    ThreadPool pool(2);
    std::atomic<int> arrived{0}, processors{0};
    const auto caller = std::this_thread::get_id();
    pool.parallel_for(0, 2, 1, [&](int64_t, int64_t) {
      ++arrived;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
      cpu_set_t mine;
      if (std::this_thread::get_id() != caller && sched_getaffinity(0, sizeof(mine), &mine) == 0)
        processors = CPU_COUNT(&mine);
    });
    ASSERT_EQ(arrived, 2);
    if (pinned) EXPECT_EQ(processors, 1);
    else EXPECT_GE(processors, std::max(1, CPU_COUNT(&allowed) - 1)) << "at most the caller's is avoided";
  }
}
#endif

TEST(ThreadPool, RespectsTheThreadLimit) {
  ThreadPool pool(4);
  std::atomic<int> now{0}, most{0};
  pool.parallel_for(
      0, 64, 1,
      [&](int64_t, int64_t) {
        const int n = ++now;
        int seen = most.load();
        while (n > seen && !most.compare_exchange_weak(seen, n)) {}
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        --now;
      },
      2);
  EXPECT_LE(most, 2);
  const auto self = std::this_thread::get_id();
  pool.parallel_for(0, 64, 1, [&](int64_t, int64_t) { EXPECT_EQ(std::this_thread::get_id(), self); }, 1);
}

TEST(ThreadPool, NestedCallsRunInline) {
  ThreadPool pool(3);
  std::atomic<int> total{0};
  pool.parallel_for(0, 12, 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i)
      pool.parallel_for(0, 10, 1, [&, self = std::this_thread::get_id()](int64_t b2, int64_t e2) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        total += static_cast<int>(e2 - b2);
      });
  });
  EXPECT_EQ(total, 120);
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        if (counts(pool, 0, 50, 1) != std::vector<int>(50, 1)) ++wrong;
    });
  for (auto& c : callers) c.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ExceptionsReachTheCaller) {
  ThreadPool pool(3);
  for (int64_t bad : {0, 17, 99}) {
    auto run = [&] {
      pool.parallel_for(0, 100, 1, [&](int64_t b, int64_t e) {
        if (b <= bad && bad < e) throw std::runtime_error("item " + std::to_string(bad));
      });
    };
    try {
      run();
      FAIL() << "no exception";
    } catch (const std::runtime_error& e) { EXPECT_EQ(e.what(), "item " + std::to_string(bad)); }
    EXPECT_EQ(counts(pool, 0, 100, 1), std::vector<int>(100, 1)) << "the pool works after an exception";
  }
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(2);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the spin
    EXPECT_EQ(counts(pool, 0, 100, 1), std::vector<int>(100, 1));
  }
}

#if !defined(__SANITIZE_THREAD__)
TEST(ThreadPool, WorksInAForkedChild) {
  EXPECT_EQ(counts(ThreadPool::global(), 0, 100, 1, 2), std::vector<int>(100, 1));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    _exit(counts(ThreadPool::global(), 0, 1000, 1, 2) == std::vector<int>(1000, 1) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

TEST(ThreadPool, WithoutMemoryForThreadsItGoesOnWithThoseItHas) {
  for (int allowed = 0; allowed < 6; allowed++) {
    ThreadPool pool(4);
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, nullptr, &before);
    std::atomic<int64_t> sum{0};
    const auto add = [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; i++) sum += i;
    };
    allocations_left = allowed;
    pool.parallel_for(0, 100, 1, add);
    allocations_left = -1;
    EXPECT_EQ(sum, 4950) << allowed;
    pthread_sigmask(SIG_SETMASK, nullptr, &after);
    for (int signal = 1; signal < 32; signal++) EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
    std::set<std::thread::id> ids;
    std::mutex mutex;
    std::atomic<int> arrived{0};
    const auto meet = [&](int64_t, int64_t) {
      {
        std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
      }
      ++arrived;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (arrived < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    };
    pool.parallel_for(0, 2, 1, meet);
    EXPECT_EQ(ids.size(), 2u) << "it is not taken for busy, and starts its threads when there is memory";
  }
}

TEST(ThreadPool, ExitInAJobEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto leave = [](bool in_worker) {
    alarm(20);
    const std::thread::id caller = std::this_thread::get_id();
    std::atomic<bool> leaving{false};
    ThreadPool::global().parallel_for(
        0, 2, 1,
        [&](int64_t, int64_t) {
          if ((std::this_thread::get_id() != caller) == in_worker) {
            leaving = true;
            std::exit(3);
          }
          while (!leaving) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::seconds(30));
        },
        2);
  };
  EXPECT_EXIT(leave(false), ::testing::ExitedWithCode(3), "");
  EXPECT_EXIT(leave(true), ::testing::ExitedWithCode(3), "");
}

}  // namespace
