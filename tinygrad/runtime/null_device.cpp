/// \file The NULL device: compiles for any target, has no memory, runs nothing. For tests that need no results.
#include <atomic>
#include <cstring>

#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/host_toolchain.h"
#include "tinygrad/target/device_traits.h"

namespace tg {
namespace {

/// Addresses that belong to nobody; reads return zero.
class NullAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    if (bytes > (size_t{1} << 46)) return nullptr;
    return reinterpret_cast<void*>(next_.fetch_add((bytes + 4095) / 4096 * 4096));
  }
  void free(void*, size_t) noexcept override {}

 private:
  std::atomic<uintptr_t> next_{uintptr_t{1} << 47};  // outside of user space
};

class NullQueue final : public Queue {
 public:
  bool synchronous() const override { return true; }
  void copy_in(MemoryPlace, const void*, size_t) override {}
  void copy_out(void* dst, MemoryPlace, size_t n) override { std::memset(dst, 0, n); }
  void copy(MemoryPlace, MemoryPlace, size_t) override {}
  EventRef record() override { return host_queue().record(); }
  void wait_for(const EventRef&) override {}
  void wait() override {}
};

class NullExecutable final : public Executable {
 public:
  void launch(const LaunchArgs&) override {}
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(const std::string& name)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<NullAllocator>(), name, 0)) {
    NullDevice::target();
  }
  const Target& target() override {
    const Target& t = toolchain_.target();
    if (planned_for_.exchange(&t) == &t) return t;
    DeviceTraits traits = device_traits("NULL");
    const auto renderer = make_renderer(t);
    traits.row_groups = traits.attention_kernels = renderer->has_locals();
    traits.busy_threads = traits.row_groups ? kPlannedGpuThreads : 0;
    traits.sum_rows = renderer->target().has("wgmma");
    traits.image_pitch = t.images.width ? t.images.pitch : 0;
    set_device_traits("NULL", traits);
    return t;
  }
  Compiler& compiler(const Target& target) override { return toolchain_.compiler(target); }
  Compiler& source_compiler(const Target& target) override { return toolchain_.source_compiler(target); }
  Queue& queue() override { return queue_; }
  bool executes() const override { return false; }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t>, const std::string&) override {
    return std::make_shared<NullExecutable>();
  }

 private:
  NullQueue queue_;
  std::atomic<const Target*> planned_for_ = nullptr;  // the target that the traits are of
  HostToolchain toolchain_{"NULL", /*runs=*/false};
};

}  // namespace

DeviceKind null_kind() {
  return {.name = "NULL",
          .open = [](const std::string& name) { return std::make_unique<NullDevice>(name); },
          .describe = [] { return std::string("compiles for any target, runs nothing"); },
          .order = 900,
          .has_settings = true};
}

}  // namespace tg
