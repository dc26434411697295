/// \file VALIDATE_WITH_CPU: every kernel runs a second time, on the interpreter, and the results are compared.
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
  /// Copies the inputs before the kernel runs. Empty unless VALIDATE_WITH_CPU is set; kernels without UOps (written in
  /// C, or of a loaded function) cannot be run again, which is reported once.
  static std::optional<Validation> begin(const ScheduleCall& call, std::span<Buffer* const> buffers,
                                         std::span<const int64_t> vars);
  /// Compares after the launch. InternalError names the kernel, the buffer and the first element that differs by more
  /// than rounding explains.
  void compare(const Program& launched, std::span<Buffer* const> buffers);

 private:
  CompiledKernelRef reference_;
  std::vector<std::vector<std::byte>> memory_;  // by buffer
  std::vector<int64_t> vars_;
};

}  // namespace tg
