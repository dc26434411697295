/// \file Disk cache on SQLite: write-ahead log, busy timeout, a checksum for each entry, recovery from corrupt files.
#include "tinygrad/base/disk_cache.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "tinygrad/base/cache_file.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/hash.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/paths.h"

namespace tg {
namespace fs = std::filesystem;

namespace {

constexpr int kFormat = 1;              // user_version of the file; ours with another number is recreated
constexpr int kBusyMs = 3000;           // longest wait for another process's write
constexpr int64_t kUsedGrain = 86400;   // a hit renews the access time at most once a day, so that hits do not write
constexpr int64_t kPutsPerCheck = 256;  // how often a writer looks at the total size

// The checksum binds the bytes to their key: an entry stored under another key is as bad as a flipped bit.
int64_t checksum(std::string_view table, std::string_view key, std::string_view value) {
  Hash128 h;
  h.add(table);
  h.add(key);
  h.add(value);
  return static_cast<int64_t>(mix64(h.lo ^ mix64(h.hi)));
}

std::string_view view(const void* data, int size) {
  return data ? std::string_view(static_cast<const char*>(data), static_cast<size_t>(size)) : "";
}

void report(const std::string& path, std::string_view what) {
  if (env::DEBUG.get() >= 1) note_lines(str("disk cache ", path, ": ", what));
}

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};
std::optional<FileId> file_id(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 ? std::optional(FileId{st.st_dev, st.st_ino}) : std::nullopt;
}

// A prepared statement for one use; reset when the use is over.
class Bound {
 public:
  explicit Bound(sqlite3_stmt* s) : s_(s) {}
  ~Bound() {
    sqlite3_reset(s_);
    sqlite3_clear_bindings(s_);
  }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;
  Bound& text(std::string_view v) {
    sqlite3_bind_text64(s_, ++n_, v.data(), v.size(), SQLITE_STATIC, SQLITE_UTF8);
    return *this;
  }
  Bound& blob(std::string_view v) {
    sqlite3_bind_blob64(s_, ++n_, v.empty() ? "" : v.data(), v.size(), SQLITE_STATIC);
    return *this;
  }
  Bound& integer(int64_t v) {
    sqlite3_bind_int64(s_, ++n_, v);
    return *this;
  }
  int step() { return sqlite3_step(s_); }
  int64_t integer_at(int column) { return sqlite3_column_int64(s_, column); }
  std::string_view bytes_at(int column) {
    const void* data = sqlite3_column_blob(s_, column);
    return view(data, sqlite3_column_bytes(s_, column));
  }

 private:
  sqlite3_stmt* s_;
  int n_ = 0;
};

}  // namespace

struct DiskCache::Impl {
  enum Statement {
    kGet,
    kTouch,
    kPut,
    kErase,
    kClearTable,
    kClearAll,
    kTables,
    kTotal,
    kEvict,
    kKeys,
    kAddUse,
    kUse,
    kClearUse,
    kStatements
  };
  struct Use {
    int64_t hits = 0, misses = 0;
  };
  enum class Access : uint8_t { kUse, kLook };

  std::string path, problem;  // why the file cannot be used
  int64_t limit;
  std::mutex mutex;
  sqlite3* db = nullptr;
  sqlite3_stmt* statements[kStatements] = {};
  FileId opened;
  pid_t pid = 0;
  bool hopeless = false;  // cannot be opened here; tried once
  int rebuilt = 0;        // corrupt files dropped so far; a disk that keeps corrupting is left alone
  int64_t puts = 0;
  std::map<std::string, Use, std::less<>> use;  // by table, what is not in the file yet

  ~Impl() { close(); }

  void close() {
    for (sqlite3_stmt*& s : statements) {
      sqlite3_finalize(s);
      s = nullptr;
    }
    sqlite3_close(db);
    db = nullptr;
  }

  // A forked child must not touch its parent's connection, not even to close it.
  void forget_parent() {
    if (pid == getpid()) return;
    for (sqlite3_stmt*& s : statements) s = nullptr;
    db = nullptr;
    pid = getpid();
    use.clear();
  }

  bool exec(const char* sql, int& rc) { return (rc = sqlite3_exec(db, sql, nullptr, nullptr, nullptr)) == SQLITE_OK; }

  // Another process may be doing the same; the second one finds everything in place.
  bool create(int& rc) {
    const std::string sql =
        str("BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS entries(tbl TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT "
            "NULL, sum INTEGER NOT NULL, "
            "used INTEGER NOT NULL, PRIMARY KEY(tbl, key)); PRAGMA application_id=",
            kCacheApplicationId, "; PRAGMA user_version=", kFormat, "; COMMIT;");
    if (exec(sql.c_str(), rc)) return true;
    sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
    return false;
  }

  // Tries once to open the file and its statements; returns an SQLite code.
  int open_once(Access access) {
    const int create_flag = access == Access::kUse ? SQLITE_OPEN_CREATE : 0;
    int rc = sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | create_flag | SQLITE_OPEN_NOMUTEX, nullptr);
    if (rc != SQLITE_OK) return rc;
    sqlite3_busy_timeout(db, kBusyMs);
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);  // writes nothing while it may be another's
    opened = file_id(path).value_or(FileId{});
    int64_t ours = 0, format = 0, objects = 0;
    for (auto [sql, out] : {std::pair{"PRAGMA application_id", &ours},
                            {"PRAGMA user_version", &format},
                            {"SELECT COUNT(*) FROM sqlite_master", &objects}}) {
      auto store = [](void* to, int, char** values, char**) {
        *static_cast<int64_t*>(to) = std::atoll(values[0] ? values[0] : "0");
        return 0;
      };
      if ((rc = sqlite3_exec(db, sql, store, out, nullptr)) != SQLITE_OK) return rc;
    }
    if (objects != 0 && ours != kCacheApplicationId) return SQLITE_AUTH;
    if (objects != 0 && format != kFormat) return SQLITE_NOTADB;
    if (objects == 0 && access == Access::kLook) return SQLITE_CANTOPEN;
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
    // Created before there is a log, so that the file itself says whose it is from the first moment on.
    if (objects == 0 && !create(rc)) return rc;
    if (!exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL", rc)) return rc;
    if (!exec("CREATE TABLE IF NOT EXISTS uses(tbl TEXT PRIMARY KEY, hits INTEGER NOT NULL, misses INTEGER NOT NULL)",
              rc))
      return rc;
    static constexpr const char* kSql[kStatements] = {
        "SELECT value, sum, used FROM entries WHERE tbl=? AND key=?",
        "UPDATE entries SET used=? WHERE tbl=? AND key=?",
        "INSERT OR REPLACE INTO entries(tbl, key, value, sum, used) VALUES(?, ?, ?, ?, ?)",
        "DELETE FROM entries WHERE tbl=? AND key=?",
        "DELETE FROM entries WHERE tbl=?",
        "DELETE FROM entries",
        "SELECT tbl, COUNT(*), SUM(LENGTH(key) + LENGTH(value)) FROM entries GROUP BY tbl ORDER BY tbl",
        "SELECT COALESCE(SUM(LENGTH(key) + LENGTH(value)), 0) FROM entries",
        "DELETE FROM entries WHERE rowid IN (SELECT rowid FROM (SELECT rowid, SUM(LENGTH(key) + LENGTH(value)) OVER "
        "(ORDER BY used DESC, rowid DESC) "
        "AS "
        "total FROM entries) WHERE total > ?)",
        "SELECT key FROM entries WHERE tbl=? ORDER BY key",
        "INSERT INTO uses VALUES(?1, ?2, ?3) ON CONFLICT(tbl) DO UPDATE SET hits=hits+?2, misses=misses+?3",
        "SELECT hits, misses FROM uses WHERE tbl=?",
        "DELETE FROM uses WHERE tbl=?1 OR ?1=''",
    };
    for (int i = 0; i < kStatements; i++) {
      rc = sqlite3_prepare_v3(db, kSql[i], -1, SQLITE_PREPARE_PERSISTENT, &statements[i], nullptr);
      if (rc == SQLITE_ERROR) return SQLITE_NOTADB;  // of our format, but tables or columns have other names
      if (rc != SQLITE_OK) return rc;
    }
    return SQLITE_OK;
  }

  static bool is_corrupt(int rc) { return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB; }

  // Sets aside the damaged file this connection had opened (whoever named it may want it back), unless another process
  // has replaced it already. Returns false where the file is not known to be ours, or too many are aside.
  bool drop_file() {
    close();
    const int lock = ::open((path + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (lock >= 0) flock(lock, LOCK_EX);
    bool replaced = true;
    if (file_id(path) == opened) {
      const std::optional<std::string> aside = free_aside_name(path);
      replaced = aside && identify_cache_file(path) == CacheFile::kOurs;
      if (replaced) {
        for (const char* suffix : {"-wal", "-shm"}) unlink((path + suffix).c_str());
        replaced = std::rename(path.c_str(), aside->c_str()) == 0;
        report(path, str("corrupt or of another version; moved to ", *aside, " and recreated"));
      }
    }
    if (lock >= 0) ::close(lock);
    return replaced;
  }

  // Says once that there is no disk cache, and does not try again.
  void give_up(bool loudly) {
    hopeless = true;
    if (!path.empty() && path == env::CACHEDB.get()) env::not_honoured("CACHEDB", problem);
    else if (loudly) note_lines(str("tinygrad: [disk cache] ", problem, "\n"));
    else report(path, problem);
  }

  // Opens the file. kUse makes it where there is none and replaces one of ours that is damaged; kLook does neither.
  bool open(Access access) {
    forget_parent();
    if (db) return true;
    if (hopeless) return false;
    if (path.empty()) {
      if (access == Access::kUse) give_up(/*loudly=*/true);
      return false;
    }
    problem.clear();
    const CacheFile found = identify_cache_file(path);
    if (found == CacheFile::kAbsent && access == Access::kLook) return false;
    if (found == CacheFile::kForeign) return foreign(access);
    std::error_code ec;
    if (const fs::path parent = fs::path(path).parent_path(); !parent.empty() && found == CacheFile::kAbsent)
      fs::create_directories(parent, ec);
    int rc = open_once(access);
    // Switching to the write-ahead log needs exclusive access and does not wait for it.
    for (int i = 0; i < 100 && (rc & 0xff) == SQLITE_BUSY; i++) {
      close();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      rc = open_once(access);
    }
    if (is_corrupt(rc) && access == Access::kUse && rebuilt++ < 3 && drop_file()) rc = open_once(access);
    if (rc == SQLITE_OK) return true;
    close();
    if (rc == SQLITE_AUTH) return foreign(access);
    problem = str("got ", path, ", which cannot be opened: ", sqlite3_errstr(rc));
    if (access == Access::kLook) return false;
    if ((rc & 0xff) != SQLITE_BUSY) give_up(/*loudly=*/false);
    else report(path, problem);
    return false;
  }
  bool foreign(Access access) {
    problem = str("got ", path, ", expected a cache database of this library: the file is left as it is");
    if (access == Access::kUse) give_up(/*loudly=*/true);
    return false;
  }

  // Handles a failed step: a corrupt file is moved away, anything else (busy, full, read-only) only loses this one
  // operation.
  void failed(int rc, std::string_view doing) {
    if (is_corrupt(rc)) {
      if (rebuilt++ < 3 && drop_file()) return;
      close();
      problem = str("got ", path, ", which is damaged: ", sqlite3_errstr(rc));
      return give_up(/*loudly=*/false);
    }
    report(path, str(doing, ": ", sqlite3_errstr(rc)));
  }

  void erase(std::string_view table, std::string_view key) {
    if (const int rc = Bound(statements[kErase]).text(table).blob(key).step(); rc != SQLITE_DONE) failed(rc, "erase");
  }

  void keep_below_limit() {
    if (puts++ % kPutsPerCheck != 0) return;
    int64_t total = 0;
    if (Bound b(statements[kTotal]); b.step() == SQLITE_ROW) total = b.integer_at(0);
    if (total <= limit) return;
    if (const int rc = Bound(statements[kEvict]).integer(limit / 2).step(); rc != SQLITE_DONE)
      return failed(rc, "evict");
    compact();
  }

  void compact() {
    int rc;
    if (!exec("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)", rc)) report(path, str("vacuum: ", sqlite3_errstr(rc)));
  }
};

DiskCache::DiskCache(std::string path, int64_t limit_bytes) : impl_(std::make_unique<Impl>()) {
  impl_->path = std::move(path);
  impl_->limit = limit_bytes;
}
std::unique_ptr<DiskCache> DiskCache::without_file(std::string problem) {
  auto out = std::make_unique<DiskCache>("");
  out->impl_->problem = std::move(problem);
  return out;
}
DiskCache::~DiskCache() {
  save_use();
  impl_->forget_parent();
}

std::optional<std::vector<uint8_t>> DiskCache::get(std::string_view table, std::string_view key) {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->open(Impl::Access::kUse)) return std::nullopt;
  auto use = impl_->use.find(table);
  if (use == impl_->use.end()) use = impl_->use.emplace(table, Impl::Use{}).first;
  std::optional<std::vector<uint8_t>> found;
  int64_t used = 0;
  bool bad = false;
  int rc;
  {
    Bound b(impl_->statements[Impl::kGet]);
    rc = b.text(table).blob(key).step();
    if (rc == SQLITE_ROW) {
      const std::string_view value = b.bytes_at(0);
      bad = checksum(table, key, value) != b.integer_at(1);
      used = b.integer_at(2);
      if (!bad) found.emplace(value.begin(), value.end());
    }
  }
  (found ? use->second.hits : use->second.misses)++;
  if (rc == SQLITE_DONE) return std::nullopt;
  if (rc != SQLITE_ROW) {
    impl_->failed(rc, "get");
    return std::nullopt;
  }
  if (bad) {
    report(impl_->path, str("entry of table ", table, " has a wrong checksum; deleted"));
    impl_->erase(table, key);
  } else if (const int64_t now = std::time(nullptr); now - used > kUsedGrain) {
    Bound(impl_->statements[Impl::kTouch]).integer(now).text(table).blob(key).step();
  }
  return found;
}

void DiskCache::put(std::string_view table, std::string_view key, std::span<const uint8_t> value) {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->open(Impl::Access::kUse)) return;
  const std::string_view bytes(reinterpret_cast<const char*>(value.data()), value.size());
  const int rc = Bound(impl_->statements[Impl::kPut])
                     .text(table)
                     .blob(key)
                     .blob(bytes)
                     .integer(checksum(table, key, bytes))
                     .integer(std::time(nullptr))
                     .step();
  if (rc != SQLITE_DONE) return impl_->failed(rc, "put");
  impl_->keep_below_limit();
}

void DiskCache::erase(std::string_view table, std::string_view key) {
  std::lock_guard lock(impl_->mutex);
  if (impl_->open(Impl::Access::kLook)) impl_->erase(table, key);
}

void DiskCache::clear(std::string_view table) {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->open(Impl::Access::kLook)) return;
  const int rc = table.empty() ? Bound(impl_->statements[Impl::kClearAll]).step()
                               : Bound(impl_->statements[Impl::kClearTable]).text(table).step();
  if (rc != SQLITE_DONE) return impl_->failed(rc, "clear");
  Bound(impl_->statements[Impl::kClearUse]).text(table).step();
  std::erase_if(impl_->use, [&](const auto& u) { return table.empty() || u.first == table; });
  impl_->compact();
}

DiskCache::Info DiskCache::info() {
  std::lock_guard lock(impl_->mutex);
  Info out{impl_->path, impl_->open(Impl::Access::kLook), impl_->problem, 0, {}};
  if (!out.usable) {
    if (out.problem.empty() && !(out.usable = can_be_created(impl_->path)))
      out.problem = str("got ", impl_->path, ", which cannot be made: its folder cannot be written");
    return out;
  }
  Bound b(impl_->statements[Impl::kTables]);
  int rc;
  while ((rc = b.step()) == SQLITE_ROW)
    out.tables.push_back({std::string(b.bytes_at(0)), b.integer_at(1), b.integer_at(2)});
  for (TableInfo& t : out.tables) {
    if (const auto here = impl_->use.find(t.name); here != impl_->use.end()) {
      t.hits = here->second.hits;
      t.misses = here->second.misses;
    }
    if (Bound stored(impl_->statements[Impl::kUse]); stored.text(t.name).step() == SQLITE_ROW) {
      t.hits += stored.integer_at(0);
      t.misses += stored.integer_at(1);
    }
  }
  std::error_code ec;
  for (const char* part : {"", "-wal"})  // written data stays in the log until it is moved to the file
    if (const auto size = fs::file_size(impl_->path + part, ec); !ec) out.file_bytes += static_cast<int64_t>(size);
  return out;
}

void DiskCache::save_use() {
  std::lock_guard lock(impl_->mutex);
  impl_->forget_parent();
  if (!impl_->db || impl_->use.empty()) return;
  sqlite3_busy_timeout(impl_->db, 0);
  for (const auto& [table, use] : impl_->use)
    Bound(impl_->statements[Impl::kAddUse]).text(table).integer(use.hits).integer(use.misses).step();
  impl_->use.clear();
  sqlite3_busy_timeout(impl_->db, kBusyMs);
}

std::vector<std::string> DiskCache::keys(std::string_view table) {
  std::lock_guard lock(impl_->mutex);
  std::vector<std::string> out;
  if (!impl_->open(Impl::Access::kLook)) return out;
  int rc;
  {
    Bound b(impl_->statements[Impl::kKeys]);
    b.text(table);
    while ((rc = b.step()) == SQLITE_ROW) out.emplace_back(b.bytes_at(0));
  }
  if (rc != SQLITE_DONE) impl_->failed(rc, "keys");
  return out;
}

namespace disk_cache {

// One connection for each file that CACHEDB has named so far; never destroyed, so that exit handlers may still use it.
static std::unique_ptr<DiskCache> at_default_place(int64_t limit) {
  try {
    return std::make_unique<DiskCache>((fs::path(cache_dir()) / "cache.db").string(), limit);
  } catch (const FileError& e) { return DiskCache::without_file(e.what()); }
}
static DiskCache& of_process() {
  static std::mutex& mutex = *new std::mutex;
  static auto& open = *new std::map<std::string, std::unique_ptr<DiskCache>>;
  [[maybe_unused]] static const int at_exit = std::atexit([] {
    for (const auto& [file, cache] : open) cache->save_use();
  });
  const std::string& named = env::CACHEDB.get();
  std::lock_guard lock(mutex);
  std::unique_ptr<DiskCache>& cache = open[named];
  if (!cache) {
    const int64_t limit = std::clamp<int64_t>(env::CACHE_LIMIT.get(), 1, INT64_MAX >> 20) << 20;
    cache = named.empty() ? at_default_place(limit) : std::make_unique<DiskCache>(named, limit);
  }
  return *cache;
}
static bool enabled() { return env::CACHELEVEL.get() != 0; }

std::optional<std::vector<uint8_t>> get(std::string_view table, std::string_view key) {
  return enabled() ? of_process().get(table, key) : std::nullopt;
}
void put(std::string_view table, std::string_view key, std::span<const uint8_t> value) {
  if (enabled()) of_process().put(table, key, value);
}
void clear(std::string_view table) { of_process().clear(table); }
DiskCache::Info info() { return of_process().info(); }

}  // namespace disk_cache
}  // namespace tg
