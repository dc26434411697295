/// \file The parts of a GPU's device: context, streams, memory, loaded kernels, graphs. Included by its own sources
/// alone.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tinygrad/runtime/allocator.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/gpu_driver.h"
#include "tinygrad/runtime/queue.h"
#include "tinygrad/runtime/world/device_link.h"
#include "tinygrad/target/target.h"

namespace tg {

/// An opened device. Its functions are called from many threads.
struct GpuContext {
  /// Opens device `ordinal` of the driver under the name that errors have for it ("CUDA:1"). Throws DeviceError.
  GpuContext(const GpuDriver& gpu_driver, int ordinal, std::string device_name);
  ~GpuContext();
  GpuContext(const GpuContext&) = delete;
  GpuContext& operator=(const GpuContext&) = delete;

  const GpuDriver& driver;
  const std::string name;
  int device = 0;                                                   ///< the driver's number of it
  void* handle = nullptr;                                           ///< CUDA's context; null for HIP
  void *compute = nullptr, *transfer = nullptr, *memory = nullptr;  ///< streams: of kernels, of copies, of allocations
  int64_t bytes = 0;                                                ///< of memory
  bool pools = false;                                               ///< has stream-ordered allocation
  int64_t shared_limit = 0;                                         ///< bytes that a group can have,
  int64_t shared_static = 0;                                        ///< and without asking for more
  int64_t group_limit[3] = {1, 1, 1}, grid_limit[3] = {1, 1, 1};

  /// Makes the device current in this thread. Throws DeviceError, with the first cause where the device has failed.
  void enter() const;
  /// Makes it current for something that throws nothing; false where that is not possible.
  bool enter_quietly() const noexcept;
  /// Calls a function of the driver for this device, which is current. Throws DeviceError that names the call.
  template <class... Args> void call(const GpuFunction<Args...>& function, std::type_identity_t<Args>... args) const {
    if (const int error = function(args...)) fail(error, function.symbol);
  }
  /// Notes an error that ends the device; throws DeviceError for every one.
  [[noreturn]] void fail(int error, const char* symbol) const;
  void note(int error, const char* symbol) const noexcept;
  /// Notes that memory has not what commands should have written there, for another reason than an error of the device:
  /// whatever enters it from now on, or has waited for it, gets what `raise` throws.
  void lose(std::function<void()> raise) const noexcept;
  /// Throws the first cause where the device has failed.
  void check_failed() const {
    if (failed_.load(std::memory_order_acquire)) [[unlikely]]
      raise_failure();
  }

  /// Returns an event that no one uses, and takes it back.
  void* take_event() const;
  void return_event(void* event) const noexcept;
  /// Makes `stream` wait for all commands of `other` so far.
  void order(void* stream, void* other) const;

 private:
  void release() noexcept;
  [[noreturn]] void raise_failure() const;

  mutable std::mutex mutex_;
  mutable std::atomic<bool> failed_{false};
  mutable std::string cause_;           // of the first failure
  mutable std::function<void()> lost_;  // throws it
  mutable std::vector<void*> events_;   // free ones
};

/// A stream.
class GpuQueue final : public Queue {
 public:
  GpuQueue(const GpuContext& context, void* stream) : context_(context), stream_(stream) {}
  void copy_in(MemoryPlace dst, const void* src, size_t n) override;
  void copy_out(void* dst, MemoryPlace src, size_t n) override;
  void copy(MemoryPlace dst, MemoryPlace src, size_t n) override;
  EventRef record() override;
  void wait_for(const EventRef& event) override;
  void wait() override;

 private:
  const GpuContext& context_;
  void* const stream_;
};

/// Memory of the device, in the order of its streams where the device has pools.
std::unique_ptr<Allocator> make_gpu_allocator(const GpuContext& context);
/// Pinned memory of the host.
std::unique_ptr<Allocator> make_pinned_allocator(const GpuContext& context);

/// What a launch points to: its arguments, and the maps among them.
struct GpuArguments {
  std::vector<void*> pointers;
  std::vector<GpuTensorMap> maps;
};

/// A kernel of a loaded module.
class GpuExecutable final : public Executable {
 public:
  GpuExecutable(const GpuContext& context, std::span<const uint8_t> image, std::string symbol);
  ~GpuExecutable() override;
  void launch(const LaunchArgs& args) override;
  /// Checks the size of a launch against the limits of the device and fills in everything; `arguments` keeps the
  /// pointers to arguments, which stay where they are in `args`, and the maps.
  GpuLaunch prepare(const LaunchArgs& args, GpuArguments* arguments);

 private:
  void find_function();
  void check_size(const LaunchArgs& args) const;

  const GpuContext& context_;
  const std::string name_;
  void *module_ = nullptr, *function_ = nullptr;
  const std::vector<TensorMap> maps_;  // its last parameters
  int64_t threads_ = 0;                // of a group, at most
  int64_t shared_bytes_ = 0;           // that the kernel declares
  std::mutex mutex_;
  int64_t allowed_bytes_ = 0;  // of shared memory in addition
};

/// Commands as an instantiated graph, made when they are submitted first.
std::unique_ptr<Batch> make_gpu_graph(const GpuContext& context, std::span<const BatchCommand> commands);

/// What makes a driver's devices one kind of ours.
struct GpuKind {
  const char* name;                           ///< "CUDA"
  const GpuDriver& (*driver)();               ///< opened on the first call
  Target (*target)(const std::string& arch);  ///< of an architecture
  std::string (*compiler_missing)();          ///< what the default compiler lacks; empty: nothing
  /// Makes the way to devices of other processes, and says what there is of it; null where there is none.
  std::unique_ptr<DeviceLink> (*link)(const GpuContext& context) = nullptr;
  std::string (*link_note)() = nullptr;
};

/// Opens the device of a canonical name. Throws DeviceError.
std::unique_ptr<Device> open_gpu_device(const GpuKind& kind, const std::string& name);
/// Describes all devices of a kind. Throws DeviceError that says what is missing.
std::string describe_gpu_devices(const GpuKind& kind);

}  // namespace tg
