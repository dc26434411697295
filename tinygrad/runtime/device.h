/// \file Device: memory, queues, compiler and loader of one device behind one interface, opened by name.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/runtime/allocator.h"
#include "tinygrad/runtime/compiler.h"
#include "tinygrad/runtime/queue.h"
#include "tinygrad/target/target.h"

namespace tg {

struct Program;
class Transfers;
class DeviceLink;

/// One line of `tg devices`.
struct DeviceInfo {
  std::string name;
  bool available = false;
  std::string note;     ///< what it is when available, else what is missing
  std::string install;  ///< how to install what is missing; empty when available or unknown
};

/// An opened device; lives until the process ends. A backend derives from it and is registered with RegisterDevice
/// (runtime/device_registry.h). Its methods are called from many threads.
class Device {
 public:
  /// Opens (once) the device called e.g. "cpu:1", "DISK:/path", or the default for an empty name. Throws DeviceError
  /// that lists the known devices, or names what is missing.
  static Device& get(std::string_view name = {});
  /// Canonicalizes: "cpu:0" -> "CPU", "cuda:1" -> "CUDA:1", "" -> the default; paths keep their case; lists of devices
  /// stay lists. Throws DeviceError for an unknown kind.
  static std::string canonical(std::string_view name);
  /// Returns the device that DEV (`DEVICE[:RENDERER[:ARCH]]`, ';' separated) names, else the first that opens.
  static std::string default_name();
  /// Returns the name of every kind of device, by DeviceKind::order and name. Opens no driver.
  static std::vector<std::string> kinds();
  /// Returns every kind of device with its availability, in the order of kinds(). Opens the drivers to find out.
  static std::vector<DeviceInfo> list();
  /// Waits for the work queued on one device, or on every opened one. Throws DeviceError when a command failed.
  static void synchronize(std::string_view name = {});
  /// Returns the devices opened so far, in the order of opening.
  static std::vector<Device*> opened();

  virtual ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }  ///< canonical: "CPU", "CPU:1"
  const std::string& kind() const { return kind_; }  ///< without the index: "CPU"
  /// Returns the allocator of its memory.
  LruAllocator& allocator() { return *allocator_; }
  Transfers& transfers() { return *transfers_; }  ///< how buffers are copied
  /// Whether kernels can be compiled and run on this device; false for pure storage.
  virtual bool computes() const { return true; }
  /// Whether kernels reach it as compiled bytes; false where it executes linear UOps.
  virtual bool compiles() const { return computes(); }
  /// Whether its kernels compute anything; false for a device that only compiles them.
  virtual bool executes() const { return computes(); }
  /// Whether the host reads and writes its memory directly.
  virtual bool host_visible() const { return false; }
  /// Whether a handle plus n is the handle of the byte n further: host memory, CUDA. Otherwise (OpenCL, Metal, WebGPU)
  /// a part of an allocation is the allocation's handle and an offset, see LaunchArgs.
  virtual bool handles_are_addresses() const { return true; }
  /// Whether memory holds meaningful bytes before anything was written: an existing file.
  virtual bool has_contents() const { return false; }
  /// Returns the code generation target under the current DEV setting. The reference stays valid.
  virtual const Target& target() = 0;
  /// Returns the compiler of `target`, which must be one this device returned.
  virtual Compiler& compiler(const Target& target) = 0;
  Compiler& compiler() { return compiler(target()); }
  /// Returns the compiler of kernels that a user wrote in the language of the device, for `target`.
  virtual Compiler& source_compiler(const Target& target) { return compiler(target); }
  /// Returns the processor at hand: it runs kernels compiled for any target whose features it has.
  virtual const Target& processor() { return target(); }
  /// Loads compiled bytes. Throws FormatError for bytes that are no program for this device, or lack the symbol.
  virtual std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) = 0;
  /// Loads a compiled kernel: by default its binary; a device that executes linear UOps overrides this.
  virtual std::shared_ptr<Executable> load(const std::shared_ptr<const Program>& program);

  /// Returns the queue of kernels and of copies within the device.
  virtual Queue& queue() { return host_queue(); }
  /// Returns the queue of copies from and to the host. One of its own lets them overlap kernels: the engine orders what
  /// shares memory by events.
  virtual Queue& transfer_queue() { return queue(); }
  /// Returns an allocator of host memory that copies from and to this device are fastest with (pinned).
  virtual std::unique_ptr<Allocator> make_staging_allocator() { return make_host_allocator(); }
  /// Whether copy_from() can copy from `source`, another device; otherwise the host copies between the two.
  virtual bool reaches(Device& source) {
    (void)source;
    return false;
  }
  /// Copies n > 0 bytes of the memory of a device that this one reaches, as a command of queue(). The engine orders it
  /// with the commands of both. DeviceError where reaches() is false.
  virtual void copy_from(MemoryPlace dst, Device& source, MemoryPlace src, size_t n);
  /// Returns how it exchanges memory with devices of other processes by itself (runtime/world/device_link.h); nullptr
  /// where it does not: the host does.
  virtual DeviceLink* link() { return nullptr; }
  /// Records commands of executables of this device that will be submitted many times; nullptr where enqueueing them
  /// one by one is as good. The commands stay where they are while the batch lives; their arguments may change between
  /// submissions, their executables and the numbers of buffers and variables do not.
  virtual std::unique_ptr<Batch> record_batch(std::span<const BatchCommand> commands) {
    (void)commands;
    return nullptr;
  }
  /// Waits for the work of all queues. Throws DeviceError when a command failed.
  virtual void wait();

 protected:
  /// `name`: the canonical name it is opened with. `allocator`: holds the backend's own Allocator.
  Device(std::string name, std::unique_ptr<LruAllocator> allocator);
  std::unique_ptr<LruAllocator> allocator_;

 private:
  std::string name_, kind_;
  std::unique_ptr<Transfers> transfers_;
};

}  // namespace tg
