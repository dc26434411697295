/// \file The NULL device: compiles for any target, has no memory, runs nothing. For tests that need no results.
#include <atomic>
#include <cstring>

#include "tinygrad/runtime/devices.h"

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
  void copy_in(void*, const void*, size_t) override {}
  void copy_out(void* dst, const void*, size_t n) override { std::memset(dst, 0, n); }
  void copy(void*, const void*, size_t) override {}

 private:
  std::atomic<uintptr_t> next_{uintptr_t{1} << 47};  // outside of user space
};

class NullExecutable final : public Executable {
 public:
  void launch(const LaunchArgs&) override {}
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(const std::string& name)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<NullAllocator>(), name, 0)) {}
  const Target& target() override { return toolchain_.target(); }
  Compiler& compiler(const Target& target) override { return toolchain_.compiler(target); }
  Compiler& source_compiler(const Target& target) override { return toolchain_.source_compiler(target); }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t>, const std::string&) override {
    return std::make_shared<NullExecutable>();
  }

 private:
  HostToolchain toolchain_{"NULL", /*runs=*/false};
};

}  // namespace

std::unique_ptr<Device> open_null(const std::string& name) { return std::make_unique<NullDevice>(name); }
std::string describe_null() { return "compiles for any target, runs nothing"; }

}  // namespace tg
