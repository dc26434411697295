/// \file Memory of the fake GPUs: where it is used before it is there, after it was freed, behind its end, and by two
/// streams in no order.
#include <cstdlib>

#include "fake_driver/fake_machine.h"

namespace tg::fake {
namespace {

constexpr size_t kQuarantineBytes = size_t{64} << 20;  // of freed memory, in which late accesses are found

/// Forgets uses that every later command is behind of.
void forget_uses(Block& b) {
  if (b.uses.size() < 64) return;
  std::erase_if(b.uses, [](const Use& u) { return u.moment.before(machine().host); });
}

/// Keeps freed memory for a while, filled so that late accesses show.
void retire(Block& b) {
  Machine& m = machine();
  std::memset(b.begin, 0xdb, b.bytes);
  if (b.device >= 0) device_at(b.device).used -= static_cast<int64_t>(b.bytes);
  m.quarantine.push_back(b.begin);
  m.quarantined += b.bytes;
  while (m.quarantined > kQuarantineBytes) {
    const auto oldest = m.blocks.find(m.quarantine.front());
    m.quarantine.pop_front();
    m.quarantined -= oldest->second.bytes;
    std::free(oldest->second.begin);
    m.blocks.erase(oldest);
  }
}

int add_block(void** out, size_t bytes, int device, Moment allocated) {
  if (bytes == 0) return kInvalidValue;
  if (device >= 0) {
    DeviceState& d = device_at(device);
    if (static_cast<int64_t>(bytes) > kDeviceBytes - d.used) return kOutOfMemory;
    d.used += static_cast<int64_t>(bytes);
  }
  Block b;
  b.bytes = bytes;
  b.begin = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  b.device = device;
  b.allocated = allocated;
  b.pooled = allocated.number != 0;
  std::memset(b.begin, 0xa5, bytes);
  *out = b.begin;
  machine().blocks[b.begin] = b;
  return 0;
}

/// Returns the block that begins there and marks it as freed.
Block* free_block(void* address, bool pinned) {
  const auto it = machine().blocks.find(static_cast<char*>(address));
  if (it == machine().blocks.end()) {
    violation("freed what is no memory");
    return nullptr;
  }
  Block& b = it->second;
  if (b.freed || (b.device < 0) != pinned) {
    violation(b.freed ? "freed memory twice" : "freed memory of another kind");
    return nullptr;
  }
  b.freed = true;
  return &b;
}
void check_unused(const Block& b, const Clock& clock, const char* how) {
  for (const Use& u : b.uses)
    if (!u.moment.before(clock)) {
      violation(str("freed memory ", how, " while commands may use it"));
      return;
    }
}
}  // namespace

Block* find_block(const void* address) {
  auto& blocks = machine().blocks;
  auto it = blocks.upper_bound(static_cast<const char*>(address));
  if (it == blocks.begin()) return nullptr;
  --it;
  Block& b = it->second;
  return static_cast<const char*>(address) < b.begin + b.bytes ? &b : nullptr;
}

int touch(const Stream& s, Moment moment, const void* address, size_t bytes, bool writes, const char* who, bool exact) {
  Block* b = find_block(address);
  if (!b) {
    violation(str(who, " uses an address without memory"));
    return kIllegalAddress;
  }
  const char* begin = static_cast<const char*>(address);
  const char* end = begin + bytes;
  if (end > b->begin + b->bytes && exact) {
    violation(str(who, " goes ", end - (b->begin + b->bytes), " bytes beyond its memory"));
    return kIllegalAddress;
  }
  end = std::min<const char*>(end, b->begin + b->bytes);
  if (b->freed) violation(str(who, " uses memory that was freed"));
  if (b->device >= 0 && b->device != s.device && !device_at(s.device).peers[static_cast<size_t>(b->device)])
    violation(str(who, " of device ", s.device, " uses memory of device ", b->device));
  if (!b->allocated.before(s.clock)) violation(str(who, " does not wait for its memory to be allocated"));
  for (Use& u : b->uses)
    if ((u.writes || writes) && u.begin < end && begin < u.end && !u.moment.before(s.clock))
      violation(str(who, writes ? " writes" : " reads", " memory that another stream ", u.writes ? "writes" : "reads",
                    ", in no order"));
  forget_uses(*b);
  for (Use& u : b->uses)
    if (u.moment.stream == s.id && u.begin == begin && u.end == end && u.writes == writes) {
      u.moment = moment;
      return 0;
    }
  b->uses.push_back({begin, end, writes, moment});
  return 0;
}
namespace {
/// The same for memory of the host, which may be any.
void touch_host(const Stream& s, Moment moment, const void* address, size_t bytes, bool writes, const char* who) {
  if (find_block(address)) touch(s, moment, address, bytes, writes, who);
}

/// Copies whose one side is the host's.
int enqueue_host_copy(void* stream, void* to, const void* from, size_t bytes, bool in) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  const Moment moment = next_moment(*s);
  const int error = touch(*s, moment, in ? to : from, bytes, in, "a copy");
  touch_host(*s, moment, in ? from : to, bytes, !in, "a copy");
  push(*s, [=] {
    if (!error) std::memcpy(to, from, bytes);
    return error;
  });
  return 0;
}
}  // namespace

int allocate(void** block, size_t bytes) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return add_block(block, bytes, current_device, {});
}
int release(void* block) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Block* b = free_block(block, false);
  if (!b) return kInvalidValue;
  check_unused(*b, machine().host, "of a device");
  retire(*b);
  return 0;
}
int allocate_async(void** block, size_t bytes, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  if (current_device % 2 != 0) return kNotSupported;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  const Moment moment = next_moment(*s);
  push(*s, [] { return 0; });
  return add_block(block, bytes, current_device, moment);
}
int release_async(void* block, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  Block* b = s ? free_block(block, false) : nullptr;
  if (!b) return kInvalidValue;
  next_moment(*s);
  check_unused(*b, s->clock, "of a pool");
  const char* begin = b->begin;
  push(*s, [begin] {
    std::lock_guard guard(machine().mutex);
    retire(machine().blocks.at(begin));
    return 0;
  });
  return 0;
}
int allocate_pinned(void** memory, size_t bytes, unsigned) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  return add_block(memory, bytes, -1, {});
}
int release_pinned(void* memory) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Block* b = free_block(memory, true);
  if (!b) return kInvalidValue;
  check_unused(*b, machine().host, "of the host");
  retire(*b);
  return 0;
}
int copy_in(void* to, const void* from, size_t bytes, void* stream) {
  return enqueue_host_copy(stream, to, from, bytes, true);
}
int copy_out(void* to, void* from, size_t bytes, void* stream) {
  return enqueue_host_copy(stream, to, from, bytes, false);
}
int copy(void* to, void* from, size_t bytes, void* stream) {
  std::lock_guard lock(machine().mutex);
  if (const int error = check_current()) return error;
  Stream* s = find(machine().streams, stream, "stream");
  if (!s) return kInvalidHandle;
  Work w;
  w.to = static_cast<char*>(to);
  w.from = static_cast<const char*>(from);
  w.bytes = bytes;
  if (w.to < w.from + bytes && w.from < w.to + bytes) violation("a copy of memory that overlaps itself");
  return enqueue(*s, std::move(w));
}
int copy_between(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream) {
  {
    std::lock_guard lock(machine().mutex);
    const Block *a = find_block(to), *b = find_block(from);
    if (!a || !b || a->device != to_device || b->device != from_device)
      return violation("a copy between devices names others than the memory has");
  }
  return copy(to, const_cast<void*>(from), bytes, stream);
}

}  // namespace tg::fake
