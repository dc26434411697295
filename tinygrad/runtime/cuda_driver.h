/// \file CUDA's structures for graphs, as cuda.h has them.
#pragma once
#include <cstddef>
#include <memory>

namespace tg {

/// CUDA_KERNEL_NODE_PARAMS_v1.
struct CudaKernelNode {
  void* function = nullptr;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
};

/// One side of CUDA_MEMCPY3D_v2.
struct CudaCopyPlace {
  size_t x = 0, y = 0, z = 0, level = 0;
  int memory_type = 2;  ///< of a device
  const void* host = nullptr;
  void* device = nullptr;
  void* array = nullptr;
  void* reserved = nullptr;
  size_t pitch = 0, height = 1;
};

/// CUDA_MEMCPY3D_v2.
struct CudaCopyNode {
  CudaCopyPlace from, to;
  size_t width = 0, height = 1, depth = 1;
};

class GpuDriver;  // complete in gpu_driver.h

/// Opens `file` as the driver of CUDA. Throws DeviceError that says what is missing.
std::unique_ptr<GpuDriver> open_cuda_driver(const char* file);

}  // namespace tg
