/// \file Buffers, views, the LRU allocator, memory statistics, the side table, DISK.
#include "tinygrad/runtime/buffer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/process.h"
#include "tinygrad/runtime/allocator.h"
#include "tinygrad/runtime/device.h"

namespace tg {
namespace {

template <class T> std::span<const std::byte> bytes_of(const std::vector<T>& v) { return std::as_bytes(std::span(v)); }
template <class T> std::vector<T> read(Buffer& b) {
  std::vector<T> v(static_cast<size_t>(b.nbytes()) / sizeof(T));
  b.copy_out(std::as_writable_bytes(std::span(v)));
  return v;
}
std::vector<int> iota(int n) {
  std::vector<int> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0);
  return v;
}

TEST(Buffer, AllocatesWhenNeeded) {
  free_memory_caches();
  reset_memory_stats("CPU:7");
  const int64_t before = memory_stats("CPU:7").used;
  {
    BufferRef b = Buffer::create("cpu:7", 1000, dtypes::float32);
    EXPECT_EQ(b->device_name(), "CPU:7");
    EXPECT_EQ(b->nbytes(), 4000);
    EXPECT_FALSE(b->is_allocated());
    EXPECT_EQ(memory_stats("CPU:7").used, before);
    void* p = b->ensure_allocated();
    EXPECT_EQ(b->data(), p);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    EXPECT_EQ(memory_stats("CPU:7").used, before + 4000);
    EXPECT_EQ(memory_stats("CPU:7").peak, before + 4000);
  }
  EXPECT_EQ(memory_stats("CPU:7").used, before);
  EXPECT_EQ(memory_stats("CPU:7").peak, before + 4000);
  EXPECT_EQ(memory_stats("CPU:7").cached, 4000);
  reset_memory_stats("CPU:7");
  EXPECT_EQ(memory_stats("CPU:7").peak, before);
}

TEST(Buffer, CopiesAndChecksSizes) {
  BufferRef b = Buffer::create("CPU", 10, dtypes::int32);
  std::vector<int> room(10);
  EXPECT_THROW(b->copy_out(std::as_writable_bytes(std::span(room))), DeviceError) << "never written";
  b->copy_in(bytes_of(iota(10)));
  EXPECT_EQ(read<int>(*b), iota(10));
  EXPECT_THROW(b->copy_in(bytes_of(iota(9))), ShapeError);
  EXPECT_THROW(b->copy_out(std::as_writable_bytes(std::span(room).first(9))), ShapeError);
  EXPECT_THROW(Buffer::create("CPU", -1, dtypes::int32), ShapeError);
  EXPECT_THROW(Buffer::create("CPU", int64_t{1} << 62, dtypes::int32), ShapeError);
  EXPECT_THROW(Buffer::create("CPU", 1, dtypes::weakfloat), DTypeError);
  EXPECT_THROW(Buffer::create("TOASTER", 1, dtypes::int32), DeviceError);
}

TEST(Buffer, ViewsShareMemory) {
  BufferRef b = Buffer::create("CPU", 16, dtypes::int32);
  BufferRef v = b->view(4, dtypes::int32, 16), w = v->view(2, dtypes::int16, 4);
  EXPECT_FALSE(v->is_allocated());
  w->ensure_allocated();
  EXPECT_TRUE(b->is_allocated()) << "a view allocates its base";
  EXPECT_EQ(&w->base(), b.get());
  EXPECT_EQ(w->offset(), 20);
  b->copy_in(bytes_of(iota(16)));
  EXPECT_EQ(read<int>(*v), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(read<int16_t>(*w), (std::vector<int16_t>{5, 0}));
  w->copy_in(bytes_of(std::vector<int16_t>{-1, -1}));
  EXPECT_EQ(read<int>(*b)[5], -1);
  EXPECT_THROW(b->view(1, dtypes::int32, 61), IndexError);
  EXPECT_THROW(b->view(17, dtypes::int32, 0), IndexError);
  EXPECT_THROW(b->view(1, dtypes::int32, -4), IndexError);
  EXPECT_THROW(v->view(4, dtypes::int32, 4), IndexError);
  std::ostringstream os;
  os << *w;
  EXPECT_EQ(os.str(), "<buffer CPU 2 x int16 at byte 20 of 64>");
}

TEST(Buffer, ViewKeepsItsBaseAlive) {
  const int64_t before = memory_stats("CPU:7").used;
  BufferRef view;
  {
    BufferRef b = Buffer::create("CPU:7", 256, dtypes::uint8);
    b->copy_in(std::vector<std::byte>(256, std::byte{7}));
    view = b->view(4, dtypes::uint8, 100);
  }
  EXPECT_EQ(memory_stats("CPU:7").used, before + 256);
  EXPECT_EQ(read<uint8_t>(*view), (std::vector<uint8_t>{7, 7, 7, 7}));
  view.reset();
  EXPECT_EQ(memory_stats("CPU:7").used, before);
}

TEST(Buffer, EmptyBuffers) {
  const int64_t before = memory_stats("CPU:7").used;
  BufferRef b = Buffer::create("CPU:7", 0, dtypes::float32);
  EXPECT_NE(b->ensure_allocated(), nullptr);
  b->copy_in({});
  b->copy_out({});
  EXPECT_EQ(b->view(0, dtypes::int8, 0)->nbytes(), 0);
  EXPECT_EQ(memory_stats("CPU:7").used, before);
}

TEST(Buffer, ExternalMemory) {
  auto memory = std::make_shared<std::vector<int>>(iota(8));
  std::weak_ptr<std::vector<int>> watch = memory;
  const int64_t before = memory_stats("CPU").used;
  BufferRef b = Buffer::from_external("CPU", memory->data(), 8, dtypes::int32, memory);
  int* raw = memory->data();
  memory.reset();
  EXPECT_EQ(b->data(), raw) << "no copy";
  EXPECT_EQ(read<int>(*b), iota(8));
  EXPECT_EQ(memory_stats("CPU").used, before) << "memory of others is not counted";
  EXPECT_FALSE(watch.expired());
  b.reset();
  EXPECT_TRUE(watch.expired());
  EXPECT_THROW(Buffer::from_external("CPU", nullptr, 8, dtypes::int32), ValueError);
}

TEST(Buffer, CopiesAcrossDevices) {
  BufferRef a = Buffer::create("CPU", 1000, dtypes::int32), b = Buffer::create("CPU:1", 1000, dtypes::int32),
            n = Buffer::create("NULL", 1000, dtypes::int32);
  EXPECT_THROW(b->copy_from(*a), DeviceError) << "the source was never written";
  a->copy_in(bytes_of(iota(1000)));
  b->copy_from(*a);
  EXPECT_EQ(read<int>(*b), iota(1000));
  a->view(10, dtypes::int32, 0)->copy_from(*a->view(10, dtypes::int32, 20));  // overlapping
  EXPECT_EQ(read<int>(*a)[9], 14);
  n->copy_from(*a);
  EXPECT_EQ(n->data(), nullptr) << "not host visible";
  b->copy_from(*n);
  EXPECT_EQ(read<int>(*b), std::vector<int>(1000, 0));
  EXPECT_THROW(b->copy_from(*Buffer::create("CPU", 999, dtypes::int32)), ShapeError);
}

TEST(Buffer, ThreadsAllocateOnce) {
  for (int round = 0; round < 50; ++round) {
    BufferRef b = Buffer::create("CPU", 100, dtypes::uint8);
    void* seen[4] = {};
    std::vector<std::thread> threads;
    for (void*& s : seen) threads.emplace_back([&] { s = b->ensure_allocated(); });
    for (auto& t : threads) t.join();
    for (void* s : seen) ASSERT_EQ(s, seen[0]);
  }
}

TEST(Buffer, SideTable) {
  const size_t before = buffer_table::size();
  BufferRef b = Buffer::create("CPU", 1, dtypes::int8);
  const uint64_t id = uint64_t{1} << 60;
  EXPECT_EQ(buffer_table::get(id), nullptr);
  buffer_table::attach(id, b);
  EXPECT_EQ(buffer_table::get(id), b);
  EXPECT_THROW(buffer_table::attach(id, b), InternalError);
  EXPECT_EQ(buffer_table::size(), before + 1);
  buffer_table::release(id);
  buffer_table::release(id);
  EXPECT_EQ(buffer_table::get(id), nullptr);
  EXPECT_EQ(b.use_count(), 1);
  EXPECT_EQ(buffer_table::size(), before);
}

// ---- the allocator ----

/// Counts what reaches the system and fails beyond a limit.
struct CountingAllocator final : Allocator {
  explicit CountingAllocator(int* live, size_t most = SIZE_MAX) : live(live), most(most) {}
  void* allocate(size_t bytes) override {
    if (held + bytes > most) return nullptr;
    held += bytes;
    ++*live;
    return ::operator new(bytes);
  }
  void free(void* block, size_t bytes) noexcept override {
    held -= bytes;
    --*live;
    ::operator delete(block);
  }
  int* live;
  size_t most, held = 0;
};

TEST(LruAllocator, ReusesBlocksOfTheSameSize) {
  int live = 0;
  {
    LruAllocator a(std::make_unique<CountingAllocator>(&live), "TEST", 1 << 20);
    void *x = a.allocate(100), *y = a.allocate(100);
    a.free(x, 100);
    a.free(y, 100);
    EXPECT_EQ(live, 2);
    EXPECT_EQ(a.allocate(100), y) << "the one freed last is the warm one";
    void* other = a.allocate(101);
    EXPECT_NE(other, x);
    EXPECT_EQ(a.stats().reused, 1);
    EXPECT_EQ(a.stats().used, 201);
    EXPECT_EQ(a.stats().cached, 100);
    a.free_cache();
    EXPECT_EQ(a.stats().cached, 0);
    EXPECT_EQ(live, 2);
    a.free(y, 100);
    a.free(other, 101);
    EXPECT_EQ(live, 2);
  }
  EXPECT_EQ(live, 0) << "the destructor frees the cache";
}

TEST(LruAllocator, EvictsWhatWasFreedLongestAgo) {
  int live = 0;
  LruAllocator a(std::make_unique<CountingAllocator>(&live), "TEST", 250);
  void *x = a.allocate(100), *y = a.allocate(101), *z = a.allocate(102), *big = a.allocate(300);
  a.free(x, 100);
  a.free(y, 101);
  a.free(z, 102);
  EXPECT_EQ(a.stats().cached, 203);
  EXPECT_EQ(live, 3);
  EXPECT_EQ(a.allocate(101), y);
  a.free(y, 101);
  a.free(big, 300);
  EXPECT_EQ(a.stats().cached, 203) << "larger than the limit: not cached";
  a.set_cache_limit(150);
  EXPECT_EQ(a.stats().cached, 101) << "z was freed before y";
  EXPECT_EQ(live, 1);
}

TEST(LruAllocator, FreesCachesAndRetriesThenNamesSizes) {
  int live = 0;
  LruAllocator a(std::make_unique<CountingAllocator>(&live, 1000), "TEST", 1 << 20);
  void *x = a.allocate(600), *y = a.allocate(300);
  a.free(x, 600);
  void* z = a.allocate(700);  // 600 cached + 300 used + 700 > 1000: only after the cache is gone
  EXPECT_EQ(a.stats().cached, 0);
  try {
    a.allocate(500);
    FAIL();
  } catch (const OutOfMemoryError& e) {
    EXPECT_NE(std::string(e.what()).find("500 bytes"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("1.00 KB are used"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("TEST"), std::string::npos) << e.what();
  }
  EXPECT_EQ(a.stats().used, 1000) << "a failure leaves the count as it was";
  a.free(y, 300);
  a.free(z, 700);
}

TEST(LruAllocator, MemoryLimit) {
  int live = 0;
  LruAllocator a(std::make_unique<CountingAllocator>(&live), "TEST", 1 << 20, 1000);
  void* x = a.allocate(800);
  EXPECT_THROW(a.allocate(201), OutOfMemoryError);
  a.free(x, 800);
  void* y = a.allocate(900);  // the cached 800 make room
  EXPECT_EQ(live, 1);
  a.set_memory_limit(0);
  a.free(a.allocate(5000), 5000);
  a.free(y, 900);
}

TEST(LruAllocator, LruZeroTurnsTheCacheOff) {
  int live = 0;
  LruAllocator a(std::make_unique<CountingAllocator>(&live), "TEST", 1 << 20);
  Context off{{"LRU", 0}};
  a.free(a.allocate(100), 100);
  EXPECT_EQ(live, 0);
  EXPECT_EQ(a.stats().cached, 0);
}

TEST(HostAllocator, LargeBlocksAreAlignedAndReturned) {
  auto a = make_host_allocator();
  for (size_t n :
       {size_t{1}, size_t{63}, size_t{4097}, (size_t{2} << 20) - 1, size_t{2} << 20, (size_t{5} << 20) + 3}) {
    auto* p = static_cast<char*>(a->allocate(n));
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (n >= (size_t{2} << 20) ? size_t{2} << 20 : 64), 0u) << n;
    p[0] = 1;
    p[n - 1] = 1;
    a->free(p, n);
  }
  EXPECT_EQ(a->allocate(SIZE_MAX / 2 + 1), nullptr);
}

TEST(CpuDevice, ImpossibleAllocationIsATypedError) {
  BufferRef b = Buffer::create("CPU", int64_t{1} << 55, dtypes::uint8);
  EXPECT_THROW(b->ensure_allocated(), OutOfMemoryError);
  EXPECT_FALSE(b->is_allocated());
  Context limit{{"MAX_BUFFER_SIZE", 10}};
  EXPECT_THROW(Buffer::create("CPU", 11, dtypes::uint8)->ensure_allocated(), OutOfMemoryError);
}

// ---- DISK ----

#ifdef __linux__
TEST(DiskDevice, SharedMemoryByName) {
  const std::string name = "tinygrad_test_" + std::to_string(getpid());
  const int values[] = {1, 2, 3};
  const BufferRef b = Buffer::create("disk:shm:" + name, 3, dtypes::int32);
  b->copy_in(std::as_bytes(std::span(values)));
  const int fd = shm_open(("/" + name).c_str(), O_RDWR, 0600);
  ASSERT_GE(fd, 0) << "what other processes open";
  auto* shared = static_cast<int*>(mmap(nullptr, sizeof values, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  EXPECT_EQ(shared[2], 3);
  shared[0] = 7;
  int got[3];
  Buffer::create("DISK:shm:/" + name, 3, dtypes::int32)->copy_out(std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got[0], 7);
  munmap(shared, sizeof values);
  close(fd);
  shm_unlink(("/" + name).c_str());
}
#endif

struct Disk : testing::Test {
  TempDir dir{"tg_disk"};
  std::string file = (dir.path() / "Data.bin").string(), device = "disk:" + file;
  void write(size_t n) const {
    std::vector<char> bytes(n);
    std::iota(bytes.begin(), bytes.end(), 0);
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(n));
  }
};

TEST_F(Disk, ReadsAnExistingFile) {
  write(100);
  const MemoryStats before = memory_stats();
  BufferRef b = Buffer::create(device, 100, dtypes::uint8);
  EXPECT_EQ(b->device_name(), "DISK:" + file) << "paths keep their case";
  std::vector<uint8_t> bytes = read<uint8_t>(*b);
  EXPECT_EQ(bytes[99], 99);
  EXPECT_EQ(static_cast<const uint8_t*>(b->data())[3], 3) << "host visible";
  EXPECT_EQ(memory_stats().used, before.used) << "files are not memory";
  BufferRef part = Buffer::create("CPU", 2, dtypes::uint16);
  part->copy_from(*b->view(2, dtypes::uint16, 10));
  EXPECT_EQ(read<uint16_t>(*part), (std::vector<uint16_t>{0x0b0a, 0x0d0c}));
  EXPECT_EQ(std::filesystem::file_size(file), 100u);
}

TEST_F(Disk, ShortFileIsAFormatError) {
  write(99);
  EXPECT_THROW(Buffer::create(device, 100, dtypes::uint8)->ensure_allocated(), FormatError);
  EXPECT_EQ(std::filesystem::file_size(file), 99u) << "and is left as it is";
}

TEST_F(Disk, CreatesAndWrites) {
  {
    BufferRef b = Buffer::create(device, 5, dtypes::int32);
    EXPECT_THROW(read<int>(*b), DeviceError) << "there is no such file yet";
    EXPECT_FALSE(std::filesystem::exists(file));
    b->copy_in(bytes_of(iota(5)));
    EXPECT_EQ(std::filesystem::file_size(file), 20u);
  }
  BufferRef again = Buffer::create(device, 5, dtypes::int32);
  EXPECT_EQ(read<int>(*again), iota(5));
  BufferRef n = Buffer::create("NULL", 1, dtypes::int32), c = Buffer::create("CPU", 1, dtypes::int32);
  n->ensure_allocated();
  again->view(1, dtypes::int32, 8)->copy_from(*n);  // through staging; an existing file becomes writable
  c->copy_in(bytes_of(std::vector<int>{42}));
  again->view(1, dtypes::int32, 12)->copy_from(*c);
  again.reset();
  EXPECT_EQ(read<int>(*Buffer::create(device, 5, dtypes::int32)), (std::vector<int>{0, 1, 0, 42, 4}));
}

TEST_F(Disk, Errors) {
  EXPECT_THROW(Device::get("DISK"), DeviceError);
  EXPECT_THROW(Device::get("DISK:"), DeviceError);
  for (const char* name : {"DISK:shm:", "DISK:shm:a/b", "DISK:shm:.."}) EXPECT_THROW(Device::get(name), DeviceError);
  EXPECT_THROW(Buffer::create("DISK:" + dir.path().string(), 1, dtypes::uint8)->ensure_allocated(), FileError)
      << "a folder";
  EXPECT_THROW(Buffer::create("DISK:" + dir.path().string() + "/none/x", 1, dtypes::uint8)->ensure_allocated(),
               FileError);
  EXPECT_THROW(Device::get(device).target(), DeviceError);
  EXPECT_THROW(Device::get(device).load(std::vector<uint8_t>{1}, "k"), DeviceError);
}

}  // namespace
}  // namespace tg
