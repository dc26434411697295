/// \file Kernels to loaded code: codegen, compiler, loader, and the caches in front of them.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/program.h"

namespace tg {

class Device;

/// A kernel ready to launch.
struct CompiledKernel {
  std::shared_ptr<const Program> program;  ///< metadata; `linear` may be empty when it came from the disk cache
  std::shared_ptr<Executable> executable;
};
using CompiledKernelRef = std::shared_ptr<const CompiledKernel>;

/// Compiles and loads kernels for a device under the current settings; equal kernels once, different ones in parallel.
/// The result is aligned with `kernels`. Throws CompileError before anything is launched; the message says what kernel
/// it is about, with `metadata(i)` where it is given.
std::vector<CompiledKernelRef> compile_kernels(std::span<const KernelRef> kernels, Device& device,
                                               const std::function<std::string(size_t)>& metadata = {});

/// Forgets loaded kernels (they stay alive where they are in use).
void clear_kernel_cache();

/// Hashes every setting that changes code (NOOPT, BEAM, DEV, ...); part of cache keys.
Hash128 codegen_settings_hash();

}  // namespace tg
