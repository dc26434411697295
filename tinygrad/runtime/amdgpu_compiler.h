/// \file Kernels for AMD's GPUs, compiled by clang, which needs neither ROCm nor a GPU.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Returns the compiler from HIP to AMDGPU assembly for a target with renderer "HIP": the clang that CC names.
std::unique_ptr<Compiler> make_amdgpu_compiler(const Target& target);

/// Returns the compiler from HIP to code objects, which HIP loads. It takes the linker of LLVM, too: lld of the same
/// version as clang.
std::unique_ptr<Compiler> make_amdgpu_object_compiler(const Target& target);
/// Returns empty when there is such a clang, else what is missing.
std::string amdgpu_missing();

/// Returns the target of an architecture: "gfx90a", "gfx1201"; empty stands for "gfx942". Throws ValueError for another
/// text.
Target amdgpu_target(const std::string& arch);

}  // namespace tg
