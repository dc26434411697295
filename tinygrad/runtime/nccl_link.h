/// \file NCCL as the way between GPUs of several processes.
#pragma once
#include <memory>

#include "tinygrad/runtime/world/device_link.h"

namespace tg {

struct GpuContext;

/// Returns the link of a CUDA device. NCCL is opened when it is asked what is missing.
std::unique_ptr<DeviceLink> make_nccl_link(const GpuContext& context);

}  // namespace tg
