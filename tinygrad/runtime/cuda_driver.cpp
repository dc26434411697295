/// \file CUDA's driver API, from libcuda.so.1.
#include "tinygrad/runtime/cuda_driver.h"

#include <dlfcn.h>

#include "tinygrad/runtime/gpu_device.h"

namespace tg {
namespace {

struct CudaFunctions {
#define ENTRY(member, parameters, names, symbol) GpuFunctionOf<int parameters>::Type member;
#include "tinygrad/runtime/cuda_entry_points.inc"
#undef ENTRY
};

/// Returns a copy of one row.
CudaCopyNode node_of(void* to, void* from, size_t bytes) {
  CudaCopyNode out;
  out.from.device = from;
  out.to.device = to;
  out.from.pitch = out.to.pitch = out.width = bytes;
  return out;
}

class CudaDriver final : public GpuDriver {
 public:
  explicit CudaDriver(void* library, const char* file) : GpuDriver("CUDA") {
    const GpuSymbols find{library, file, "a driver of CUDA 12 or newer"};
#define ENTRY(member, parameters, names, cuda, hip) find(f.member, #cuda);
#include "tinygrad/runtime/gpu_entry_points.inc"
#undef ENTRY
#define ENTRY(member, parameters, names, symbol) find(c_.member, #symbol);
#include "tinygrad/runtime/cuda_entry_points.inc"
#undef ENTRY
  }

  int number_of(GpuAttribute attribute) const override {
    constexpr int kNumbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 97, 16, 38, 75, 76, 115};
    static_assert(std::size(kNumbers) == static_cast<size_t>(GpuAttribute::kCount));
    return kNumbers[static_cast<size_t>(attribute)];
  }
  /// With what is in no other GPU than those of this architecture: kernels are compiled for this device alone.
  std::string arch(int device) const override {
    const int major = attribute(device, GpuAttribute::kMajor), minor = attribute(device, GpuAttribute::kMinor);
    return str("sm_", major, minor, major == 9 && minor == 0 ? "a" : "");
  }
  void open(GpuContext& context) const override { context.call(c_.retain_context, &context.handle, context.device); }
  void close(GpuContext& context) const noexcept override {
    if (context.handle) c_.release_context(context.device);
    context.handle = nullptr;
  }
  int make_current(const GpuContext& context) const override { return c_.set_context(context.handle); }
  const char* make_current_symbol() const override { return c_.set_context.symbol; }
  void enable_peer(const GpuContext& context, const GpuContext& peer) const override {
    const int error = c_.enable_peer(peer.handle, 0);
    if (error && error != gpu_error::kPeerAlreadyEnabled) context.fail(error, c_.enable_peer.symbol);
  }
  void copy_peer(const GpuContext& to_context, void* to, const GpuContext& from_context, void* from, size_t bytes,
                 void* stream) const override {
    to_context.call(c_.copy_peer, to, to_context.handle, from, from_context.handle, bytes, stream);
  }
  void allow_shared(const GpuContext& context, void* function, int bytes) const override {
    context.call(c_.set_function_attribute, function, static_cast<int>(GpuFunctionAttribute::kDynamicSharedBytes),
                 bytes);
  }
  GpuTensorMap encode_map(const GpuContext& context, const TensorMap& map, void* address) const override {
    constexpr int kNoInterleave = 0, kSwizzle128 = 3, kLinesOf256 = 3, kZeros = 0;
    const int type = map.itemsize == 1 ? 0 : map.itemsize == 2 ? 1 : 2;  // integers without a sign
    const uint64_t size[2] = {static_cast<uint64_t>(map.width), static_cast<uint64_t>(map.height)},
                   stride = size[0] * static_cast<uint64_t>(map.itemsize);
    const uint32_t box[2] = {static_cast<uint32_t>(map.box_width), static_cast<uint32_t>(map.box_height)},
                   steps[2] = {1, 1};
    GpuTensorMap out;
    context.call(c_.encode_map, &out, type, 2u, address, size, &stride, box, steps, kNoInterleave, kSwizzle128,
                 kLinesOf256, kZeros);
    return out;
  }
  void* add_kernel(const GpuContext& context, void* graph, void* after, const GpuLaunch& launch) const override {
    const auto node = kernel_node<CudaKernelNode>(launch);
    void* out = nullptr;
    context.call(c_.add_kernel, &out, graph, after ? &after : nullptr, size_t{after != nullptr}, &node);
    return out;
  }
  void* add_copy(const GpuContext& context, void* graph, void* after, void* to, void* from,
                 size_t bytes) const override {
    const CudaCopyNode node = node_of(to, from, bytes);
    void* out = nullptr;
    context.call(c_.add_copy, &out, graph, after ? &after : nullptr, size_t{after != nullptr}, &node, context.handle);
    return out;
  }
  void set_kernel(const GpuContext& context, void* executable, void* node, const GpuLaunch& launch) const override {
    const auto now = kernel_node<CudaKernelNode>(launch);
    context.call(c_.set_kernel, executable, node, &now);
  }
  void set_copy(const GpuContext& context, void* executable, void* node, void* to, void* from,
                size_t bytes) const override {
    const CudaCopyNode now = node_of(to, from, bytes);
    context.call(c_.set_copy, executable, node, &now, context.handle);
  }

 private:
  CudaFunctions c_;
};
}  // namespace

std::unique_ptr<GpuDriver> open_cuda_driver(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // never closed: the driver keeps threads
  TG_CHECK(DeviceError, library, "[driver] found no ", file, ", NVIDIA's driver");
  auto driver = std::make_unique<CudaDriver>(library, file);
  driver->check(file, driver->f.init, 0u);
  return driver;
}

const GpuDriver& cuda_driver() {
  static const GpuDriver* driver = open_cuda_driver("libcuda.so.1").release();
  return *driver;
}

}  // namespace tg
