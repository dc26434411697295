/// \file Host memory and the cache of freed blocks.
#include "tinygrad/runtime/allocator.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <list>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/base/text.h"
#include "tinygrad/runtime/device.h"

namespace tg {
namespace {

constexpr size_t kAlignment = 64, kHugePage = size_t{2} << 20;

class HostAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    if (bytes > SIZE_MAX / 2) return nullptr;
    return bytes >= kHugePage ? map(bytes)
                              : std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  void free(void* block, size_t bytes) noexcept override {
    if (bytes >= kHugePage) munmap(block, mapped(bytes));
    else std::free(block);
  }
  void* host_pointer(void* block) const override { return block; }

 private:
  static size_t mapped(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

  /// Returns whole huge pages, aligned as such: maps one more and unmaps the excess.
  static void* map(size_t bytes) {
    const size_t size = mapped(bytes);
    void* raw = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    auto begin = reinterpret_cast<uintptr_t>(raw);
    const uintptr_t aligned = (begin + kHugePage - 1) / kHugePage * kHugePage;
    if (aligned > begin) munmap(raw, aligned - begin);
    if (const size_t tail = begin + kHugePage - aligned) munmap(reinterpret_cast<void*>(aligned + size), tail);
    auto* block = reinterpret_cast<void*>(aligned);
#ifdef MADV_HUGEPAGE
    madvise(block, size, MADV_HUGEPAGE);
#endif
    return block;
  }
};

/// All caches of the process: when memory runs out, every one of them frees what it holds.
struct Caches {
  std::mutex mutex;
  std::vector<LruAllocator*> all;
};
Caches& caches() {
  static auto* instance = new Caches;  // outlives every static object
  return *instance;
}

std::atomic<int64_t> allocated{0};

/// Returns the bytes a device may hold under its own limit and MEMORY_LIMIT; 0: unlimited.
int64_t limit_now(int64_t own) {
  const int64_t mib = env::MEMORY_LIMIT.get();
  if (mib <= 0 || mib > INT64_MAX >> 20) return own;
  return own > 0 ? std::min(own, mib << 20) : mib << 20;
}

}  // namespace

int64_t allocated_bytes() { return allocated.load(std::memory_order_relaxed); }

void free_memory_caches() {
  Caches& c = caches();
  std::lock_guard lock(c.mutex);
  for (LruAllocator* a : c.all) a->free_cache();
}

std::unique_ptr<Allocator> make_host_allocator() { return std::make_unique<HostAllocator>(); }

struct LruAllocator::State {
  struct Block {
    void* handle;
    size_t bytes;
  };
  using Order = std::list<Block>;
  std::mutex mutex;
  std::string name;
  int64_t cache_limit, memory_limit;
  bool caching = true;
  MemoryStats stats;
  Order order;                                                           // least recently freed first
  std::unordered_map<size_t, std::vector<Order::iterator>> free_blocks;  // by size, most recently freed last

  void* take(size_t bytes) {
    auto it = free_blocks.find(bytes);
    if (it == free_blocks.end() || it->second.empty()) return nullptr;
    auto block = it->second.back();
    it->second.pop_back();
    void* handle = block->handle;
    order.erase(block);
    stats.cached -= static_cast<int64_t>(bytes);
    return handle;
  }
  /// Removes cached blocks, oldest first, until at most `limit` bytes remain; the caller frees them outside of the
  /// lock.
  Order evict(int64_t limit) {
    Order out;
    while (stats.cached > limit) {
      auto oldest = order.begin();
      auto& same_size = free_blocks[oldest->bytes];
      same_size.erase(same_size.begin());  // equal sizes are ordered by age too
      stats.cached -= static_cast<int64_t>(oldest->bytes);
      out.splice(out.end(), order, oldest);
    }
    return out;
  }
  bool over_limit(size_t bytes, int64_t limit) const {
    return limit > 0 && static_cast<int64_t>(bytes) > limit - stats.used - stats.cached;
  }
};

LruAllocator::LruAllocator(std::unique_ptr<Allocator> inner, std::string name, int64_t cache_limit,
                           int64_t memory_limit)
    : inner_(std::move(inner)), state_(new State) {
  state_->name = std::move(name);
  state_->cache_limit = cache_limit;
  state_->memory_limit = memory_limit;
  std::lock_guard lock(caches().mutex);
  caches().all.push_back(this);
}

LruAllocator::~LruAllocator() {
  {
    std::lock_guard lock(caches().mutex);
    std::erase(caches().all, this);
  }
  free_cache();
}

/// Allocates what was counted as used; it is not any more when the device throws.
void* LruAllocator::allocate_counted(size_t bytes) {
  try {
    return inner_->allocate(bytes);
  } catch (...) {
    std::lock_guard lock(state_->mutex);
    state_->stats.used -= static_cast<int64_t>(bytes);
    throw;
  }
}

void* LruAllocator::allocate(size_t bytes) {
  void* block = take_or_allocate(bytes);
  if (recording::on()) recording::memory(state_->name, block, static_cast<int64_t>(bytes));
  return block;
}

void* LruAllocator::take_or_allocate(size_t bytes) {
  TG_CHECK(OutOfMemoryError, bytes <= static_cast<size_t>(INT64_MAX), "[allocate] got a size of ", bytes, " bytes");
  const bool caching = static_cast<bool>(env::LRU);
  const auto size = static_cast<int64_t>(bytes);
  MemoryStats before;
  int64_t limit = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    bool fits;
    {
      std::lock_guard lock(state_->mutex);
      MemoryStats& s = state_->stats;
      state_->caching = caching;
      limit = limit_now(state_->memory_limit);
      void* block = state_->take(bytes);
      if (block) ++s.reused;
      fits = block || !state_->over_limit(bytes, limit);
      if (fits) {  // counted before it is allocated, so that threads together respect the limit
        s.used += size;
        if (block) {
          ++s.allocations;
          s.peak = std::max(s.peak, s.used);
          allocated.fetch_add(size, std::memory_order_relaxed);
          return block;
        }
      }
      before = s;
    }
    if (fits) {
      void* block = allocate_counted(bytes);
      std::lock_guard lock(state_->mutex);
      MemoryStats& s = state_->stats;
      if (block) {
        ++s.allocations;
        s.peak = std::max(s.peak, s.used);
        allocated.fetch_add(size, std::memory_order_relaxed);
        return block;
      }
      s.used -= size;
      before = s;
    }
    if (attempt == 0) free_memory_caches();
  }
  throw OutOfMemoryError(str("[allocate] ", state_->name, " has no memory for ", human_bytes(static_cast<double>(size)),
                             " (", size, " bytes): ", human_bytes(static_cast<double>(before.used)),
                             " are used by live buffers, ",
                             limit > 0 ? "the limit is " + human_bytes(static_cast<double>(limit))
                                       : std::string("there is no limit of ours")));
}

void LruAllocator::free(void* block, size_t bytes) noexcept {
  if (recording::begun()) recording::memory(state_->name, block, -static_cast<int64_t>(bytes));
  State::Order out;
  {
    std::lock_guard lock(state_->mutex);
    const auto size = static_cast<int64_t>(bytes);
    state_->stats.used -= size;
    allocated.fetch_sub(size, std::memory_order_relaxed);
    if (!state_->caching || size > state_->cache_limit) {
      out.push_back({block, bytes});
    } else {
      state_->order.push_back({block, bytes});
      state_->free_blocks[bytes].push_back(std::prev(state_->order.end()));
      state_->stats.cached += size;
      out = state_->evict(state_->cache_limit);
    }
  }
  for (const State::Block& b : out) inner_->free(b.handle, b.bytes);
}

void LruAllocator::free_cache() noexcept {
  State::Order out;
  {
    std::lock_guard lock(state_->mutex);
    out = state_->evict(0);
    state_->free_blocks.clear();
  }
  for (const State::Block& b : out) inner_->free(b.handle, b.bytes);
}

void LruAllocator::set_cache_limit(int64_t bytes) {
  State::Order out;
  {
    std::lock_guard lock(state_->mutex);
    state_->cache_limit = bytes;
    out = state_->evict(bytes);
  }
  for (const State::Block& b : out) inner_->free(b.handle, b.bytes);
}

void LruAllocator::set_memory_limit(int64_t bytes) {
  std::lock_guard lock(state_->mutex);
  state_->memory_limit = bytes;
}

MemoryStats LruAllocator::stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->stats;
}

void LruAllocator::reset_stats() {
  std::lock_guard lock(state_->mutex);
  state_->stats.peak = state_->stats.used;
  state_->stats.allocations = state_->stats.reused = 0;
}

MemoryStats memory_stats(std::string_view device) {
  if (!device.empty()) return Device::get(device).allocator().stats();
  MemoryStats sum;
  for (Device* d : Device::opened()) {
    if (!d->computes()) continue;  // files are not memory
    const MemoryStats s = d->allocator().stats();
    sum.used += s.used;
    sum.peak += s.peak;
    sum.cached += s.cached;
    sum.allocations += s.allocations;
    sum.reused += s.reused;
  }
  return sum;
}

void reset_memory_stats(std::string_view device) {
  if (!device.empty()) return Device::get(device).allocator().reset_stats();
  for (Device* d : Device::opened()) d->allocator().reset_stats();
}

}  // namespace tg
