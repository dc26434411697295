/// \file Buffer: lazy allocation, views, copies; the table from node ids to buffers.
#include "tinygrad/runtime/buffer.h"

#include <array>
#include <cstring>
#include <ostream>
#include <unordered_map>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/held_device.h"
#include "tinygrad/runtime/transfers.h"
#include "tinygrad/runtime/write_watch.h"
#include "tinygrad/uop/uop.h"

namespace tg {
namespace {

/// The address of empty buffers: valid, never read.
alignas(64) std::byte empty_block[64];

int64_t checked_bytes(int64_t size, DType dtype, const char* op) {
  TG_CHECK(ShapeError, size >= 0, "[", op, "] got ", size, " elements");
  int64_t nbytes = 0;
  const bool overflow = __builtin_mul_overflow(size, static_cast<int64_t>(dtype.itemsize()), &nbytes);
  TG_CHECK(ShapeError, !overflow, "[", op, "] got ", size, " elements of ", dtype.name(),
           ", whose bytes do not fit 64 bits");
  return nbytes;
}

}  // namespace

Buffer::Buffer(Private, Device& device, int64_t size, DType dtype, int64_t nbytes)
    : device_(&device), size_(size), nbytes_(nbytes), dtype_(dtype) {}

BufferRef Buffer::create(std::string_view device, int64_t size, DType dtype) {
  const int64_t nbytes = checked_bytes(size, dtype, "buffer");
  std::shared_ptr<Device> held = hold_device(device);
  if (held->computes()) return std::make_shared<Buffer>(Private{}, *held, size, dtype, nbytes);
  Device& file = *held;
  return BufferRef(new Buffer(Private{}, file, size, dtype, nbytes), [held = std::move(held)](Buffer* b) mutable {
    delete b;
    held.reset();
  });
}

BufferRef Buffer::from_external(std::string_view device, void* handle, int64_t size, DType dtype,
                                std::shared_ptr<void> owner) {
  BufferRef result = create(device, size, dtype);
  TG_CHECK(ValueError, handle != nullptr || size == 0, "[buffer] got no memory for ", size, " elements of ",
           dtype.name());
  result->external_ = true;
  result->owner_ = std::move(owner);
  result->handle_.store(handle ? handle : empty_block, std::memory_order_release);
  return result;
}

BufferRef Buffer::from_host(std::string_view device, HostBytes memory, int64_t size, DType dtype) {
  TG_CHECK(ShapeError, static_cast<int64_t>(memory.bytes.size()) == checked_bytes(size, dtype, "buffer"),
           "[buffer] got ", memory.bytes.size(), " bytes for ", size, " elements of ", dtype.name());
  // The flag below is the promise that nobody writes through this pointer.
  auto* data = const_cast<std::byte*>(memory.bytes.data());
  BufferRef result = from_external(device, data, size, dtype);
  TG_CHECK(DeviceError, result->device_->host_visible(), "[buffer] got host memory for ", result->device_name(),
           ", expected a device that computes in the host's memory: copy it there");
  result->owner_ = std::move(memory.owner);
  result->read_only_ = memory.access == HostBytes::Access::kReadOnly;
  return result;
}

BufferRef Buffer::view(int64_t size, DType dtype, int64_t byte_offset) {
  const int64_t nbytes = checked_bytes(size, dtype, "view");
  TG_CHECK(IndexError, byte_offset >= 0 && byte_offset <= nbytes_ && nbytes <= nbytes_ - byte_offset, "[view] got ",
           nbytes, " bytes at ", byte_offset, ", the buffer has ", nbytes_);
  BufferRef result = std::make_shared<Buffer>(Private{}, *device_, size, dtype, nbytes);
  result->offset_ = offset_ + byte_offset;
  result->base_ = base_ ? base_ : shared_from_this();
  return result;
}

Buffer::~Buffer() {
  void* block = handle_.load(std::memory_order_acquire);
  if (block && !external_) free_block(block);
}

/// Returns the bytes to allocate. Kernels take a handle of empty buffers, too, which they never read: where it need not
/// be one of the device's, it is the address of a static block.
size_t Buffer::block_bytes() const {
  if (nbytes_ > 0) return static_cast<size_t>(nbytes_);
  return device_->handles_are_addresses() ? 0 : sizeof empty_block;
}
void Buffer::free_block(void* block) noexcept {
  if (const size_t bytes = block_bytes()) device_->allocator().free(block, bytes);
}
void* Buffer::handle_of(void* block) const {
  return block && offset_ && device_->handles_are_addresses() ? static_cast<char*>(block) + offset_ : block;
}
int64_t Buffer::handle_offset() const { return device_->handles_are_addresses() ? 0 : offset_; }
MemoryPlace Buffer::place() {
  ensure_allocated();
  return {base().handle_.load(std::memory_order_acquire), static_cast<size_t>(offset_)};
}

const std::string& Buffer::device_name() const { return device_->name(); }

void* Buffer::ensure_allocated() {
  Buffer& b = base();
  void* block = b.handle_.load(std::memory_order_acquire);
  if (!block) [[unlikely]] {
    std::lock_guard lock(b.mutex_);
    block = b.handle_.load(std::memory_order_relaxed);
    if (!block) {
      const int64_t most = env::MAX_BUFFER_SIZE.get();
      TG_CHECK(OutOfMemoryError, most <= 0 || b.size_ <= most, "[buffer] got ", b.size_,
               " elements, MAX_BUFFER_SIZE allows ", most);
      const size_t bytes = b.block_bytes();
      block = bytes ? device_->allocator().allocate(bytes) : empty_block;
      b.handle_.store(block, std::memory_order_release);
    }
  }
  return handle_of(block);
}

void* Buffer::handle() const { return handle_of(base().handle_.load(std::memory_order_acquire)); }

void* Buffer::data() {
  if (!device_->host_visible()) return nullptr;
  const MemoryPlace at = place();
  device_->wait();
  return static_cast<char*>(device_->allocator().host_pointer(at.block)) + at.offset;
}

/// An owner of memory that was given out: the buffer lives, and its memory is not freed.
class Buffer::Pin {
 public:
  explicit Pin(BufferRef buffer) : buffer_(std::move(buffer)) { add(1); }
  ~Pin() { add(-1); }
  Pin(const Pin&) = delete;

 private:
  void add(int n) const {
    Buffer& b = buffer_->base();
    std::lock_guard lock(b.mutex_);
    b.pins_ += n;
  }
  BufferRef buffer_;
};

HostBytes Buffer::host_bytes() {
  const auto n = static_cast<size_t>(nbytes_);
  if (!device_->host_visible()) return HostBytes::made_by(n, [&](std::span<std::byte> to) { copy_out(to); });
  auto pin = std::make_shared<const Pin>(shared_from_this());
  // Files are mapped for reading; what writes to one is a copy to it.
  const bool read_only = is_read_only() || !device_->computes();
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(data()), n);
  return {bytes, std::move(pin), read_only ? HostBytes::Access::kReadOnly : HostBytes::Access::kShared};
}

void Buffer::check_writable(const char* op) const {
  TG_CHECK(ValueError, !is_read_only(), "[", op, "] got a buffer of ", nbytes_,
           " bytes over memory of somebody else that must not be written to, expected one of its own: copy it first");
}

void Buffer::copy_in(std::span<const std::byte> bytes) {
  TG_CHECK(ShapeError, static_cast<int64_t>(bytes.size()) == nbytes_, "[copy_in] got ", bytes.size(),
           " bytes, expected ", nbytes_);
  check_writable("copy_in");
  const MemoryPlace at = place();
  write_watch::note(*this);
  const HostFaultWatch faults;
  if (nbytes_) device_->transfers().copy_in(at, bytes.data(), bytes.size());
  faults.check();
}

void Buffer::copy_out(std::span<std::byte> bytes) {
  TG_CHECK(ShapeError, static_cast<int64_t>(bytes.size()) == nbytes_, "[copy_out] got room for ", bytes.size(),
           " bytes, expected ", nbytes_);
  TG_CHECK(DeviceError, is_allocated() || device_->has_contents() || nbytes_ == 0, "[copy_out] got a buffer of ",
           nbytes_, " bytes on ", device_name(), " that was never written");
  const MemoryPlace at = place();
  const HostFaultWatch faults;
  if (nbytes_) device_->transfers().copy_out(bytes.data(), at, bytes.size());
  faults.check();
}

void Buffer::copy_from(Buffer& source) {
  TG_CHECK(ShapeError, source.nbytes_ == nbytes_, "[copy] got ", source.nbytes_, " bytes, expected ", nbytes_);
  TG_CHECK(DeviceError, source.is_allocated() || source.device_->has_contents() || nbytes_ == 0,
           "[copy] got a buffer of ", nbytes_, " bytes on ", source.device_name(), " that was never written");
  check_writable("copy");
  const MemoryPlace from = source.place(), to = place();
  write_watch::note(*this);
  if (nbytes_ == 0) return;
  const auto n = static_cast<size_t>(nbytes_);
  if (device_ == source.device_) return copy_within(to, from);
  if (void* host = source.data()) return device_->transfers().copy_in(to, host, n);
  if (device_->host_visible() && device_->computes()) return source.device_->transfers().copy_out(data(), from, n);
  if (device_->reaches(*source.device_)) return device_->transfers().copy_from(to, *source.device_, from, n);
  constexpr size_t kPiece = size_t{16} << 20;
  std::vector<std::byte> staging(std::min(n, kPiece));
  for (size_t at = 0; at < n; at += kPiece) {
    const size_t piece = std::min(kPiece, n - at);
    source.device_->transfers().copy_out(staging.data(), {from.block, from.offset + at}, piece);
    device_->transfers().copy_in({to.block, to.offset + at}, staging.data(), piece);
  }
}

/// Copies within the device; through other memory where the two places overlap and the device has no memmove.
void Buffer::copy_within(MemoryPlace to, MemoryPlace from) {
  const auto n = static_cast<size_t>(nbytes_);
  const bool overlap = to.block == from.block && to.offset < from.offset + n && from.offset < to.offset + n;
  if (!overlap || device_->queue().synchronous()) return device_->transfers().copy(to, from, n);
  const BufferRef other = create(device_name(), size_, dtype_);
  device_->transfers().copy(other->place(), from, n);
  device_->transfers().copy(to, other->place(), n);
}

void Buffer::deallocate() {
  if (is_view() || external_) return;
  std::lock_guard lock(mutex_);
  if (pins_ > 0) return;
  void* block = handle_.exchange(nullptr, std::memory_order_acq_rel);
  if (block) free_block(block);
}

std::ostream& operator<<(std::ostream& os, const Buffer& b) {
  os << "<buffer " << b.device_name() << " " << b.size() << " x " << b.dtype().name();
  if (b.is_view()) os << " at byte " << b.offset() << " of " << b.base().nbytes();
  return os << (b.is_allocated() ? ">" : ", not allocated>");
}

namespace buffer_table {
namespace {

/// Sharded, so that threads realizing distinct tensors rarely contend.
struct Shard {
  std::mutex mutex;
  std::unordered_map<uint64_t, BufferRef> buffers;
};
constexpr size_t kShards = 16;

Shard& shard_of(uint64_t id) {
  static auto* shards =
      new std::array<Shard, kShards>;  // nodes held by static tensors die after static objects of ours would
  return (*shards)[id % kShards];
}

}  // namespace

void attach(uint64_t id, BufferRef buffer) {
  Shard& s = shard_of(id);
  std::lock_guard lock(s.mutex);
  const bool inserted = s.buffers.emplace(id, std::move(buffer)).second;
  TG_ASSERT(inserted, "buffer ", id, " exists");
}

BufferRef get(uint64_t id) {
  Shard& s = shard_of(id);
  std::lock_guard lock(s.mutex);
  auto it = s.buffers.find(id);
  return it == s.buffers.end() ? nullptr : it->second;
}

void release(uint64_t id) {
  BufferRef last;  // destroyed outside of the lock
  Shard& s = shard_of(id);
  std::lock_guard lock(s.mutex);
  auto it = s.buffers.find(id);
  if (it == s.buffers.end()) return;
  last = std::move(it->second);
  s.buffers.erase(it);
}

size_t size() {
  size_t n = 0;
  for (size_t i = 0; i < kShards; ++i) {
    Shard& s = shard_of(i);
    std::lock_guard lock(s.mutex);
    n += s.buffers.size();
  }
  return n;
}
BufferRef get(UOp buffer) { return get(static_cast<uint64_t>(buffer.arg<ParamArg>().slot)); }

}  // namespace buffer_table

}  // namespace tg
