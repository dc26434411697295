/// \file Renderer of LLVM IR text for host processors.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

/// Emits `void @name(ptr %buffers, ptr %vars, i64 %begin, i64 %end)` in a closed subset of LLVM IR (17 or newer, opaque
/// pointers).
///
/// Assumes that the memory of a written parameter overlaps no other parameter. Assumes no alignment beyond that of an
/// element: parameters may be views. Semantics beyond the plain instructions:
/// - Casts, shifts, division by zero and MAX are as in uop/eval.h, except that the sign of MAX(-0, 0) is open.
/// - Masked-off lanes touch no memory. Stores of lanes that share an address take effect in lane order.
class LlvmRenderer final : public Renderer {
 public:
  explicit LlvmRenderer(Target t) : Renderer(std::move(t)) {}
  OpSet ops() const override;
  bool supports(DType d) const override;
  bool has_threads() const override { return true; }
  bool has_prefetch() const override { return true; }
  bool has_rare_choices() const override { return true; }
  bool has_packed4() const override { return target().vector_bytes >= 64 && target().has("avx512bw"); }
  std::vector<const TensorCore*> tensor_cores() const override { return tensor_cores_of(target()); }
  std::string render(const Program& p) const override;
};

}  // namespace tg
