/// \file Allocators: raw device memory, and the cache of freed blocks with its statistics in front of each device's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tg {

/// Raw memory of a device. A block is an opaque handle: a plain address where memory is host visible. What it holds is
/// copied by the device's queues. Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Returns a block of at least `bytes` > 0 bytes with undefined contents, aligned to 64 bytes or more; nullptr when
  /// memory is exhausted. Throws OutOfMemoryError for a size that the device never gives, DeviceError when it failed.
  virtual void* allocate(size_t bytes) = 0;
  /// Commands in queues may still use the block: the device keeps the memory until they are done. No error when the
  /// device has failed.
  virtual void free(void* block, size_t bytes) noexcept = 0;
  /// Returns the address at which the host reads and writes the block, or nullptr.
  virtual void* host_pointer(void* block) const {
    (void)block;
    return nullptr;
  }
};

/// Host memory: 64-byte aligned, huge pages from 2 MB on, not zeroed.
std::unique_ptr<Allocator> make_host_allocator();

/// Bytes held by the buffers and the allocator's cache of one device (or of all).
struct MemoryStats {
  int64_t used = 0;         ///< held by live buffers
  int64_t peak = 0;         ///< maximum of `used` since the last reset
  int64_t cached = 0;       ///< freed blocks kept for reuse
  int64_t allocations = 0;  ///< blocks handed out
  int64_t reused = 0;       ///< of these, taken from the cache
};

/// Keeps freed blocks by size for reuse. `LRU=0` turns the cache off; the limit evicts the least recently freed.
class LruAllocator final : public Allocator {
 public:
  /// `name` appears in errors. `cache_limit` bounds the cached bytes; `memory_limit` (0: none) and MEMORY_LIMIT bound
  /// used + cached bytes.
  LruAllocator(std::unique_ptr<Allocator> inner, std::string name, int64_t cache_limit, int64_t memory_limit = 0);
  ~LruAllocator() override;

  /// Never returns nullptr: empties the cache, retries, then throws OutOfMemoryError with the sizes involved.
  void* allocate(size_t bytes) override;
  void free(void* block, size_t bytes) noexcept override;
  void* host_pointer(void* block) const override { return inner_->host_pointer(block); }

  /// Returns the allocator behind the cache, whose blocks are not counted.
  Allocator& uncounted() { return *inner_; }
  /// Returns the cached blocks to the system.
  void free_cache() noexcept;
  void set_cache_limit(int64_t bytes);
  void set_memory_limit(int64_t bytes);
  MemoryStats stats() const;
  /// Resets the peak to the current use and the allocation count to zero.
  void reset_stats();

 private:
  struct State;
  void* allocate_counted(size_t bytes);
  void* take_or_allocate(size_t bytes);
  std::unique_ptr<Allocator> inner_;
  std::unique_ptr<State> state_;
};

/// Returns the bytes held by all devices' live buffers; one atomic load.
int64_t allocated_bytes();
/// Returns the cached blocks of every device to the system.
void free_memory_caches();
/// Returns the statistics of one opened device, or of all of them together when no name is given.
MemoryStats memory_stats(std::string_view device = {});
/// Resets peak and counts of one opened device, or of all.
void reset_memory_stats(std::string_view device = {});

}  // namespace tg
