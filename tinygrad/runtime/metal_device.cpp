/// \file The METAL device: GPUs of Macs.
#include "tinygrad/runtime/metal_device.h"

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/target/device_traits.h"

namespace tg {
namespace {
constexpr size_t kShared = 0;  ///< MTLResourceStorageModeShared, with the default cache mode and tracking of hazards
constexpr int64_t kApple1 = 1001, kApple6 = 1006, kApple7 = 1007, kApple9 = 1009, kMostApple = 1020,
                  kMac2 = 2002;                         ///< MTLGPUFamily
constexpr int64_t kMostBuffers = 24;                    ///< of a kernel: 31 arguments, less those that variables take
constexpr int64_t kGridLimit = (int64_t{1} << 31) - 1;  ///< indices are 32 bits

int64_t family_of(ObjcId gpu) {
  const MetalLibrary& m = metal();
  for (int64_t family = kMostApple; family >= kApple1; family--)
    if (m.supports_family(gpu, family)) return family;
  return m.supports_family(gpu, kMac2) ? kMac2 : kMac2 - 1;
}

MetalGpu describe(ObjcRef handle) {
  const MetalLibrary& m = metal();
  const ObjcId gpu = handle.get();
  MetalGpu out;
  out.name = text_of(m.name(gpu));
  out.family = family_of(gpu);
  out.most_bytes = static_cast<int64_t>(m.max_buffer_length(gpu));
  out.memory_bytes = static_cast<int64_t>(m.working_set(gpu));
  out.group_bytes = static_cast<int64_t>(m.max_group_memory(gpu));
  out.indirect_commands =
      out.family >= kApple9 && out.family <= kMostApple && out.name.find("irtual") == std::string::npos;
  out.handle = std::move(handle);
  return out;
}

class MetalAllocator final : public Allocator {
 public:
  explicit MetalAllocator(const MetalContext& context) : context_(context) {}
  void* allocate(size_t bytes) override {
    const int64_t most = context_.gpu.most_bytes;
    if (bytes > static_cast<size_t>(most))
      throw OutOfMemoryError(str("[allocate] ", context_.name, ": got ", bytes, " bytes, a buffer has at most ", most));
    const AutoreleasePool pool;
    return metal().new_buffer(context_.gpu.handle.get(), bytes, kShared);
  }
  /// Command buffers hold the buffers they use.
  void free(void* block, size_t) noexcept override {
    const AutoreleasePool pool;
    metal().release(metal_buffer(block));
  }

 private:
  const MetalContext& context_;
};

class MetalDevice final : public Device {
 public:
  MetalDevice(const std::string& name, std::unique_ptr<MetalContext> context)
      : Device(name, std::make_unique<LruAllocator>(std::make_unique<MetalAllocator>(*context), name,
                                                    context->gpu.memory_bytes / 4, context->gpu.memory_bytes)),
        context_(std::move(context)),
        queue_(*context_),
        transfers_(*context_),
        compiler_(*context_) {
    queue_.set_transfers(transfers_);
    set_device_traits("METAL", {.row_kernels = false,
                                .row_groups = true,
                                .attention_kernels = true,
                                .busy_threads = kPlannedGpuThreads,
                                .kernel_buffers = kMostBuffers});
  }
  bool handles_are_addresses() const override { return false; }
  const Target& target() override;
  Compiler& compiler(const Target&) override { return compiler_; }
  Compiler& source_compiler(const Target&) override {
    throw DeviceError("[custom_kernel] got a kernel in C for METAL: write it in UOps");
  }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    return load_metal(*context_, queue_, compiler_, binary, symbol);
  }
  Queue& queue() override { return queue_; }
  Queue& transfer_queue() override { return transfers_; }
  std::unique_ptr<Batch> record_batch(std::span<const BatchCommand> commands) override {
    return record_metal_batch(*context_, queue_, commands);
  }

 private:
  std::unique_ptr<MetalContext> context_;
  MetalQueue queue_;
  MetalTransferQueue transfers_;
  MetalCompiler compiler_;
  std::mutex mutex_;
  std::string last_dev_;  // the setting `last_` belongs to
  const Target* last_ = nullptr;
  std::map<std::string, std::unique_ptr<Target>> targets_;  // by key
};

const Target& MetalDevice::target() {
  const std::string& dev = env::DEV.get();
  std::lock_guard lock(mutex_);
  if (last_ && last_dev_ == dev) return *last_;
  const DeviceSpec spec = dev_setting("METAL");
  Target t = metal_target(context_->gpu, spec.renderer, spec.arch);
  auto& kept = targets_[t.key()];
  if (!kept) kept = std::make_unique<Target>(std::move(t));
  last_dev_ = dev;
  return *(last_ = kept.get());
}

std::unique_ptr<Device> open_metal_device(const std::string& name) {
  std::vector<MetalGpu> gpus = metal_gpus();
  const size_t colon = name.find(':');
  const size_t index = colon == std::string::npos ? 0 : std::stoul(name.substr(colon + 1));
  TG_CHECK(DeviceError, index < gpus.size(), "[device] got ", name, ", found ", gpus.size(), " GPU",
           gpus.size() == 1 ? "" : "s");
  return std::make_unique<MetalDevice>(name, std::make_unique<MetalContext>(std::move(gpus[index]), name));
}

std::string describe_metal() {
  std::string text;
  for (const MetalGpu& g : metal_gpus()) text += (text.empty() ? "" : "; ") + g.name;
  return text;
}
}  // namespace

std::vector<MetalGpu> metal_gpus() {
  const AutoreleasePool pool;
  const MetalLibrary& m = metal();
  std::vector<MetalGpu> out;
  uint64_t first = 0;
  if (ObjcRef gpu = ObjcRef::adopt(m.default_device())) {
    first = m.registry_id(gpu.get());
    out.push_back(describe(std::move(gpu)));
  }
  if (const ObjcRef all = ObjcRef::adopt(m.all_devices()))
    for (size_t i = 0; i < m.count(all.get()); i++) {
      const ObjcId gpu = m.object_at(all.get(), i);
      if (out.empty() || m.registry_id(gpu) != first) out.push_back(describe(ObjcRef::share(gpu)));
    }
  TG_CHECK(DeviceError, !out.empty(), "[metal] found no GPU");
  return out;
}

Target metal_target(const MetalGpu& gpu, const std::string& renderer, const std::string& arch) {
  TG_CHECK(DeviceError, renderer.empty() || renderer.starts_with("METAL"), "[DEV] METAL has no renderer '", renderer,
           "', expected METAL");
  TG_CHECK(DeviceError, arch.empty(), "[DEV] got METAL:", renderer, ":", arch, ", expected no architecture");
  Target t;
  t.device = "METAL";
  t.renderer = renderer.empty() ? "METAL" : renderer;
  const bool apple = gpu.family >= kApple1 && gpu.family <= kMostApple;
  t.arch = apple ? str("apple", gpu.family - kApple1 + 1) : "mac";
  t.cpu = gpu.name;
  // Metal Feature Set Tables: "SIMD-scoped permute operations", "SIMD-scoped matrix multiply operations".
  t.features = {"fma"};
  if (apple && gpu.family >= kApple6) t.features.emplace_back("shuffles");
  if (apple && gpu.family >= kApple7) t.features.emplace_back("simdgroup");
  t.vector_bytes = 4;
  t.shared_bytes = gpu.group_bytes;
  for (int64_t& n : t.group_limit) n = t.group_threads;
  for (int64_t& n : t.grid_limit) n = kGridLimit;
  return t;
}

DeviceKind metal_kind() {
  return {.name = "METAL",
          .open = open_metal_device,
          .describe = describe_metal,
          .order = 120,
          .gpu = true,
          .has_settings = true};
}

}  // namespace tg
