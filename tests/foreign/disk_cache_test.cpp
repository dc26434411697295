/// \file Disk cache files that something else wrote or damaged: never trusted, never fatal, and never somebody else's
/// data destroyed.
#include "tinygrad/base/disk_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "temp_dir.h"
#include "tinygrad/base/cache_file.h"

namespace tg {
namespace {

using ::testing::HasSubstr;
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
// A file that does not say whose it is stays as it is.
void expect_unusable(const std::string& path) {
  const std::string before = slurp(path);
  DiskCache cache(path);
  cache.put("t", "new", entry(99));
  EXPECT_EQ(cache.get("t", "new"), std::nullopt);
  EXPECT_TRUE(slurp(path) == before);
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

/// Expects that a file is not used, not changed, and that nothing was made next to it.
void expect_left_alone(const TempDir& dir, const std::string& path) {
  const std::string before = slurp(path);
  {
    DiskCache cache(path);
    EXPECT_FALSE(cache.info().usable);
    EXPECT_THAT(cache.info().problem, HasSubstr("got " + path + ", expected a cache database of this library"));
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 3; i++) cache.put("t", "k", entry(1));
    EXPECT_EQ(cache.get("t", "k"), std::nullopt);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr(path + ", expected a cache database of this library: the file is left as it is"));
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    cache.clear();
    EXPECT_TRUE(cache.keys("t").empty());
  }
  EXPECT_TRUE(slurp(path) == before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / ""), {}), 1);
}

TEST(ForeignDiskCache, OtherFilesAreLeftAlone) {
  for (const std::string& text : {std::string(5000, 'x'), std::string("x"), std::string(200, '\0'),
                                  std::string("SQLite format 3\0 and then nothing of it", 40)}) {
    TempDir dir;
    spew(dir / "c.db", text);
    expect_left_alone(dir, dir / "c.db");
  }
}

TEST(ForeignDiskCache, NoFileSetAsideIsOverwritten) {
  TempDir dir;
  const std::string path = make_cache(dir), whole = slurp(path);
  std::vector<std::string> aside;
  for (int i = 1; i <= 9; i++) aside.push_back(i == 1 ? path + ".bad" : path + ".bad." + std::to_string(i));
  for (size_t i = 0; i < aside.size(); i++) {
    spew(path, whole.substr(0, 4096 + i));
    expect_sound(path);
    for (size_t j = 0; j <= i; j++) EXPECT_TRUE(slurp(aside[j]) == whole.substr(0, 4096 + j)) << aside[j];
  }
  spew(path, whole.substr(0, 4096));
  DiskCache cache(path);
  cache.put("t", "new", entry(99));
  EXPECT_EQ(cache.get("t", "new"), std::nullopt) << "no name is left, so there is no cache";
  EXPECT_TRUE(slurp(path) == whole.substr(0, 4096));
}

TEST(ForeignDiskCache, LookingMakesAndMovesNothing) {
  TempDir dir;
  {
    DiskCache cache(dir / "sub/c.db");
    const DiskCache::Info info = cache.info();
    EXPECT_TRUE(info.usable) << "it can be made";
    EXPECT_EQ(info.file_bytes, 0);
    cache.clear();
    cache.erase("t", "k");
    EXPECT_TRUE(cache.keys("t").empty());
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "sub"));
  spew(dir / "empty.db", "");
  EXPECT_TRUE(DiskCache(dir / "empty.db").info().usable);
  EXPECT_EQ(slurp(dir / "empty.db"), "");
  const std::string path = make_cache(dir), damaged = slurp(path).substr(0, 4096);
  spew(path, damaged);
  DiskCache cache(path);
  EXPECT_FALSE(cache.info().usable);
  EXPECT_THAT(cache.info().problem, HasSubstr("which cannot be opened: database disk image is malformed"));
  EXPECT_TRUE(slurp(path) == damaged);
}

TEST(ForeignDiskCache, TheFileSaysWhoseItIsWithoutItsLog) {
  TempDir dir;
  DiskCache cache(dir / "c.db");
  cache.put("t", "k", entry(1));
  EXPECT_EQ(identify_cache_file(dir / "c.db"), CacheFile::kOurs);
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
    if (n >= 72) expect_sound(path);
    else expect_unusable(path);
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
    if (identify_cache_file(path) == CacheFile::kForeign) expect_unusable(path);
    else expect_sound(path);
    for (const auto& file : std::filesystem::directory_iterator(dir / ""))
      if (file.path().filename().string().find(".bad") != std::string::npos) std::filesystem::remove(file.path());
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
  for (const char* mode : {"DELETE", "WAL"}) {
    TempDir dir;
    sql(dir / "c.db", (std::string("PRAGMA journal_mode=") + mode +
                       "; CREATE TABLE diary(day TEXT); INSERT INTO diary VALUES('rain')")
                          .c_str());
    expect_left_alone(dir, dir / "c.db");
  }
}

TEST(ForeignDiskCache, DatabaseOfAnotherProgramWhoseTablesAreInItsLog) {
  TempDir dir;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((dir / "c.db").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "PRAGMA journal_mode=WAL; CREATE TABLE diary(day TEXT)", nullptr, nullptr, nullptr),
            SQLITE_OK);
  const std::string file = slurp(dir / "c.db"), log = slurp(dir / "c.db-wal");
  TempDir copy;
  spew(copy / "c.db", file);
  spew(copy / "c.db-wal", log);
  sqlite3_close(db);
  {
    DiskCache cache(copy / "c.db");
    cache.put("t", "k", entry(1));
    EXPECT_EQ(cache.get("t", "k"), std::nullopt);
  }
  EXPECT_TRUE(slurp(copy / "c.db") == file);
  EXPECT_TRUE(slurp(copy / "c.db-wal") == log);
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
