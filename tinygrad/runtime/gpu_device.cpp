/// \file The devices CUDA and AMD.
#include "tinygrad/runtime/gpu_device.h"

#include <map>

#include "tinygrad/base/env.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device_registry.h"
#include "tinygrad/runtime/language_registry.h"
#include "tinygrad/target/device_traits.h"

namespace tg {
namespace {

class GpuDevice final : public Device {
 public:
  GpuDevice(const GpuKind& kind, const std::string& name, std::unique_ptr<GpuContext> context)
      : Device(name,
               std::make_unique<LruAllocator>(make_gpu_allocator(*context), name, context->bytes / 4, context->bytes)),
        kind_(kind),
        context_(std::move(context)),
        link_(kind.link ? kind.link(*context_) : nullptr) {
    set_traits(make_target());
  }
  /// The cache of freed blocks goes before the streams that order them.
  ~GpuDevice() override { allocator().free_cache(); }

  const Target& target() override;
  Compiler& compiler(const Target& target) override;
  Compiler& source_compiler(const Target&) override {
    throw DeviceError(str("[custom_kernel] got a kernel in C for ", kind(), ": write it in UOps"));
  }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    return std::make_shared<GpuExecutable>(*context_, binary, symbol);
  }
  Queue& queue() override { return compute_; }
  Queue& transfer_queue() override { return transfer_; }
  std::unique_ptr<Allocator> make_staging_allocator() override { return make_pinned_allocator(*context_); }
  std::unique_ptr<Batch> record_batch(std::span<const BatchCommand> commands) override {
    return make_gpu_graph(*context_, commands);
  }
  bool reaches(Device& source) override;
  void copy_from(MemoryPlace dst, Device& source, MemoryPlace src, size_t n) override;
  DeviceLink* link() override { return link_.get(); }

 private:
  Target make_target() const;
  void set_traits(const Target& t) const;

  const GpuKind& kind_;
  std::unique_ptr<GpuContext> context_;
  const std::unique_ptr<DeviceLink> link_;
  GpuQueue compute_{*context_, context_->compute}, transfer_{*context_, context_->transfer};
  std::mutex mutex_;
  std::string last_dev_;  // the setting `last_` belongs to
  const Target* last_ = nullptr;
  std::map<std::string, std::unique_ptr<Target>> targets_;      // by key
  std::map<std::string, std::unique_ptr<Compiler>> compilers_;  // by key of the target
  std::map<const GpuContext*, bool> peers_;                     // whether copies reach their memory
};

Target GpuDevice::make_target() const {
  const DeviceSpec spec = dev_setting(kind_.name);
  const GpuDriver& driver = context_->driver;
  Target t = kind_.target(spec.arch.empty() ? driver.arch(context_->device) : spec.arch);
  t.device = kind_.name;
  if (!spec.renderer.empty()) t.renderer = spec.renderer;
  const auto ask = [&](GpuAttribute a) -> int64_t { return driver.attribute(context_->device, a); };
  t.cores = static_cast<int>(ask(GpuAttribute::kProcessors));
  t.l2_bytes = ask(GpuAttribute::kL2Bytes);
  t.shared_bytes = context_->shared_limit;
  t.group_threads = ask(GpuAttribute::kGroupThreads);
  for (int i = 0; i < 3; i++) {
    t.group_limit[i] = context_->group_limit[i];
    t.grid_limit[i] = context_->grid_limit[i];
  }
  return t;
}

/// Tells schedules what kernels for this target can do.
void GpuDevice::set_traits(const Target& t) const {
  set_device_traits(kind_.name, {.row_kernels = false,
                                 .row_groups = true,
                                 .attention_kernels = true,
                                 .busy_threads = kPlannedGpuThreads,
                                 .sum_rows = make_renderer(t)->target().has("wgmma")});
}

const Target& GpuDevice::target() {
  const std::string& dev = env::DEV.get();
  std::lock_guard lock(mutex_);
  if (last_ && last_dev_ == dev) return *last_;
  Target t = make_target();
  auto& compiler = compilers_[t.key()];
  if (!compiler) compiler = make_language_compiler(kind_.name, t);
  auto& kept = targets_[t.key()];
  if (!kept) kept = std::make_unique<Target>(std::move(t));
  set_traits(*kept);
  last_dev_ = dev;
  return *(last_ = kept.get());
}

Compiler& GpuDevice::compiler(const Target& target) {
  std::lock_guard lock(mutex_);
  auto& kept = compilers_[target.key()];
  if (!kept) kept = make_language_compiler(kind_.name, target);
  return *kept;
}

bool GpuDevice::reaches(Device& source) {
  const auto* other = dynamic_cast<GpuDevice*>(&source);
  if (!other || &other->context_->driver != &context_->driver) return false;
  const GpuContext& peer = *other->context_;
  std::lock_guard lock(mutex_);
  const auto known = peers_.find(&peer);
  if (known != peers_.end()) return known->second;
  context_->enter();
  int can = 0;
  context_->call(context_->driver.f.can_access_peer, &can, context_->device, peer.device);
  if (can) {
    context_->driver.enable_peer(*context_, peer);
    if (peer.pools) {  // memory of pools has an access of its own
      void* pool = nullptr;
      context_->call(context_->driver.f.default_pool, &pool, peer.device);
      const GpuPoolAccess access{.device = context_->device};
      context_->call(context_->driver.f.set_pool_access, pool, &access, size_t{1});
    }
  }
  return peers_[&peer] = can != 0;
}

void GpuDevice::copy_from(MemoryPlace dst, Device& source, MemoryPlace src, size_t n) {
  const GpuContext& from = *static_cast<GpuDevice&>(source).context_;
  context_->enter();
  context_->driver.copy_peer(*context_, static_cast<char*>(dst.block) + dst.offset, from,
                             static_cast<char*>(src.block) + src.offset, n, context_->compute);
}

int count_devices(const GpuDriver& driver) {
  int count = 0;
  driver.check(driver.vendor, driver.f.count_devices, &count);
  TG_CHECK(DeviceError, count > 0, "[driver] the driver of ", driver.vendor, " found no GPU");
  return count;
}
}  // namespace

std::unique_ptr<Device> open_gpu_device(const GpuKind& kind, const std::string& name) {
  const GpuDriver& driver = kind.driver();
  const int count = count_devices(driver);
  const size_t colon = name.find(':');
  const int index = colon == std::string::npos ? 0 : std::stoi(name.substr(colon + 1));
  TG_CHECK(DeviceError, index < count, "[device] got ", name, ", found ", count, " ", kind.name, " device",
           count == 1 ? "" : "s");
  return std::make_unique<GpuDevice>(kind, name, std::make_unique<GpuContext>(driver, index, name));
}

std::string describe_gpu_devices(const GpuKind& kind) {
  const GpuDriver& driver = kind.driver();
  const int count = count_devices(driver);
  std::string text;
  for (int i = 0; i < count; i++) {
    int device = 0;
    char device_name[256] = {};
    driver.check(driver.vendor, driver.f.get_device, &device, i);
    driver.check(driver.vendor, driver.f.device_name, device_name, static_cast<int>(sizeof device_name) - 1, device);
    text += str(text.empty() ? "" : "; ", device_name, " (", driver.arch(device), ")");
  }
  if (const std::string missing = kind.compiler_missing(); !missing.empty()) text += "; no compiler: " + missing;
  if (kind.link_note) text += "; " + kind.link_note();
  return text;
}

}  // namespace tg
