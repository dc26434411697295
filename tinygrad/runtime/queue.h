/// \file Queues: commands that a device executes asynchronously, the events that order them, and batches of commands
/// that are submitted at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tinygrad/runtime/compiler.h"

namespace tg {

/// Bytes of device memory: from `offset` of an allocation on. `block` is what Allocator::allocate returned.
struct MemoryPlace {
  void* block = nullptr;
  size_t offset = 0;
};

/// A point in a queue, reached when all commands before it are done. Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  /// Returns whether it was reached, without waiting. True as well once the device has failed.
  virtual bool done() = 0;
  /// Waits until it is reached. Throws DeviceError when a command before it failed.
  virtual void wait() = 0;
  /// Returns the seconds on the clock of the device from `earlier`, an event of the same device, to this one; both have
  /// been reached. Empty on devices without a clock: the host's is used.
  virtual std::optional<double> seconds_since(const Event& earlier) const {
    (void)earlier;
    return std::nullopt;
  }
};
using EventRef = std::shared_ptr<Event>;

/// Commands that run one after another, asynchronously to the host and to other queues. Kernels are launched on
/// Device::queue() by Executable::launch. Every method may throw DeviceError: of its own command, or of one before it
/// that failed meanwhile. After a failure all commands of the device fail with the first cause; the process and the
/// other devices go on. Thread-safe.
class Queue {
 public:
  virtual ~Queue() = default;
  /// Whether every command is done when its call returns, as on the host.
  virtual bool synchronous() const { return false; }
  /// Copies n > 0 bytes of host memory, which stay as they are until the command is done.
  virtual void copy_in(MemoryPlace dst, const void* src, size_t n) = 0;
  /// Copies n > 0 bytes to host memory, which nobody reads until the command is done.
  virtual void copy_out(void* dst, MemoryPlace src, size_t n) = 0;
  /// Copies n > 0 bytes within the device; the two places do not overlap.
  virtual void copy(MemoryPlace dst, MemoryPlace src, size_t n) = 0;
  /// Returns an event behind all commands so far.
  virtual EventRef record() = 0;
  /// Makes the commands that follow wait for an event of this device's queues. The host does not wait.
  virtual void wait_for(const EventRef& event) = 0;
  /// Hands the commands so far to the device where it collects them (command encoders); nobody waits. The engine calls
  /// it at the end of every run. Waiting for an event or the queue implies it.
  virtual void flush() {}
  /// Waits for all commands.
  virtual void wait() = 0;
};

/// Returns the queue of host memory: copies with memcpy when it is called, its events are reached at once. Handles are
/// addresses.
Queue& host_queue();

/// A command of a batch: a launch, or without an executable a copy of `copy_bytes` from args.buffers[1] to
/// args.buffers[0], at their offsets.
struct BatchCommand {
  Executable* executable = nullptr;
  LaunchArgs args;
  size_t copy_bytes = 0;
};

/// Commands recorded once and submitted many times (a graph, a command buffer).
class Batch {
 public:
  virtual ~Batch() = default;
  /// Submits all commands to Device::queue() as if they were enqueued in order. The arguments of the commands
  /// `changed` (ascending) are others than at the submission before; at the first one all are new.
  virtual void submit(std::span<const uint32_t> changed) = 0;
};

}  // namespace tg
