/// \file Reading and writing whole files.
#include "tinygrad/io/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tinygrad/base/error.h"

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
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
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

void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const uint8_t>> parts,
                       std::string_view op) {
  std::string part = path.string() + ".XXXXXX";
  Closer file{::mkostemp(part.data(), O_CLOEXEC)};
  TG_CHECK(FileError, file.fd >= 0, "[", op, "] ", path.string(), ": cannot be written: ", std::strerror(errno));
  const auto fail = [&](const char* what) {
    const int error = errno;
    ::unlink(part.c_str());
    throw FileError(str("[", op, "] ", path.string(), ": ", what, ": ", std::strerror(error)));
  };
  for (std::span<const uint8_t> bytes : parts)
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::write(file.fd, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("write");
      done += n;
    }
  ::fchmod(file.fd, 0644);
  if (::rename(part.c_str(), path.c_str()) != 0) fail("rename");
}

MappedFile map_file(const std::filesystem::path& path, std::string_view op) {
  const Closer file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  TG_CHECK(FileError, file.fd >= 0, "[", op, "] ", path.string(), ": ", std::strerror(errno));
  struct stat info{};
  TG_CHECK(FileError, ::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode), "[", op, "] ", path.string(),
           ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return {};
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd, 0);
  TG_CHECK(FileError, at != MAP_FAILED, "[", op, "] ", path.string(), ": ", std::strerror(errno));
  return {{static_cast<uint8_t*>(at), size}, std::shared_ptr<void>(at, [size](void* p) { ::munmap(p, size); })};
}

}  // namespace tg::io
