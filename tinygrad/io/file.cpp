/// \file Reading and writing whole files.
#include "tinygrad/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"

namespace tg::io {
namespace {

struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::vector<uint8_t> read_file(const std::filesystem::path& path, uint64_t max_bytes) {
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe without a writer would block
  TG_CHECK(FileError, file.fd >= 0, "[read_file] ", path.string(), ": ", std::strerror(errno));
  struct stat info{};
  TG_CHECK(FileError, ::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode), "[read_file] ", path.string(),
           ": not a regular file");
  const auto size = static_cast<uint64_t>(info.st_size);
  TG_CHECK(FormatError, size <= max_bytes, "[read_file] ", path.string(), ": got ", size, " bytes, expected at most ",
           max_bytes);
  std::vector<uint8_t> bytes(size);
  for (size_t got = 0; got < size;) {
    const ssize_t n = ::read(file.fd, bytes.data() + got, size - got);
    if (n < 0 && errno == EINTR) continue;
    TG_CHECK(FileError, n >= 0, "[read_file] ", path.string(), ": ", std::strerror(errno));
    TG_CHECK(FileError, n > 0, "[read_file] ", path.string(), ": got ", got, " bytes, expected ", size,
             ": the file became shorter while it was read");
    got += n;
  }
  return bytes;
}

void write_file_atomic(const std::filesystem::path& path, std::span<const uint8_t> bytes, std::string_view op) {
  write_file_atomic(path, std::span<const std::span<const uint8_t>>(&bytes, 1), op);
}

namespace {

/// A new file that replaces `path` when it is complete, and goes away otherwise.
class Replacement {
 public:
  /// `unnamed`: has no name before it is complete, if the file system can do that.
  Replacement(const std::filesystem::path& path, bool unnamed, std::string_view op) : path_(path), op_(op) {
    std::string folder = path.parent_path().string();
    if (folder.empty()) folder = ".";
    // A new file has the rights the umask leaves; one that replaces another has those of the other, from the start.
    struct stat before{};
    const bool replaces = ::stat(path.c_str(), &before) == 0 && S_ISREG(before.st_mode);
    const mode_t mode = replaces ? 0600 : 0666;
    if (unnamed) file_.fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    if (file_.fd < 0) open_named(mode);
    if (replaces) ::fchmod(file_.fd, before.st_mode & 0777);
  }
  ~Replacement() {
    if (!part_.empty()) ::unlink(part_.c_str());
  }
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  void write(std::span<const uint8_t> bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::write(file_.fd, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write");
      done += static_cast<size_t>(n);
    }
  }
  void sync() {
    if (::fsync(file_.fd) != 0) fail("fsync");
  }
  /// Gives the file its name.
  void commit() {
    if (part_.empty()) link();
    if (::rename(part_.c_str(), path_.c_str()) != 0) fail("rename");
    part_.clear();
  }

 private:
  /// Returns a name next to the file that no other part of it has: numbered in this process.
  std::string new_name() const {
    static std::atomic<uint64_t> number{0};
    return str(path_.string(), ".", ::getpid(), ".", number++);
  }
  void open_named(mode_t mode) {
    for (int i = 0; file_.fd < 0; i++) {
      std::string name = new_name();
      file_.fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      TG_CHECK(FileError, file_.fd >= 0 || (errno == EEXIST && i < 1000), "[", op_, "] ", path_.string(),
               ": cannot be written: ", std::strerror(errno));
      if (file_.fd >= 0) part_ = std::move(name);
    }
  }
  /// Names an unnamed file, so that it can be renamed over the old one.
  void link() {
    const std::string self = str("/proc/self/fd/", file_.fd);
    for (int i = 0;; i++) {
      std::string name = new_name();
      if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
        part_ = std::move(name);
        return;
      }
      if (errno != EEXIST || i > 1000) fail("link");
    }
  }
  [[noreturn]] void fail(const char* what) const {
    throw FileError(str("[", op_, "] ", path_.string(), ": ", what, ": ", std::strerror(errno)));
  }

  std::filesystem::path path_;
  std::string_view op_;
  std::string part_;  ///< its name for now; empty when it has none
  Closer file_{-1};
};

/// Waits until the names in a folder are on the disk.
void sync_folder(const std::filesystem::path& folder) {
  const Closer file{::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (file.fd >= 0) ::fsync(file.fd);  // not every file system can
}

}  // namespace

void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const uint8_t>> parts,
                       std::string_view op) {
  Replacement file(path, /*unnamed=*/false, op);
  for (const std::span<const uint8_t> bytes : parts) file.write(bytes);
  file.commit();
}

void write_file_durable(const std::filesystem::path& path, std::span<const std::span<const uint8_t>> parts,
                        std::string_view op) {
  Replacement file(path, /*unnamed=*/true, op);
  for (const std::span<const uint8_t> bytes : parts) file.write(bytes);
  file.sync();
  file.commit();
  sync_folder(path.parent_path());
}

MappedFile map_file(const std::filesystem::path& path, std::string_view op) {
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe without a writer would block
  TG_CHECK(FileError, file.fd >= 0, "[", op, "] ", path.string(), ": ", std::strerror(errno));
  struct stat info{};
  TG_CHECK(FileError, ::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode), "[", op, "] ", path.string(),
           ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return {};
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd, 0);
  TG_CHECK(FileError, at != MAP_FAILED, "[", op, "] ", path.string(), ": ", std::strerror(errno));
  auto guard = std::make_shared<GuardedMapping>(at, size);
  return {{static_cast<uint8_t*>(at), size}, std::shared_ptr<void>(at, [size, guard](void* p) mutable {
            guard.reset();
            ::munmap(p, size);
          })};
}

}  // namespace tg::io
