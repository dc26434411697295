/// \file HIP's structures for graphs and devices, as hip_runtime_api.h of ROCm 6 has them.
#pragma once
#include <cstddef>
#include <memory>

namespace tg {

/// hipKernelNodeParams.
struct HipKernelNode {
  unsigned block[3] = {1, 1, 1};
  void** extra = nullptr;
  void* function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  void** parameters = nullptr;
  unsigned shared_bytes = 0;
};

/// hipDeviceProp_tR0600, as far as it is used.
struct HipProperties {
  char before[1160];
  char arch[256];  ///< "gfx90a:sramecc+:xnack-"
  char after[56];
};

class GpuDriver;  // complete in gpu_driver.h

/// Opens `file` as HIP's runtime. Throws DeviceError that says what is missing.
std::unique_ptr<GpuDriver> open_hip_driver(const char* file);

}  // namespace tg
