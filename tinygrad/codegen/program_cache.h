/// \file Programs by kernel, target and options: the least recently used are dropped. Safe to use from several threads.
#pragma once
#include <cstddef>
#include <memory>

#include "tinygrad/codegen/codegen.h"

namespace tg {

/// What identifies a program.
struct ProgramKey {
  Hash128 kernel, target, options;
  bool operator==(const ProgramKey&) const = default;
};
ProgramKey program_key(const Kernel& kernel, const Renderer& renderer, const CodegenOptions& options);

/// to_program through the cache: two threads that ask for one program at a time may both make it, and get the same.
std::shared_ptr<const Program> cached_program(const Kernel& kernel, const Renderer& renderer,
                                              const CodegenOptions& options = CodegenOptions::from_env());

void clear_program_cache();
/// Programs held, and the greatest number of them.
size_t program_cache_size();
void set_program_cache_limit(size_t programs);

}  // namespace tg
