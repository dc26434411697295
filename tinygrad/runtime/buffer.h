/// \file Buffer: a typed piece of device memory, allocated when first needed, freed when the last reference goes; views
/// share their base.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "tinygrad/base/dtype.h"
#include "tinygrad/base/host_bytes.h"
#include "tinygrad/runtime/queue.h"

namespace tg {
class UOp;

class Buffer;
class Device;
using BufferRef = std::shared_ptr<Buffer>;

class Buffer : public std::enable_shared_from_this<Buffer> {
  struct Private {};  // construction through the factories only

 public:
  /// An unallocated buffer of `size` elements. Throws DeviceError for an unknown device, ShapeError when the bytes
  /// overflow.
  static BufferRef create(std::string_view device, int64_t size, DType dtype);
  /// Wraps foreign memory: `handle` must stay valid while `owner` (may be empty) or the buffer lives.
  static BufferRef from_external(std::string_view device, void* handle, int64_t size, DType dtype,
                                 std::shared_ptr<void> owner = {});
  /// Wraps host memory of others; `memory.access` says whether it may be written to. Throws DeviceError for a device
  /// whose memory is not the host's.
  static BufferRef from_host(std::string_view device, HostBytes memory, int64_t size, DType dtype);
  /// Returns a part of this buffer's memory, `byte_offset` from this buffer's begin, possibly as another type. Throws
  /// IndexError when it does not fit.
  BufferRef view(int64_t size, DType dtype, int64_t byte_offset);

  Device& device() const { return *device_; }
  const std::string& device_name() const;
  int64_t size() const { return size_; }
  DType dtype() const { return dtype_; }
  int64_t nbytes() const { return nbytes_; }
  /// The buffer that owns the memory (this one unless it is a view) and the offset from its begin in bytes.
  Buffer& base() { return base_ ? *base_ : *this; }
  const Buffer& base() const { return base_ ? *base_ : *this; }
  bool is_view() const { return base_ != nullptr; }
  /// Whether the memory belongs to somebody who forbids writes to it.
  bool is_read_only() const { return base().read_only_; }
  int64_t offset() const { return offset_; }

  /// The user's operation that created the value (a literal), or null; for messages.
  const char* made_by() const { return made_by_; }
  void set_made_by(const char* operation) { made_by_ = operation; }

  bool is_allocated() const { return base().handle_.load(std::memory_order_acquire) != nullptr; }
  /// Allocates on the first call and returns the handle, as LaunchArgs::buffers has it: of the first byte where handles
  /// are addresses, else of the allocation. Thread-safe. Throws OutOfMemoryError.
  void* ensure_allocated();
  /// Returns the handle, nullptr while unallocated.
  void* handle() const;
  /// Returns the bytes from the handle to the first byte: 0 where handles are addresses, else offset().
  int64_t handle_offset() const;
  /// Returns where the memory is, allocating it.
  MemoryPlace place();
  /// Returns the host address where memory is host visible (allocating it), else nullptr.
  void* data();

  /// Returns the contents, once the commands that write them are done: the memory itself where it is host visible, else
  /// a copy. Memory that was given out stays as it is until the last owner of it is gone.
  HostBytes host_bytes();

  /// Copies exactly nbytes() from or to the host; throws ShapeError for another size. Reading an unallocated buffer
  /// throws DeviceError. Reading waits for the commands that write the buffer; writing waits for nothing, and `bytes`
  /// may change when it returns; ValueError for memory that must not be written to.
  void copy_in(std::span<const std::byte> bytes);
  void copy_out(std::span<std::byte> bytes);
  /// Copies from a buffer of the same nbytes() on any device; waits only where that is not the same one.
  void copy_from(Buffer& source);
  /// Frees the memory before the last reference is dropped. No effect on views, on external memory and on memory that
  /// host_bytes() gave out.
  void deallocate();

  Buffer(Private, Device& device, int64_t size, DType dtype, int64_t nbytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

 private:
  Device* device_;
  int64_t size_, nbytes_, offset_ = 0;
  DType dtype_;
  bool external_ = false, read_only_ = false;
  class Pin;
  void check_writable(const char* op) const;
  void* handle_of(void* block) const;
  size_t block_bytes() const;
  void free_block(void* block) noexcept;
  void copy_within(MemoryPlace to, MemoryPlace from);

  std::atomic<void*> handle_{nullptr};  // of the base; views compute theirs
  BufferRef base_;
  std::shared_ptr<const void> owner_;
  const char* made_by_ = nullptr;
  std::mutex mutex_;  // guards the allocation and pins_
  int pins_ = 0;      // owners of memory that was given out; of the base
};

std::ostream& operator<<(std::ostream&, const Buffer&);

/// The side table from the id of a BUFFER node to its memory. Thread-safe, constant time.
namespace buffer_table {
/// Throws InternalError when the id already has a buffer.
void attach(uint64_t id, BufferRef buffer);
/// Returns null when the id has none.
BufferRef get(uint64_t id);
/// Returns the memory of a BUFFER node, null when it has none.
BufferRef get(UOp buffer);
/// Called when the node dies; unknown ids are ignored.
void release(uint64_t id);
size_t size();
}  // namespace buffer_table

}  // namespace tg
