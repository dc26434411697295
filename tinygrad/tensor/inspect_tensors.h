/// \file Tensors looked at from outside: the schedule, kernels, sources and costs of pending values, as data.
#pragma once
#include "tinygrad/engine/inspect.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {

/// Says how `realize(tensors)` would compute these values. Compiles the kernels, and with InspectOptions::measure runs
/// them on memory of its own; the tensors stay as they are. Throws what realize() throws before anything runs:
/// ValueError for a variable without a value, CompileError, DeviceError.
Inspection inspect(const Tensors& tensors, const InspectOptions& options = {});

}  // namespace tg
