/// \file Disk cache: round trips, tables, limits, threads, processes that die in the middle, paths that cannot be
/// written.
#include "tinygrad/base/disk_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "temp_dir.h"
#include "tinygrad/base/context.h"

namespace tg {
namespace {

using testing::TempDir;
using Bytes = std::vector<uint8_t>;

Bytes pattern(size_t n, uint8_t seed) {
  Bytes out(n);
  for (size_t i = 0; i < n; i++) out[i] = static_cast<uint8_t>(seed + i * 7);
  return out;
}

TEST(DiskCache, StoresAndFinds) {
  TempDir dir;
  DiskCache cache(dir / "sub/cache.db");
  EXPECT_EQ(cache.get("t", "k"), std::nullopt);
  cache.put("t", "k", pattern(1000, 1));
  EXPECT_EQ(cache.get("t", "k"), pattern(1000, 1));
  cache.put("t", "k", pattern(3, 2));
  EXPECT_EQ(cache.get("t", "k"), pattern(3, 2)) << "replaced";
  EXPECT_EQ(cache.get("other", "k"), std::nullopt);
  cache.put("t", "", Bytes{});
  EXPECT_EQ(cache.get("t", ""), Bytes{}) << "empty is not absent";
  const std::string binary("a\0b", 3);
  cache.put("t", binary, pattern(5, 3));
  EXPECT_EQ(cache.get("t", std::string_view("a")), std::nullopt);
  EXPECT_EQ(cache.get("t", binary), pattern(5, 3));
  cache.erase("t", "k");
  EXPECT_EQ(cache.get("t", "k"), std::nullopt);
}

TEST(DiskCache, LivesOnAfterReopening) {
  TempDir dir;
  { DiskCache(dir / "c.db").put("t", "k", pattern(100000, 9)); }
  EXPECT_EQ(DiskCache(dir / "c.db").get("t", "k"), pattern(100000, 9));
}

TEST(DiskCache, HitsAndMissesOfAllProcesses) {
  TempDir dir;
  const auto use = [&](DiskCache& cache, const char* table) {
    for (const DiskCache::TableInfo& t : cache.info().tables)
      if (t.name == table) return std::pair(t.hits, t.misses);
    return std::pair<int64_t, int64_t>(-1, -1);
  };
  {
    DiskCache cache(dir / "c.db");
    cache.get("t", "k");
    cache.put("t", "k", pattern(10, 0));
    for (int i = 0; i < 3; i++) cache.get("t", "k");
    EXPECT_EQ(use(cache, "t"), std::pair(int64_t{3}, int64_t{1})) << "before they are in the file";
  }
  DiskCache cache(dir / "c.db");
  cache.get("t", "k");
  cache.put("other", "k", pattern(10, 0));
  EXPECT_EQ(use(cache, "t"), std::pair(int64_t{4}, int64_t{1}));
  EXPECT_EQ(use(cache, "other"), std::pair(int64_t{0}, int64_t{0}));
  cache.save_use();
  EXPECT_EQ(use(cache, "t"), std::pair(int64_t{4}, int64_t{1})) << "once";
  cache.clear("t");
  cache.put("t", "k", pattern(10, 0));
  EXPECT_EQ(use(cache, "t"), std::pair(int64_t{0}, int64_t{0}));
}

TEST(DiskCache, InfoAndClear) {
  TempDir dir;
  DiskCache cache(dir / "c.db");
  cache.put("a", "1", pattern(10, 0));
  cache.put("a", "2", pattern(20, 0));
  cache.put("b", "1", pattern(5, 0));
  DiskCache::Info info = cache.info();
  EXPECT_TRUE(info.usable);
  EXPECT_GT(info.file_bytes, 0);
  int64_t on_disk = 0;
  for (const char* part : {"c.db", "c.db-wal"})
    if (std::filesystem::exists(dir / part)) on_disk += static_cast<int64_t>(std::filesystem::file_size(dir / part));
  EXPECT_EQ(info.file_bytes, on_disk) << "what lies in the log counts";
  ASSERT_EQ(info.tables.size(), 2u);
  EXPECT_EQ(info.tables[0].name, "a");
  EXPECT_EQ(info.tables[0].entries, 2);
  EXPECT_EQ(info.tables[0].bytes, 32) << "keys and values";
  cache.clear("a");
  EXPECT_EQ(cache.info().tables.size(), 1u);
  EXPECT_EQ(cache.get("b", "1"), pattern(5, 0));
  cache.clear();
  EXPECT_TRUE(cache.info().tables.empty());
}

TEST(DiskCache, StaysBelowItsLimit) {
  TempDir dir;
  DiskCache cache(dir / "c.db", 200000);
  for (int i = 0; i < 600; i++) cache.put("t", std::to_string(i), pattern(1000, static_cast<uint8_t>(i)));
  ASSERT_EQ(cache.info().tables.size(), 1u);
  EXPECT_LT(cache.info().tables[0].bytes, 400000);
  EXPECT_EQ(cache.get("t", "599"), pattern(1000, static_cast<uint8_t>(599))) << "the newest stays";
  EXPECT_EQ(cache.get("t", "0"), std::nullopt);
}

TEST(DiskCache, UnwritablePathMeansNoCache) {
  DiskCache cache("/dev/null/sub/cache.db");
  cache.put("t", "k", pattern(10, 0));
  EXPECT_EQ(cache.get("t", "k"), std::nullopt);
  cache.clear();
  EXPECT_FALSE(cache.info().usable);
}

TEST(DiskCache, ManyThreads) {
  TempDir dir;
  DiskCache cache(dir / "c.db");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; i++) {
        const std::string key = std::to_string(t) + "/" + std::to_string(i);
        cache.put("t", key, pattern(500, static_cast<uint8_t>(i)));
        EXPECT_EQ(cache.get("t", key), pattern(500, static_cast<uint8_t>(i)));
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(cache.info().tables.at(0).entries, 200);
}

// Children write until they are killed; whatever is found later is whole, and the file goes on working.
TEST(DiskCache, ProcessesKilledWhileWriting) {
  TempDir dir;
  const std::string path = dir / "c.db";
  DiskCache parent(path);
  parent.put("t", "before", pattern(100, 1));
  for (int round = 0; round < 4; round++) {
    pid_t children[2];
    for (int c = 0; c < 2; c++) {
      if ((children[c] = fork()) == 0) {
        DiskCache mine(path);
        for (int i = 0;; i = (i + 1) % 64) mine.put("t", std::to_string(i), pattern(3000, static_cast<uint8_t>(i)));
      }
    }
    usleep(40000);
    for (pid_t child : children) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    int found = 0;
    for (int i = 0; i < 64; i++) {
      const auto got = parent.get("t", std::to_string(i));
      found += got.has_value();
      if (got) EXPECT_EQ(*got, pattern(3000, static_cast<uint8_t>(i)));
    }
    EXPECT_GT(found, 0);
    EXPECT_EQ(parent.get("t", "before"), pattern(100, 1));
    parent.put("t", "after", pattern(10, static_cast<uint8_t>(round)));
    EXPECT_EQ(parent.get("t", "after"), pattern(10, static_cast<uint8_t>(round)));
  }
}

TEST(DiskCache, ForkedChildUsesItsOwnConnection) {
  TempDir dir;
  DiskCache cache(dir / "c.db");
  cache.put("t", "k", pattern(10, 1));
  const pid_t child = fork();
  if (child == 0) {
    const bool fine = cache.get("t", "k") == pattern(10, 1);
    cache.put("t", "child", pattern(10, 2));
    _exit(fine ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(cache.get("t", "child"), pattern(10, 2));
}

TEST(DiskCache, ProcessCacheObeysTheEnvironment) {
  TempDir dir;
  Context place{{"CACHEDB", dir / "process.db"}, {"CACHELEVEL", 2}};
  disk_cache::put("t", "k", pattern(10, 1));
  EXPECT_EQ(disk_cache::get("t", "k"), pattern(10, 1));
  EXPECT_EQ(disk_cache::info().path, dir / "process.db");
  {
    Context off{{"CACHELEVEL", 0}};
    EXPECT_EQ(disk_cache::get("t", "k"), std::nullopt);
    disk_cache::put("t", "off", pattern(10, 1));
  }
  EXPECT_EQ(disk_cache::get("t", "off"), std::nullopt);
  disk_cache::clear();
  EXPECT_EQ(disk_cache::get("t", "k"), std::nullopt);
}

}  // namespace
}  // namespace tg
