/// \file Renderer of C for hosts, compiled by clang: readable source with vector types. What a C-like language says differently is in the CStyle table.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

/// The words of one C-like language.
struct CStyle {
  const char* prologue;                        ///< text in front of everything
  const char* signature;                       ///< of the function; %s is its name
  const char* buffer;                          ///< how parameter N is declared; %t type, %q restrict or const, %n its number
  const char* variable;                        ///< how a scalar parameter is declared; %t type, %v name, %n its position
  const char* loop_hint;                       ///< in front of loops that are vectors inside already
  const char* type_names[static_cast<size_t>(DTypeId::kCount)];
};

/// C with clang's vector extensions: `void name(void* const* buffers, const long long* vars, long long begin, long long end)`. Needs clang 17 and
/// -ffp-contract=off. Assumes of memory, and means by each operation, what the LLVM renderer does.
class ClangRenderer final : public Renderer {
 public:
  explicit ClangRenderer(Target t) : Renderer(std::move(t)) {}
  OpSet ops() const override;
  bool supports(DType d) const override;
  bool has_threads() const override { return true; }
  std::string render(const Program& p) const override;
};

}  // namespace tg
