/// \file VALIDATE_WITH_CPU: every kernel runs a second time, on the interpreter, and what both store is compared.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tinygrad/engine/compile.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/schedule/schedule.h"

namespace tg {

/// The second run of one launch.
class Validation {
 public:
  /// Copies what the kernel is given, before it runs. Empty unless VALIDATE_WITH_CPU asks for it; kernels without UOps
  /// (written in C, or of a loaded function) cannot be run again, which is said once.
  static std::optional<Validation> begin(const ScheduleCall& call, std::span<Buffer* const> buffers,
                                         std::span<const int64_t> vars);
  /// After the launch. InternalError names the kernel, the buffer and the first element that differs by more than
  /// rounding explains.
  void compare(const Program& launched, std::span<Buffer* const> buffers);

 private:
  CompiledKernelRef reference_;
  std::vector<std::vector<std::byte>> memory_;  // a buffer each
  std::vector<int64_t> vars_;
};

}  // namespace tg
