/// \file The list of the library's devices: one line per device.
#include "tinygrad/runtime/builtin_devices.h"

namespace tg {
void register_builtin_devices() {
  register_device(cpu_kind());
  register_device(cuda_kind());
  register_device(amd_kind());
  register_device(metal_kind());
  register_device(opencl_kind());
  register_device(qcom_kind());
  register_device(webgpu_kind());
  register_device(null_kind());
  register_device(interp_kind());
  register_device(disk_kind());
}

}  // namespace tg
