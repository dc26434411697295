/// \file Renderer of LLVM IR text for NVIDIA's GPUs, which LLVM compiles to PTX.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

constexpr int64_t kRunBytes = 16;  ///< of an access of a thread of a grid, at most
/// The first line of a source that needs PTX 8.4, of CUDA 12.4: others do with 8.0.
constexpr const char* kNeedsNewPtx = "; ptx84";

/// Emits `ptx_kernel void @name(buffers in global memory..., i64 variables...)`, one thread of a grid of workgroups, as
/// CUDA C++ kernels are. Assumes of memory, and means by each operation, what LlvmRenderer does.
class PtxRenderer final : public Renderer {
 public:
  explicit PtxRenderer(Target t) : Renderer(printable(std::move(t))) {}
  OpSet ops() const override;
  bool supports(DType d) const override;
  bool has_locals() const override { return true; }
  int max_lanes(DType) const override { return 1; }
  int64_t run_bytes() const override { return kRunBytes; }
  std::vector<const TensorCore*> tensor_cores() const override { return tensor_cores_of(target()); }
  bool has_blocks() const override { return false; }
  int64_t scratch_limit() const override { return target().shared_bytes; }
  std::string render(const Program& p) const override;

 private:
  /// Returns a target without what this language has no text for: instructions of a warpgroup that read memory.
  static Target printable(Target t) {
    std::erase(t.features, "wgmma");
    std::erase(t.features, "tensor_maps");
    std::erase(t.features, "fma_tiles");
    return t;
  }
};

}  // namespace tg
