/// \file The WEBGPU device: the adapter that a WebGPU library prefers.
#include "tinygrad/runtime/webgpu_device.h"

#include <algorithm>
#include <map>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/wgsl_compiler.h"
#include "tinygrad/target/device_traits.h"

namespace tg {
namespace {
using namespace webgpu;

/// Called by the library for errors that no scope has asked for, and when the device is lost.
void note_error(const Handle*, uint32_t, Text message, void* failure, void*) {
  static_cast<WebGpuFailure*>(failure)->set(to_string(message));
}
void note_loss(const Handle*, uint32_t, Text message, void* failure, void*) {
  static_cast<WebGpuFailure*>(failure)->set("the device was lost: " + to_string(message));
}

struct ScopeAnswer {
  bool given = false;
  uint32_t type = kNoError;
  std::string message;
};
void note_scope(uint32_t, uint32_t type, Text message, void* to, void*) {
  *static_cast<ScopeAnswer*>(to) = {true, type, to_string(message)};
}

struct DeviceAnswer {
  bool given = false;
  Handle device = nullptr;
  std::string message;
};
void note_device(uint32_t, Handle device, Text message, void* to, void*) {
  *static_cast<DeviceAnswer*>(to) = {true, device, to_string(message)};
}

/// Only what is not named is chosen carefully: WEBGPU names any adapter.
std::string why_no_gpu() {
  const Adapter a = find_adapter();
  release(a);
  return a.processor ? a.name + " is a processor, WEBGPU names it" : "";
}

class WebGpuAllocator final : public Allocator {
 public:
  explicit WebGpuAllocator(const WebGpuContext& context) : context_(context) {}
  void* allocate(size_t bytes) override {
    const uint64_t words = (bytes + 3) / 4 * 4;
    const Handle buffer =
        context_.create_buffer(words, buffer_usage::kStorage | buffer_usage::kCopySource | buffer_usage::kCopyTarget);
    return buffer ? new WebGpuBlock{buffer, words} : nullptr;
  }
  void free(void* block, size_t) noexcept override {
    auto* b = static_cast<WebGpuBlock*>(block);
    context_.f.BufferRelease(b->buffer);
    delete b;
  }

 private:
  const WebGpuContext& context_;
};

class WebGpuDevice final : public Device {
 public:
  WebGpuDevice(const std::string& name, std::unique_ptr<WebGpuContext> context)
      : Device(name,
               std::make_unique<LruAllocator>(std::make_unique<WebGpuAllocator>(*context), name, int64_t{1} << 30)),
        context_(std::move(context)),
        queue_(*context_),
        compiler_(*context_) {
    set_device_traits("WEBGPU", {.row_kernels = false,
                                 .row_groups = true,
                                 .attention_kernels = true,
                                 .kernel_buffers = context_->adapter.limits.storage_buffers});
  }
  bool handles_are_addresses() const override { return false; }
  const Target& target() override {
    const std::string& dev = env::DEV.get();
    std::lock_guard lock(mutex_);
    if (last_ && last_dev_ == dev) return *last_;
    const DeviceSpec spec = dev_setting("WEBGPU");
    Target t = webgpu_target(context_->adapter, spec.renderer, spec.arch);
    auto& kept = targets_[t.key()];
    if (!kept) kept = std::make_unique<Target>(std::move(t));
    last_dev_ = dev;
    return *(last_ = kept.get());
  }
  Compiler& compiler(const Target&) override { return compiler_; }
  Compiler& source_compiler(const Target&) override {
    throw DeviceError("[custom_kernel] got a kernel in C for WEBGPU: write it in UOps");
  }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string& symbol) override {
    return load_webgpu(*context_, queue_, binary, symbol);
  }
  Queue& queue() override { return queue_; }

 private:
  std::unique_ptr<WebGpuContext> context_;
  WebGpuQueue queue_;
  WebGpuCompiler compiler_;
  std::mutex mutex_;
  std::string last_dev_;  // the setting `last_` belongs to
  const Target* last_ = nullptr;
  std::map<std::string, std::unique_ptr<Target>> targets_;  // by key
};
}  // namespace

void WebGpuFailure::set(const std::string& cause) {
  std::lock_guard lock(mutex_);
  if (cause_.empty()) cause_ = cause.empty() ? "unknown" : cause;
  happened_.store(true, std::memory_order_release);
}
std::string WebGpuFailure::cause() const {
  std::lock_guard lock(mutex_);
  return cause_;
}

WebGpuContext::WebGpuContext(Adapter a, std::string device_name)
    : f(library()), adapter(std::move(a)), name(std::move(device_name)) {
  const uint32_t features[] = {kTimestampQuery};
  Limits limits = adapter.limits;
  limits.next = nullptr;
  DeviceDescriptor descriptor;
  descriptor.limits = &limits;
  descriptor.features = features;
  descriptor.feature_count = adapter.timestamps ? 1 : 0;
  descriptor.lost.function = note_loss;
  descriptor.lost.first = &failure;
  descriptor.error.function = note_error;
  descriptor.error.first = &failure;
  DeviceAnswer got;
  Callback<ResultFunction> callback;
  callback.function = note_device;
  callback.first = &got;
  f.AdapterRequestDevice(adapter.handle, &descriptor, callback);
  while (!got.given) f.InstanceProcessEvents(adapter.instance);
  TG_CHECK(DeviceError, got.device, "[webgpu] ", name, ": ", adapter.name, " gives no device: ", got.message);
  device = got.device;
  queue = f.DeviceGetQueue(device);
}

void WebGpuContext::check() const {
  TG_CHECK(DeviceError, !failure.happened(), "[webgpu] ", name, " has failed: ", failure.cause());
}
void WebGpuContext::poll(bool wait) const {
  if (f.DevicePoll) f.DevicePoll(device, wait, nullptr);
  else f.InstanceProcessEvents(adapter.instance);
}

/// Returns the kinds of errors that a scope can ask for; wgpu-native ends the process when it is asked for internal
/// ones.
std::span<const uint32_t> WebGpuContext::scopes() const {
  static constexpr uint32_t kAll[] = {kFilterOutOfMemory, kFilterValidation, kFilterInternal};
  return std::span(kAll).first(f.GetVersion ? 2 : 3);
}
void WebGpuContext::begin_scopes() const {
  for (uint32_t filter : scopes()) f.DevicePushErrorScope(device, filter);
}
std::string WebGpuContext::end_scopes(bool* out_of_memory) const {
  std::string message;
  for (size_t i = 0; i < scopes().size(); i++) {
    ScopeAnswer got;
    Callback<ScopeFunction> callback;
    callback.function = note_scope;
    callback.first = &got;
    f.DevicePopErrorScope(device, callback);
    while (!got.given && !failure.happened()) poll(false);
    if (got.type == kNoError || !got.given) continue;
    if (out_of_memory && got.type == kOutOfMemory) *out_of_memory = true;
    if (message.empty()) message = got.message.empty() ? "unknown error" : got.message;
  }
  return message;
}

Handle WebGpuContext::create_buffer(uint64_t bytes, Flags usage) const {
  check();
  TG_CHECK(OutOfMemoryError, bytes <= adapter.limits.buffer_bytes, "[allocate] ", name, ": got ", bytes,
           " bytes, a buffer has at most ", adapter.limits.buffer_bytes);
  BufferDescriptor descriptor;
  descriptor.usage = usage;
  descriptor.size = bytes;
  std::lock_guard lock(mutex);
  begin_scopes();
  const Handle buffer = f.DeviceCreateBuffer(device, &descriptor);
  bool out_of_memory = false;
  const std::string error = end_scopes(&out_of_memory);
  if (error.empty()) return buffer;
  if (buffer) f.BufferRelease(buffer);
  if (out_of_memory) return nullptr;
  failure.set(error);  // it was a right request: the device is lost
  check();
  return nullptr;
}

Target webgpu_target(const Adapter& adapter, const std::string& renderer, const std::string& arch) {
  TG_CHECK(DeviceError, renderer.empty() || renderer == "WGSL", "[DEV] WEBGPU has no renderer '", renderer,
           "', expected WGSL");
  const Limits& l = adapter.limits;
  Target t = wgsl_target(arch);
  t.device = "WEBGPU";
  t.cpu = adapter.name;
  if (adapter.name.starts_with("llvmpipe")) t.features.insert(t.features.begin(), kBoundedLoops);  // sorted
  t.shared_bytes = l.group_bytes;
  t.group_threads = l.group_threads;
  const uint32_t sizes[3] = {l.group_x, l.group_y, l.group_z};
  for (int i = 0; i < 3; i++) {
    t.group_limit[i] = sizes[i];
    t.grid_limit[i] = l.groups;
  }
  return t;
}

DeviceKind webgpu_kind() {
  return {.name = "WEBGPU",
          .open = [](const std::string& name) -> std::unique_ptr<Device> {
            return std::make_unique<WebGpuDevice>(name, std::make_unique<WebGpuContext>(find_adapter(), name));
          },
          .describe =
              [] {
                const Adapter a = find_adapter();
                const std::string text = str(a.name, " (", a.driver, ")");
                release(a);
                return text;
              },
          .install =
              "pip install wgpu, and a Vulkan driver: apt install libvulkan1 mesa-vulkan-drivers runs on any "
              "processor",
          .order = 140,
          .gpu = true,
          .no_gpu = why_no_gpu,
          .has_settings = true};
}

}  // namespace tg
