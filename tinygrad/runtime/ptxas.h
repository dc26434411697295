/// \file ptxas, NVIDIA's assembler of PTX. It needs no GPU.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Returns the path of ptxas: on PATH, else of a toolkit in /usr/local/cuda; empty where there is none.
std::string ptxas_path();

/// Returns the compiler from LLVM IR text to cubins, by LLVM and ptxas; where there is no ptxas to PTX.
std::unique_ptr<Compiler> make_ptxas_compiler(const Target& target);

}  // namespace tg
