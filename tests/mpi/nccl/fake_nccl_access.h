/// \file The fake NCCL and the fake driver from within a test.
#pragma once
#include <dlfcn.h>

#include <cstdlib>

#include "fake_driver/fake_control.h"
#include "fake_driver/fake_nccl_control.h"
#include "tinygrad/base/error.h"

namespace tg::fake {

inline const NcclControl& nccl_control() {
  void* library = dlopen(std::getenv("FAKE_NCCL"), RTLD_NOW | RTLD_LOCAL);
  TG_CHECK(DeviceError, library, dlerror());
  return *static_cast<const NcclControl*>(dlsym(library, "fake_nccl_control"));
}
inline const Control& cuda_control() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  TG_CHECK(DeviceError, library, dlerror());
  return *static_cast<const Control*>(dlsym(library, "fake_gpu_control"));
}
inline size_t calls(const char* symbol) { return nccl_control().count_calls(symbol); }

}  // namespace tg::fake
