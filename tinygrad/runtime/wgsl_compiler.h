/// \file WGSL without a device: for NULL, and for pages that run kernels elsewhere.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Returns a target with the limits that every implementation of WebGPU has. `arch` is empty. Throws DeviceError for
/// anything else.
Target wgsl_target(const std::string& arch);
/// Returns a compiler that passes sources on: what a device makes of WGSL is its own.
std::unique_ptr<Compiler> make_wgsl_compiler(const Target& target);

}  // namespace tg
