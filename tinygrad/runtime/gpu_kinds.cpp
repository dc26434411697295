/// \file What CUDA and AMD are as kinds of devices.
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/gpu_device.h"
#include "tinygrad/runtime/nccl_library.h"
#include "tinygrad/runtime/nccl_link.h"
#include "tinygrad/runtime/nvrtc_compiler.h"

namespace tg {
namespace {
constexpr GpuKind kCuda{"CUDA", cuda_driver, cuda_target, nvrtc_missing, make_nccl_link, nccl_note},
    kAmd{"AMD", hip_driver, amdgpu_target, amdgpu_missing};

DeviceKind device_kind(const GpuKind& kind, const char* install, std::vector<std::string> aliases, int order) {
  return {.name = kind.name,
          .open = [&kind](const std::string& name) { return open_gpu_device(kind, name); },
          .describe = [&kind] { return describe_gpu_devices(kind); },
          .install = install,
          .aliases = std::move(aliases),
          .order = order,
          .gpu = true,
          .has_settings = true};
}
}  // namespace

DeviceKind cuda_kind() {
  return device_kind(kCuda,
                     "NVIDIA's driver (Debian: apt install nvidia-driver), and pip install nvidia-cuda-nvrtc-cu12",
                     {"NV"}, 100);
}
DeviceKind amd_kind() {
  return device_kind(kAmd, "ROCm 6 or newer (https://rocm.docs.amd.com), and apt install clang-19 lld-19", {"HIP"},
                     110);
}

}  // namespace tg
