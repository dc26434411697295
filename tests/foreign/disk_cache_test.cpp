/// \file Disk cache files that something else wrote or damaged: never trusted, never fatal, and never somebody else's
/// data destroyed.
#include "tinygrad/base/disk_cache.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "temp_dir.h"

namespace tg {
namespace {

using testing::TempDir;
using Bytes = std::vector<uint8_t>;

std::string slurp(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}
void spew(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
void sql(const std::string& path, const char* statement) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, statement, nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

Bytes entry(int i) { return Bytes(400, static_cast<uint8_t>(i)); }
// A cache of 50 entries, closed, without log files next to it.
std::string make_cache(const TempDir& dir) {
  const std::string path = dir / "c.db";
  DiskCache cache(path);
  for (int i = 0; i < 50; i++) cache.put("t", std::to_string(i), entry(i));
  return path;
}
// Whatever is found is right, and the cache takes new entries.
void expect_sound(const std::string& path) {
  DiskCache cache(path);
  for (int i = 0; i < 50; i++) {
    const auto got = cache.get("t", std::to_string(i));
    if (got) EXPECT_EQ(*got, entry(i)) << i;
  }
  cache.put("t", "new", entry(99));
  EXPECT_EQ(cache.get("t", "new"), entry(99));
}

TEST(ForeignDiskCache, NotADatabase) {
  TempDir dir;
  const std::string path = dir / "c.db", text(5000, 'x');
  spew(path, text);
  expect_sound(path);
  EXPECT_TRUE(slurp(path + ".bad") == text) << "moved aside, not destroyed";
}

TEST(ForeignDiskCache, EmptyFile) {
  TempDir dir;
  spew(dir / "c.db", "");
  expect_sound(dir / "c.db");
}

TEST(ForeignDiskCache, Truncated) {
  TempDir dir;
  const std::string path = make_cache(dir), whole = slurp(path);
  for (size_t n : {size_t{1}, size_t{15}, size_t{50}, size_t{100}, size_t{4095}, size_t{4096}, whole.size() / 2,
                   whole.size() - 1}) {
    spew(path, whole.substr(0, n));
    expect_sound(path);
  }
}

TEST(ForeignDiskCache, RandomDamage) {
  TempDir dir;
  const std::string path = make_cache(dir), whole = slurp(path);
  std::mt19937 random(3);
  for (int round = 0; round < 60; round++) {
    std::string damaged = whole;
    for (unsigned n = 0, count = 1 + random() % 40; n < count; n++)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    spew(path, damaged);
    for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(path + suffix);
    expect_sound(path);
  }
}

TEST(ForeignDiskCache, DamagedLog) {
  TempDir dir;
  const std::string path = make_cache(dir);
  spew(path + "-wal", std::string(10000, 'w'));
  expect_sound(path);
}

TEST(ForeignDiskCache, EntryWithWrongBytesIsDeleted) {
  TempDir dir;
  const std::string path = make_cache(dir);
  sql(path,
      "UPDATE entries SET value = zeroblob(400) WHERE key = CAST('7' AS BLOB); UPDATE entries SET key = CAST('moved' "
      "AS BLOB) WHERE key = CAST('8' "
      "AS BLOB)");
  DiskCache cache(path);
  EXPECT_EQ(cache.get("t", "7"), std::nullopt);
  EXPECT_EQ(cache.get("t", "moved"), std::nullopt) << "right bytes under another key";
  EXPECT_EQ(cache.get("t", "9"), entry(9));
  EXPECT_EQ(cache.info().tables.at(0).entries, 48);
}

TEST(ForeignDiskCache, OlderFormatIsRecreated) {
  TempDir dir;
  const std::string path = make_cache(dir);
  sql(path, "PRAGMA user_version=999");
  DiskCache cache(path);
  EXPECT_EQ(cache.get("t", "1"), std::nullopt);
  cache.put("t", "1", entry(1));
  EXPECT_EQ(cache.get("t", "1"), entry(1));
}

TEST(ForeignDiskCache, DatabaseOfAnotherProgramIsLeftAlone) {
  TempDir dir;
  const std::string path = dir / "c.db";
  sql(path, "CREATE TABLE diary(day TEXT); INSERT INTO diary VALUES('rain')");
  const std::string before = slurp(path);
  {
    DiskCache cache(path);
    cache.put("t", "k", entry(1));
    EXPECT_EQ(cache.get("t", "k"), std::nullopt);
    EXPECT_FALSE(cache.info().usable);
    cache.clear();
  }
  EXPECT_TRUE(slurp(path) == before);
}

TEST(ForeignDiskCache, AFolderAtItsPath) {
  TempDir dir;
  std::filesystem::create_directory(dir / "c.db");
  DiskCache cache(dir / "c.db");
  cache.put("t", "k", entry(1));
  EXPECT_EQ(cache.get("t", "k"), std::nullopt);
  EXPECT_TRUE(std::filesystem::is_directory(dir / "c.db"));
}

}  // namespace
}  // namespace tg
