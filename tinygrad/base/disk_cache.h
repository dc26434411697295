/// \file Disk cache: bytes by table and key in one SQLite file that many processes share and that survives crashes.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tg {

/// A cache file. It never throws for disk failures: a location that cannot be written means an empty cache, an entry
/// whose checksum does not match is deleted (DEBUG=1 reports it). `get` and `put` make the file where there is none and
/// set a damaged one of ours aside; nothing else does. A file that is no cache of this library is never changed: there
/// is no cache then, and a message says so once. Safe to use from any thread and after fork().
class DiskCache {
 public:
  struct TableInfo {
    std::string name;
    int64_t entries = 0, bytes = 0;
    int64_t hits = 0, misses = 0;  ///< of get() by all processes since the table was cleared, this one's included
  };
  struct Info {
    std::string path;
    bool usable = false;     ///< the file is of our format, or does not exist and can be made
    std::string problem;     ///< why it is not usable: "got PATH, expected ..."
    int64_t file_bytes = 0;  ///< size of the file and its write-ahead log
    std::vector<TableInfo> tables;
  };
  static constexpr int64_t kDefaultLimit = int64_t{1} << 30;

  /// Opens nothing yet. When the stored bytes exceed `limit_bytes`, the least recently used entries are removed until
  /// half of it remains.
  explicit DiskCache(std::string path, int64_t limit_bytes = kDefaultLimit);
  /// Returns a cache that stores nothing, because there is no place for its file: `problem` says why.
  static std::unique_ptr<DiskCache> without_file(std::string problem);
  ~DiskCache();
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  /// Returns the bytes stored under (table, key), if any.
  std::optional<std::vector<uint8_t>> get(std::string_view table, std::string_view key);
  /// Stores the bytes, replacing older ones; readers see the whole entry or none.
  void put(std::string_view table, std::string_view key, std::span<const uint8_t> value);
  void erase(std::string_view table, std::string_view key);
  /// Removes one table's entries, or all when `table` is empty, and frees the space.
  void clear(std::string_view table = {});
  Info info();
  /// Adds the hits and misses counted here to those in the file. Lost where the file is busy: nobody waits for it.
  void save_use();
  /// Returns the keys of a table, sorted.
  std::vector<std::string> keys(std::string_view table);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the process's cache in the file that CACHEDB names, by default cache.db in cache_dir(), bounded by
/// CACHE_LIMIT. It does nothing while CACHELEVEL is 0.
namespace disk_cache {
std::optional<std::vector<uint8_t>> get(std::string_view table, std::string_view key);
void put(std::string_view table, std::string_view key, std::span<const uint8_t> value);
void clear(std::string_view table = {});
DiskCache::Info info();
}  // namespace disk_cache

}  // namespace tg
