/// \file OpenCL C without a device: what NULL compiles, by clang.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Images of Qualcomm's GPUs, as their driver says.
inline constexpr ImageLimits kAdrenoImages{.width = 16384, .height = 16384, .pitch = 64};

/// Returns the target of grids on a kind of GPU: "adreno", which reads images unless IMAGE=0, "intel", or empty for one
/// with what every OpenCL GPU has. `images`: the setting IMAGE. Throws ValueError for another text.
Target opencl_offline_target(const std::string& arch, int64_t images);
/// The same under the current IMAGE.
Target opencl_offline_target(const std::string& arch);
/// Returns the compiler from OpenCL C to LLVM's bitcode for SPIR by the clang that CC names.
std::unique_ptr<Compiler> make_opencl_offline_compiler(const Target& target);

}  // namespace tg
