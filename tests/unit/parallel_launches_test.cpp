/// \file Which launches may run in parallel: found by the bytes that launches touch.
#include "tinygrad/engine/parallel_launches.h"

#include <gtest/gtest.h>

#include <random>

namespace tg {
namespace {
using Tasks = std::vector<std::vector<uint32_t>>;
constexpr double kLong = 50e3;

MemoryUse reads(uint64_t memory, int64_t begin = 0, int64_t end = 64) { return {memory, begin, end, false}; }
MemoryUse writes(uint64_t memory, int64_t begin = 0, int64_t end = 64) { return {memory, begin, end, true}; }
LaunchUse launch(std::vector<MemoryUse> a, double ns = kLong) { return {std::move(a), ns, false}; }

TEST(ParallelLaunches, AChainNeverIs) {
  std::vector<LaunchUse> list;
  for (uint64_t i = 0; i < 300; i++) list.push_back(launch({reads(i), writes(i + 1)}));
  EXPECT_TRUE(parallel_launches(list).empty());
  for (uint64_t i = 2; i < 300; i++) list[i].accesses.push_back(reads(i - 1));  // also of what came earlier
  EXPECT_TRUE(parallel_launches(list).empty());
}

TEST(ParallelLaunches, TwoChainsThatMeet) {
  std::vector<LaunchUse> list{launch({reads(1), writes(2)}), launch({reads(1), writes(3)}),
                              launch({reads(2), writes(4)}), launch({reads(3), writes(5)}),
                              launch({reads(4), reads(5), writes(6)})};
  std::vector<LaunchGroup> s = parallel_launches(list);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_EQ(s[0].tasks, (Tasks{{0, 2}, {1, 3}, {4}}));
  EXPECT_EQ(s[0].ns, 5 * kLong);
  EXPECT_EQ(s[0].longest_ns, 3 * kLong);
  EXPECT_TRUE(s[0].pays(2));
  EXPECT_FALSE(s[0].pays(1));
}

TEST(ParallelLaunches, BytesDecide) {
  auto tasks = [](const std::vector<LaunchUse>& list) {
    std::vector<LaunchGroup> s = parallel_launches(list);
    return s.empty() ? size_t{1} : s[0].tasks.size();
  };
  EXPECT_EQ(tasks({launch({writes(1, 0, 64)}), launch({writes(1, 64, 128)})}), 2u)
      << "parts of one memory that do not overlap";
  EXPECT_EQ(tasks({launch({writes(1, 0, 65)}), launch({writes(1, 64, 128)})}), 1u);
  EXPECT_EQ(tasks({launch({reads(1)}), launch({reads(1)})}), 2u);
  EXPECT_EQ(tasks({launch({reads(1)}), launch({writes(1)})}), 1u) << "the write waits for who reads what was there";
  EXPECT_EQ(tasks({launch({writes(1), reads(2)}), launch({writes(3), reads(1)})}), 1u);
}

TEST(ParallelLaunches, OnlyWhereItPays) {
  std::vector<LaunchUse> list{launch({writes(1)}, 4e3), launch({writes(2)}, 4e3)};
  EXPECT_TRUE(parallel_launches(list).empty());
  list.clear();
  for (uint64_t i = 0; i < 100; i++) list.push_back(launch({reads(1), writes(2 + i)}, 500));
  std::vector<LaunchGroup> s = parallel_launches(list);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_EQ(s[0].tasks.size(), 50u) << "small ones are taken together";
  list[50].alone = true;  // in two stretches
  EXPECT_EQ(parallel_launches(list).size(), 2u);
}

/// Random lists: whatever shares bytes that one of them writes is ordered, within a task or by a path of tasks, as in
/// the list.
TEST(ParallelLaunches, NothingIsMissed) {
  std::mt19937 random(1);
  auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  size_t found = 0;
  for (int program = 0; program < 300; program++) {
    std::vector<LaunchUse> list;
    for (int64_t n = 2 + below(40); n > 0; n--) {
      LaunchUse& l = list.emplace_back();
      for (int64_t k = 1 + below(3); k >= 0; k--) {
        const int64_t begin = below(12), end = begin + 1 + below(6);
        l.accesses.push_back({static_cast<uint64_t>(below(4)), begin, end, k == 0});
      }
      l.ns = below(2) ? kLong : 1e3;
      l.alone = below(15) == 0;
    }
    for (LaunchGroup& s : parallel_launches(list)) {
      found++;
      std::vector<std::vector<bool>> after(s.tasks.size(), std::vector<bool>(s.tasks.size(), false));
      const std::vector<std::vector<uint32_t>> waits = s.graph.waits();
      for (uint32_t t = 0; t < waits.size(); t++)
        for (uint32_t b : waits[t]) {
          after[t][b] = true;
          for (uint32_t x = 0; x < b; x++)
            if (after[b][x]) after[t][x] = true;
        }
      std::vector<bool> seen(list.size(), false);
      std::vector<uint32_t> task_of(list.size()), when(list.size());
      for (uint32_t t = 0; t < s.tasks.size(); t++)
        for (uint32_t at = 0; at < s.tasks[t].size(); at++) {
          const uint32_t i = s.tasks[t][at];
          ASSERT_FALSE(seen[i] || list[i].alone);
          seen[i] = true;
          task_of[i] = t;
          when[i] = at;
        }
      for (uint32_t i = s.begin; i < s.end; i++) {
        ASSERT_TRUE(seen[i]);
        for (uint32_t k = s.begin; k < i; k++)
          for (const MemoryUse& a : list[i].accesses)
            for (const MemoryUse& b : list[k].accesses)
              if (a.memory == b.memory && a.begin < b.end && b.begin < a.end && (a.writes || b.writes)) {
                if (task_of[i] == task_of[k]) ASSERT_LT(when[k], when[i]);
                else ASSERT_TRUE(after[task_of[i]][task_of[k]]) << "program " << program << ": " << i << " after " << k;
              }
      }
    }
  }
  EXPECT_GT(found, 50u);
}

}  // namespace
}  // namespace tg
