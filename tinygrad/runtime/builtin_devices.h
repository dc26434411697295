/// \file The devices of the library. A static library drops files that nobody refers to, so these are registered by a
/// list, not by static objects.
#pragma once
#include "tinygrad/runtime/device_registry.h"

namespace tg {

DeviceKind cpu_kind();
DeviceKind null_kind();
DeviceKind interp_kind();
DeviceKind disk_kind();
DeviceKind opencl_kind();
DeviceKind qcom_kind();
DeviceKind cuda_kind();
DeviceKind amd_kind();
DeviceKind metal_kind();
DeviceKind webgpu_kind();

/// Registers the devices of the library. Called once, before the registry is used.
void register_builtin_devices();

}  // namespace tg
