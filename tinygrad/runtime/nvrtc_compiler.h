/// \file NVRTC, NVIDIA's compiler of CUDA C++, opened at run time. It needs no GPU.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Returns the compiler from CUDA C++ to cubins for a target with renderer "CUDA". The library is opened on the first
/// compile(): the file that NVRTC names, else libnvrtc.so.12 or .so.13 as the system finds it. Throws CompileError when
/// there is none, or for an architecture it does not know.
std::unique_ptr<Compiler> make_nvrtc_compiler(const Target& target);
/// Returns empty when NVRTC can be opened, else what is missing.
std::string nvrtc_missing();

/// Returns the target of an architecture of CUDA: "sm_75" to "sm_120"; empty stands for "sm_80". Throws ValueError for
/// another text.
Target cuda_target(const std::string& arch);

}  // namespace tg
