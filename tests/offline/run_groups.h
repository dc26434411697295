/// \file Programs of workgroups on the interpreter.
#pragma once
#include <memory>

#include "tinygrad/runtime/interp.h"
#include "tinygrad/target/program.h"

namespace tg::test {

/// Runs all groups of a program whose sizes are literals.
inline void run_groups(const std::shared_ptr<Program>& p, void* const* buffers) {
  LaunchSize size;
  for (int i = 0; i < 3; i++) {
    if (p->global_size[i]) size.global[i] = static_cast<int64_t>(p->global_size[i].const_int());
    if (p->local_size[i]) size.local[i] = static_cast<int64_t>(p->local_size[i].const_int());
  }
  Interpreter(p).run_groups(buffers, nullptr, size, 0, size.global[0] * size.global[1] * size.global[2]);
}

}  // namespace tg::test
