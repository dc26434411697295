/// \file The staging ring, and copies through it.
#include "tinygrad/runtime/transfers.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/device.h"

namespace tg {

StagingRing::~StagingRing() {
  if (memory_) allocator_->free(memory_, kBytes);
}

bool StagingRing::is_free(size_t begin, size_t end) const {
  return std::none_of(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.begin < end && begin < p.end; });
}

std::byte* StagingRing::take(size_t n) {
  TG_ASSERT(n <= kPiece, "a copy of ", n, " bytes in one piece");
  if (!memory_) {
    allocator_ = device_.make_staging_allocator();
    void* block = allocator_->allocate(kBytes);
    TG_CHECK(OutOfMemoryError, block, "[copy] ", device_.name(), " has no staging memory of ", kBytes, " bytes");
    memory_ = static_cast<std::byte*>(allocator_->host_pointer(block));
  }
  while (!pieces_.empty() && pieces_.front().until->done()) pieces_.pop_front();
  if (next_ + n > kBytes) next_ = 0;
  while (!is_free(next_, next_ + n)) {
    const EventRef oldest = pieces_.front().until;
    pieces_.pop_front();  // also when waiting fails: nobody reads it then
    oldest->wait();
  }
  std::byte* at = memory_ + next_;
  constexpr size_t kLine = 64;
  const size_t end = std::min(kBytes, (next_ + n + kLine - 1) / kLine * kLine);
  pieces_.push_back({next_, end, nullptr});
  next_ = end;
  return at;
}

void StagingRing::in_use(EventRef until) {
  if (until) pieces_.back().until = std::move(until);
  else pieces_.pop_back();
}

bool Transfers::ordered() const { return &device_.queue() != &device_.transfer_queue(); }

std::unique_lock<std::mutex> Transfers::before(Queue& queue, std::span<const MemoryAccess> accesses) {
  return ordered() ? order_.before(queue, accesses) : std::unique_lock<std::mutex>();
}
std::unique_lock<std::mutex> Transfers::before_launch(std::span<const MemoryAccess> accesses) {
  return before(device_.queue(), accesses);
}

namespace {
MemoryAccess access_of(MemoryPlace p, size_t n, bool writes) {
  return {p.block, static_cast<int64_t>(p.offset), static_cast<int64_t>(p.offset + n), writes};
}
}  // namespace

void Transfers::copy_in(MemoryPlace dst, const void* src, size_t n) {
  Queue& queue = device_.transfer_queue();
  if (queue.synchronous()) return queue.copy_in(dst, src, n);
  std::lock_guard staging(staging_mutex_);
  for (size_t at = 0; at < n; at += StagingRing::kPiece) {
    const size_t piece = std::min(StagingRing::kPiece, n - at);
    std::byte* staged = staging_.take(piece);
    std::memcpy(staged, static_cast<const char*>(src) + at, piece);
    const MemoryPlace to{dst.block, dst.offset + at};
    const MemoryAccess access = access_of(to, piece, true);
    EventRef copied;
    try {
      const auto lock = before(queue, {&access, 1});
      queue.copy_in(to, staged, piece);
      copied = queue.record();
    } catch (...) {
      staging_.in_use(nullptr);
      throw;
    }
    staging_.in_use(std::move(copied));
    queue.flush();
  }
}

void Transfers::copy_out(void* dst, MemoryPlace src, size_t n) {
  Queue& queue = device_.transfer_queue();
  if (queue.synchronous()) return queue.copy_out(dst, src, n);
  EventRef copied;
  {
    const MemoryAccess access = access_of(src, n, false);
    const auto lock = before(queue, {&access, 1});
    queue.copy_out(dst, src, n);
    copied = queue.record();
  }
  copied->wait();
}

void Transfers::copy(MemoryPlace dst, MemoryPlace src, size_t n) {
  const MemoryAccess accesses[] = {access_of(dst, n, true), access_of(src, n, false)};
  const auto lock = before(device_.queue(), accesses);
  device_.queue().copy(dst, src, n);
}

/// The copy waits for what the source has enqueued, and the source's later commands wait for the copy: both devices
/// take no other command meanwhile.
void Transfers::copy_from(MemoryPlace dst, Device& source, MemoryPlace src, size_t n) {
  const MemoryAccess reads = access_of(src, n, false), writes = access_of(dst, n, true);
  Queue &here = device_.queue(), &there = source.queue();
  std::unique_lock<std::mutex> locks[2];
  const bool first = std::less<>()(this, &source.transfers());  // one order for all pairs of devices
  for (const bool mine : {first, !first})
    locks[mine] = mine ? before(here, {&writes, 1}) : source.transfers().before(there, {&reads, 1});
  here.wait_for(there.record());
  device_.copy_from(dst, source, src, n);
  there.wait_for(here.record());
}

}  // namespace tg
