/// \file Renderers of C and its relatives: one writer, and a table of the names in a language.
#pragma once
#include <array>
#include <string_view>

#include "tinygrad/target/renderer.h"

namespace tg {

/// The names in one C-like language. Views must outlive the renderer.
struct CStyle {
  std::array<std::string_view, static_cast<size_t>(DTypeId::kCount)>
      types{};                      ///< scalar types by DTypeId; empty: the language lacks it
  std::string_view prologue;        ///< text in front of everything
  std::string_view byte;            ///< how bool is stored
  std::string_view function;        ///< text before the kernel's result type
  std::string_view helper;          ///< text before the result type of functions the kernel calls
  std::string_view pointer;         ///< text before a parameter's type ("__global ")
  std::string_view restrict_word;   ///< text before a parameter's name
  std::string_view scratch;         ///< text before a declaration of scratch memory ("__shared__ ")
  std::string_view loop;            ///< a line before each loop; empty: none
  std::string_view barrier;         ///< statement that waits for the group; empty: the language has no groups
  std::string_view inf[2], nan[2];  ///< of float32, of float64
  std::string_view math_prefix;     ///< before sqrt, trunc, fma ...
  std::string_view math_suffix[3];  ///< ... and after, by type: float16, float32, float64
  std::string_view group_index[3], local_index[3];  ///< expressions of SPECIAL gidx0.., lidx0..; empty: no grid
  bool host_entry = false;  ///< the kernel is called with (buffers, vars, begin, end), see docs/ir.md
};

/// Writes readable C. Deterministic: equal programs give equal text. A value that is used once becomes part of its
/// user, others are named: val (loaded), alu (computed), acc (registers), buf (scratch), data (parameters), idx, ridx,
/// tidx (loops). Vectors are clang's ext_vector_type, a vector of bools is a mask: integers of 0 and -1, as wide as
/// what was compared.
///
/// Assumes that the memory of a written parameter overlaps no other parameter, and no alignment beyond that of an
/// element.
class CStyleRenderer : public Renderer {
 public:
  CStyleRenderer(Target t, const CStyle& style) : Renderer(std::move(t)), style_(style) {}
  OpSet ops() const override;
  bool supports(DType d) const override;
  std::string render(const Program& p) const override;

 private:
  const CStyle& style_;
};

/// C for clang 16 or newer on host processors (14 or newer without float16). Assumes of memory, and means by each
/// operation, what the LLVM renderer does.
class ClangRenderer final : public CStyleRenderer {
 public:
  explicit ClangRenderer(Target t);
  bool has_threads() const override { return true; }
  bool has_prefetch() const override { return true; }
  bool has_blocks() const override { return false; }
  std::vector<const TensorCore*> tensor_cores() const override { return tensor_cores_of(target()); }
};

}  // namespace tg
