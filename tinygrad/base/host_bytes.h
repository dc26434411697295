/// \file HostBytes: host memory that crosses the border of the library, with what keeps it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace tg {

/// Bytes in host memory and their owner. While `owner` or a copy of it lives the memory is given to nobody else,
/// whatever becomes of the tensor, buffer or array they were taken from.
struct HostBytes {
  enum class Access : uint8_t {
    kCopy,      ///< a snapshot: writes change nothing else
    kShared,    ///< storage itself: both sides see writes
    kReadOnly,  ///< storage that must not be written to
  };
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
  Access access = Access::kCopy;

  /// Returns uninitialized memory of its own, which `fill` writes.
  template <class F> static HostBytes made_by(size_t size, F&& fill) {
    auto memory = std::make_shared_for_overwrite<std::byte[]>(size);
    fill(std::span(memory.get(), size));
    const std::span<const std::byte> bytes(memory.get(), size);
    return {bytes, std::move(memory), Access::kCopy};
  }
};

}  // namespace tg
