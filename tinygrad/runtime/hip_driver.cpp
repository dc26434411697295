/// \file HIP, from libamdhip64.so.
#include "tinygrad/runtime/hip_driver.h"

#include <dlfcn.h>

#include <cstring>

#include "tinygrad/runtime/gpu_device.h"

namespace tg {
namespace {

constexpr int kDeviceToDevice = 3;  // hipMemcpyKind

struct HipFunctions {
#define ENTRY(member, parameters, names, symbol) GpuFunctionOf<int parameters>::Type member;
#include "tinygrad/runtime/hip_entry_points.inc"
#undef ENTRY
};

class HipDriver final : public GpuDriver {
 public:
  HipDriver(void* library, const char* file) : GpuDriver("HIP") {
    const GpuSymbols find{library, file, "HIP of ROCm 6 or newer"};
#define ENTRY(member, parameters, names, cuda, hip) find(f.member, #hip);
#include "tinygrad/runtime/gpu_entry_points.inc"
#undef ENTRY
#define ENTRY(member, parameters, names, symbol) find(h_.member, #symbol);
#include "tinygrad/runtime/hip_entry_points.inc"
#undef ENTRY
  }

  int number_of(GpuAttribute attribute) const override {
    constexpr int kNumbers[] = {56, 26, 27, 28, 29, 30, 31, 74, 75, 63, 19, 23, 61, 88};
    static_assert(std::size(kNumbers) == static_cast<size_t>(GpuAttribute::kCount));
    return kNumbers[static_cast<size_t>(attribute)];
  }
  /// Returns the processor without its settings: "gfx90a" of "gfx90a:sramecc+:xnack-".
  std::string arch(int device) const override {
    HipProperties all{};
    check(str(vendor, " device ", device), h_.properties, &all, device);
    return {all.arch, strcspn(all.arch, ":")};
  }
  void open(GpuContext&) const override {}
  void close(GpuContext&) const noexcept override {}
  int make_current(const GpuContext& context) const override { return h_.set_device(context.device); }
  const char* make_current_symbol() const override { return h_.set_device.symbol; }
  void enable_peer(const GpuContext& context, const GpuContext& peer) const override {
    const int error = h_.enable_peer(peer.device, 0);
    if (error && error != gpu_error::kPeerAlreadyEnabled) context.fail(error, h_.enable_peer.symbol);
  }
  void copy_peer(const GpuContext& to_context, void* to, const GpuContext& from_context, void* from, size_t bytes,
                 void* stream) const override {
    to_context.call(h_.copy_peer, to, to_context.device, from, from_context.device, bytes, stream);
  }
  /// Nothing: groups have all of the shared memory anyway.
  void allow_shared(const GpuContext&, void*, int) const override {}
  GpuTensorMap encode_map(const GpuContext& context, const TensorMap&, void*) const override {
    throw DeviceError(str("[launch] ", context.name, " has no tensor maps, which the kernel asks for"));
  }
  void* add_kernel(const GpuContext& context, void* graph, void* after, const GpuLaunch& launch) const override {
    const auto node = kernel_node<HipKernelNode>(launch);
    void* out = nullptr;
    context.call(h_.add_kernel, &out, graph, after ? &after : nullptr, size_t{after != nullptr}, &node);
    return out;
  }
  void* add_copy(const GpuContext& context, void* graph, void* after, void* to, void* from,
                 size_t bytes) const override {
    void* out = nullptr;
    context.call(h_.add_copy, &out, graph, after ? &after : nullptr, size_t{after != nullptr}, to, from, bytes,
                 kDeviceToDevice);
    return out;
  }
  void set_kernel(const GpuContext& context, void* executable, void* node, const GpuLaunch& launch) const override {
    const auto now = kernel_node<HipKernelNode>(launch);
    context.call(h_.set_kernel, executable, node, &now);
  }
  void set_copy(const GpuContext& context, void* executable, void* node, void* to, void* from,
                size_t bytes) const override {
    context.call(h_.set_copy, executable, node, to, from, bytes, kDeviceToDevice);
  }

 private:
  HipFunctions h_;
};
}  // namespace

std::unique_ptr<GpuDriver> open_hip_driver(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // never closed: it keeps threads
  TG_CHECK(DeviceError, library, "[driver] found no ", file, ", AMD's HIP runtime");
  auto driver = std::make_unique<HipDriver>(library, file);
  driver->check(file, driver->f.init, 0u);
  return driver;
}

const GpuDriver& hip_driver() {
  static const GpuDriver* driver = [] {
    constexpr const char* kNewest = "libamdhip64.so.7";
    void* newest = dlopen(kNewest, RTLD_NOW | RTLD_LOCAL);
    return open_hip_driver(newest ? kNewest : "libamdhip64.so.6").release();
  }();
  return *driver;
}

}  // namespace tg
