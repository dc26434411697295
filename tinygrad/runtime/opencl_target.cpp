/// \file Targets of OpenCL devices.
#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/opencl_device.h"

namespace tg {
namespace {
/// Returns the architecture that a device's figures are those of (target/gpu_figures.cpp).
const char* arch_of(const OpenClDevice& d) {
  if (!(d.type & CL_DEVICE_TYPE_GPU)) return "opencl";
  if (d.platform.starts_with("QUALCOMM")) return "adreno";
  return d.platform.starts_with("Intel") ? "intel" : "opencl";
}
}  // namespace

Target opencl_target(const OpenClDevice& device, const std::string& renderer, const std::string& arch, bool images,
                     const std::string& kind) {
  TG_CHECK(DeviceError, renderer.empty() || renderer == "OPENCL", "[DEV] ", kind, " has no renderer '", renderer,
           "', expected OPENCL");
  TG_CHECK(DeviceError, arch.empty() || arch == "workgroups" || arch == "lanes", "[DEV] got ", kind, ":OPENCL:", arch,
           ", expected workgroups or lanes");
  const bool processor = device.type & CL_DEVICE_TYPE_CPU;
  const bool groups = arch.empty() ? !processor || (images && device.images.width) : arch == "workgroups";
  Target t;
  t.device = kind;
  t.renderer = "OPENCL";
  t.arch = arch_of(device);
  t.cpu = device.name;
  if (groups && images) t.images = device.images;
  if (device.fma) t.features.emplace_back("fma");
  if (device.fp16) t.features.emplace_back("fp16");
  if (device.fp64) t.features.emplace_back("fp64");
  if (groups) t.features.emplace_back("workgroups");
  t.vector_bytes = static_cast<int>(std::min<int64_t>(device.lanes * 4, 64));
  t.vector_registers = t.vector_bytes == 64 ? 32 : 16;
  t.cores = static_cast<int>(device.units);
  t.shared_bytes = device.local_bytes;
  if (processor) {
    const Target& host = host_processor();
    if (host.arch == "x86_64" && !groups) t.features.push_back(host.arch);  // stores may go past its caches
    t.l1_bytes = host.l1_bytes;
    t.l2_bytes = std::min(host.l2_bytes, device.local_bytes);
    t.l3_bytes = host.l3_bytes;
  }
  t.group_threads = device.group_threads;
  for (int i = 0; i < 3; i++) {
    t.group_limit[i] = device.group_limit[i];
    t.grid_limit[i] = (int64_t{1} << 31) - 1;
  }
  return t;
}

}  // namespace tg
