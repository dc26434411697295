/// \file The DISK device: a file as a buffer, mapped into memory. An existing file is opened for reading and upgraded
/// at the first write; a missing or empty one gets the size of the buffer, as does shared memory that is smaller.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/runtime/builtin_devices.h"

namespace tg {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class DiskAllocator final : public Allocator {
 public:
  explicit DiskAllocator(std::string path) : path_(std::move(path)) {}

  void* allocate(size_t bytes) override {
    FileDescriptor existing(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (existing.get() >= 0) {
      struct stat info{};
      TG_CHECK(FileError, fstat(existing.get(), &info) == 0, "[disk] cannot examine ", path_, ": ",
               std::strerror(errno));
      TG_CHECK(FileError, S_ISREG(info.st_mode), "[disk] got ", path_, ", which is no regular file");
      if (static_cast<uint64_t>(info.st_size) < bytes && (info.st_size == 0 || is_shared_memory())) {
        FileDescriptor small(open(path_.c_str(), O_RDWR | O_CLOEXEC));
        TG_CHECK(FileError, small.get() >= 0 && ftruncate(small.get(), static_cast<off_t>(bytes)) == 0,
                 "[disk] cannot give ", path_, " ", bytes, " bytes: ", std::strerror(errno));
        return map(small.get(), bytes, /*writable=*/true);
      }
      TG_CHECK(FormatError, static_cast<uint64_t>(info.st_size) >= bytes, "[disk] got ", path_, " of ", info.st_size,
               " bytes, expected ", bytes);
      return map(existing.get(), bytes, /*writable=*/false);
    }
    TG_CHECK(FileError, errno == ENOENT, "[disk] cannot open ", path_, ": ", std::strerror(errno));
    FileDescriptor created(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    TG_CHECK(FileError, created.get() >= 0, "[disk] cannot create ", path_, ": ", std::strerror(errno));
    if (ftruncate(created.get(), static_cast<off_t>(bytes)) != 0) {
      const int error = errno;
      unlink(path_.c_str());
      throw FileError(str("[disk] cannot give ", path_, " ", bytes, " bytes: ", std::strerror(error)));
    }
    return map(created.get(), bytes, /*writable=*/true);
  }

  void free(void* block, size_t bytes) noexcept override {
    {
      std::lock_guard lock(mutex_);
      mappings_.erase(static_cast<char*>(block));
    }
    munmap(block, bytes);
  }
  /// Remaps the file for writing, at the same address.
  void make_writable(void* address) {
    std::lock_guard lock(mutex_);
    auto it = mappings_.upper_bound(static_cast<char*>(address));
    TG_ASSERT(it != mappings_.begin(), "[disk] address outside every mapping");
    --it;
    if (it->second.writable) return;
    FileDescriptor fd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    TG_CHECK(FileError, fd.get() >= 0, "[disk] cannot write ", path_, ": ", std::strerror(errno));
    struct stat info{};
    TG_CHECK(FileError, fstat(fd.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) >= it->second.bytes,
             "[disk] ", path_, " has shrunk to ", info.st_size, " bytes, expected ", it->second.bytes);
    // Mapped elsewhere and moved, so that a failure leaves what is there: a fixed mapping may leave a hole.
    const size_t bytes = it->second.bytes;
    void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    TG_CHECK(FileError, fresh != MAP_FAILED, "[disk] cannot map ", path_, " for writing: ", std::strerror(errno));
    if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, it->first) == MAP_FAILED) {
      const int error = errno;
      munmap(fresh, bytes);
      throw FileError(str("[disk] cannot map ", path_, " for writing: ", std::strerror(error)));
    }
    it->second.writable = true;
  }
  void* host_pointer(void* block) const override { return block; }

 private:
  /// Whether the file is memory between processes, which grows to what it is to hold: another file that is too small
  /// has been cut off.
  bool is_shared_memory() const { return path_.starts_with("/dev/shm/"); }

  struct Mapping {
    size_t bytes;
    bool writable;
    std::unique_ptr<GuardedMapping> guard;
  };

  void* map(int fd, size_t bytes, bool writable) {
    void* block = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    TG_CHECK(FileError, block != MAP_FAILED, "[disk] cannot map ", bytes, " bytes of ", path_, ": ",
             std::strerror(errno));
    auto guard = std::make_unique<GuardedMapping>(block, bytes);
    std::lock_guard lock(mutex_);
    mappings_[static_cast<char*>(block)] = {bytes, writable, std::move(guard)};
    return block;
  }

  std::string path_;
  std::mutex mutex_;
  std::map<char*, Mapping> mappings_;
};

/// Copies at once; files are mapped for writing when they are first written.
class DiskQueue final : public Queue {
 public:
  explicit DiskQueue(DiskAllocator& files) : files_(files) {}
  bool synchronous() const override { return true; }
  void copy_in(MemoryPlace dst, const void* src, size_t n) override {
    files_.make_writable(dst.block);
    host_queue().copy_in(dst, src, n);
  }
  void copy_out(void* dst, MemoryPlace src, size_t n) override { host_queue().copy_out(dst, src, n); }
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override {
    files_.make_writable(dst.block);
    host_queue().copy(dst, src, n);
  }
  EventRef record() override { return host_queue().record(); }
  void wait_for(const EventRef& event) override { event->wait(); }
  void wait() override {}

 private:
  DiskAllocator& files_;
};

class DiskDevice final : public Device {
 public:
  DiskDevice(const std::string& name, const std::string& path)
      : DiskDevice(name, path, std::make_unique<DiskAllocator>(path)) {}
  bool computes() const override { return false; }
  bool host_visible() const override { return true; }
  Queue& queue() override { return queue_; }
  bool has_contents() const override { return access(path_.c_str(), F_OK) == 0; }
  const Target& target() override { return refuse(); }
  Compiler& compiler(const Target&) override { refuse(); }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t>, const std::string&) override { refuse(); }

 private:
  DiskDevice(const std::string& name, std::string path, std::unique_ptr<DiskAllocator> files)
      : Device(name, nullptr), path_(std::move(path)), queue_(*files) {
    allocator_ = std::make_unique<LruAllocator>(std::move(files), name, /*cache_limit=*/0);
  }
  [[noreturn]] const Target& refuse() const {
    throw DeviceError("[disk] " + name() + " holds data, it does not compute: copy to another device first");
  }
  std::string path_;
  DiskQueue queue_;
};

/// Returns the file that a path stands for: "shm:NAME" is shared memory of all processes that use the name.
std::string file_of(const std::string& path) {
  if (!path.starts_with("shm:")) return path;
  const std::string shared = path.substr(path.starts_with("shm:/") ? 5 : 4);
  TG_CHECK(DeviceError, !shared.empty() && shared != "." && shared != ".." && shared.find('/') == std::string::npos,
           "[disk] got DISK:", path, ", expected DISK:shm:NAME with a name without '/'");
#ifdef __linux__
  TG_CHECK(DeviceError, access("/dev/shm", W_OK) == 0, "[disk] got DISK:", path,
           ", but there is no /dev/shm to write to");
  return "/dev/shm/" + shared;
#else
  throw DeviceError("[disk] got DISK:" + path + ", but shared memory has no path on this system");
#endif
}

std::unique_ptr<Device> open_disk(const std::string& name) {
  const size_t colon = name.find(':');
  TG_CHECK(DeviceError, colon != std::string::npos && colon + 1 < name.size(),
           "[disk] got no path, expected DISK:/path/of/a/file or DISK:shm:NAME");
  return std::make_unique<DiskDevice>(name, file_of(name.substr(colon + 1)));
}

}  // namespace

DeviceKind disk_kind() {
  return {
      .name = "DISK",
      .open = open_disk,
      .describe =
          [] {
            return std::string("DISK:/path, files mapped into memory; DISK:shm:NAME, memory shared between processes");
          },
      .order = 920,
      .takes_path = true};
}

}  // namespace tg
