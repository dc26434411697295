/// \file The CPU device: host memory, host compilers, kernels called as functions and split over the thread pool.
#include <algorithm>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/host_faults.h"
#include "tinygrad/base/system_memory.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/elf_loader.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/host_toolchain.h"
#include "tinygrad/runtime/thread_pool.h"

namespace tg {
namespace {

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(std::shared_ptr<ElfImage> image, HostKernel kernel) : image_(std::move(image)), kernel_(kernel) {}

  void launch(const LaunchArgs& args) override {
    if (const Cancellation stop = Cancellation::current()) return launch_stoppable(args, stop);
    const HostFaultWatch faults;
    const int threads = args.max_threads > 0 ? args.max_threads : env::num_cpu_threads();
    if (args.thread_extent <= 1 || args.max_threads == 1) kernel_(args.buffers, args.vars, 0, args.thread_extent);
    else
      ThreadPool::global().parallel_for(
          0, args.thread_extent, 1, [&](int64_t begin, int64_t end) { kernel_(args.buffers, args.vars, begin, end); },
          threads);
    faults.check();
  }
  HostKernel host_kernel() const override { return kernel_; }

 private:
  /// Runs the range in parts, so that a stop request is noticed between them.
  void launch_stoppable(const LaunchArgs& args, Cancellation stop) {
    constexpr int64_t kParts = 64;
    const int64_t part = std::max<int64_t>(1, args.thread_extent / kParts);
    const HostFaultWatch faults;
    const int threads = args.max_threads > 0 ? args.max_threads : env::num_cpu_threads();
    const auto work = [&](int64_t begin, int64_t end) {
      for (; begin < end && !stop.requested(); begin += part)
        kernel_(args.buffers, args.vars, begin, std::min(end, begin + part));
    };
    if (args.thread_extent <= 1) kernel_(args.buffers, args.vars, 0, args.thread_extent);
    else if (threads == 1) work(0, args.thread_extent);
    else ThreadPool::global().parallel_for(0, args.thread_extent, 1, work, threads);
    Cancellation::check("realize");
    faults.check();
  }

  std::shared_ptr<ElfImage> image_;
  HostKernel kernel_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const std::string& name) : Device(name, make_memory(name)) {}
  bool host_visible() const override { return true; }
  const Target& target() override { return toolchain_.target(); }
  Compiler& compiler(const Target& target) override { return toolchain_.compiler(target); }
  Compiler& source_compiler(const Target& target) override { return toolchain_.source_compiler(target); }
  const Target& processor() override { return host_processor(); }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    std::shared_ptr<ElfImage> image = ElfImage::load(binary);
    void* entry = image->function(symbol);
    TG_CHECK(FormatError, entry != nullptr, "[load] the object has no function ", symbol);
    return std::make_shared<CpuExecutable>(std::move(image), reinterpret_cast<HostKernel>(entry));
  }

 private:
  static std::unique_ptr<LruAllocator> make_memory(const std::string& name) {
    const int64_t memory = system_memory().total;
    return std::make_unique<LruAllocator>(make_host_allocator(), name, memory / 2, memory);
  }
  HostToolchain toolchain_{"CPU", /*runs=*/true};
};

std::string describe_cpu() {
  const Target& host = host_processor();
  const bool llvm = llvm_plugin_missing().empty(), clang = !clang_path().empty();
  TG_CHECK(DeviceError, llvm || clang, "neither the LLVM plugin nor clang was found");
  return str(host.arch, ",", host.cpu, ", vectors of ", host.vector_bytes, " bytes, ", env::num_cpu_threads(),
             " threads; renderers", llvm ? " LLVM" : "", clang ? " CLANG" : "");
}

}  // namespace

DeviceKind cpu_kind() {
  return {.name = "CPU",
          .open = [](const std::string& name) { return std::make_unique<CpuDevice>(name); },
          .describe = describe_cpu,
          .install = "apt install clang",
          .aliases = {"CLANG", "LLVM", "NPY"},
          .order = 0,
          .has_settings = true};
}

}  // namespace tg
