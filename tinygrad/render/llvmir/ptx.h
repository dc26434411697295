/// \file Renderer of LLVM IR text for NVIDIA's GPUs, which LLVM compiles to PTX.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

/// Emits `ptx_kernel void @name(buffers in global memory..., i64 variables...)`, one thread of a grid of workgroups, as
/// CUDA C++ kernels are. Assumes of memory, and means by each operation, what LlvmRenderer does.
class PtxRenderer final : public Renderer {
 public:
  explicit PtxRenderer(Target t) : Renderer(printable(std::move(t))) {}
  OpSet ops() const override;
  bool supports(DType d) const override;
  bool has_locals() const override { return true; }
  int max_lanes(DType) const override { return 1; }
  bool has_blocks() const override { return false; }
  int64_t scratch_limit() const override { return target().shared_bytes; }
  std::string render(const Program& p) const override;

 private:
  /// Returns a target without what this language has no text for: 16-byte copies, shuffles, memory of a group whose
  /// size the launch gives.
  static Target printable(Target t) {
    std::erase_if(t.features, [](const std::string& f) {
      return f == "copy16" || f == "async_copy" || f == "shuffles" || f == "matrix_loads";
    });
    t.shared_bytes = std::min<int64_t>(t.shared_bytes, 48 << 10);
    return t;
  }
};

}  // namespace tg
