/// \file Identifies disk caches by the header of SQLite's file format.
#include "tinygrad/base/cache_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "tinygrad/base/error.h"

namespace tg {
namespace fs = std::filesystem;

namespace {

// The header of a database: 100 bytes, followed by the root of the table of tables (sqlite.org/fileformat2.html).
constexpr std::string_view kMagic("SQLite format 3\0", 16);
constexpr size_t kApplicationIdAt = 68, kCellCountAt = 103, kHeaderBytes = 105;
constexpr int kMostAside = 9;

using Header = std::array<unsigned char, kHeaderBytes>;

CacheFile identify(const Header& header) {
  if (std::string_view(reinterpret_cast<const char*>(header.data()), kMagic.size()) != kMagic)
    return CacheFile::kForeign;
  uint32_t id = 0;  // big-endian, as all numbers of the format
  for (size_t i = 0; i < sizeof id; i++) id = id << 8 | header[kApplicationIdAt + i];
  if (id == static_cast<uint32_t>(kCacheApplicationId)) return CacheFile::kOurs;
  const bool has_tables = header[kCellCountAt] != 0 || header[kCellCountAt + 1] != 0;
  return id == 0 && !has_tables ? CacheFile::kUnknown : CacheFile::kForeign;
}

}  // namespace

CacheFile identify_cache_file(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0)
    return errno == ENOENT || errno == ENOTDIR ? CacheFile::kAbsent : CacheFile::kUnknown;
  if (!S_ISREG(info.st_mode)) return CacheFile::kForeign;
  if (info.st_size == 0) return CacheFile::kAbsent;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CacheFile::kUnknown;
  Header header{};
  const ssize_t n = read(fd, header.data(), header.size());
  close(fd);
  if (n < 0) return CacheFile::kUnknown;
  return static_cast<size_t>(n) < kApplicationIdAt + sizeof(uint32_t) ? CacheFile::kForeign : identify(header);
}

std::optional<std::string> free_aside_name(const std::string& path) {
  for (int i = 1; i <= kMostAside; i++) {
    std::string name = i == 1 ? path + ".bad" : str(path, ".bad.", i);
    struct stat info{};
    if (lstat(name.c_str(), &info) != 0 && errno == ENOENT) return name;
  }
  return std::nullopt;
}

bool can_be_created(const std::string& path) {
  std::error_code ec;
  fs::path folder = fs::absolute(path, ec).parent_path();
  while (!fs::exists(folder, ec) && folder.has_relative_path()) folder = folder.parent_path();
  // Permissions are not all: the folders of /proc, say, take no files from anyone.
  int fd = open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) {
    std::string probe = (folder / ".tinygrad-XXXXXX").string();
    fd = mkostemp(probe.data(), O_CLOEXEC);
    if (fd >= 0) unlink(probe.c_str());
  }
  if (fd >= 0) close(fd);
  return fd >= 0;
}

}  // namespace tg
