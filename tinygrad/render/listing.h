/// \file The renderer of devices that execute linear UOps: every operation and type is native, the source is a listing
/// for people.
#pragma once
#include "tinygrad/target/renderer.h"

namespace tg {

class ListingRenderer final : public Renderer {
 public:
  explicit ListingRenderer(Target t) : Renderer(std::move(t)) {}
  OpSet ops() const override { return groups::kAlu; }
  bool supports(DType d) const override { return !d.is_weak() && !d.is_void(); }
  bool has_threads() const override { return !has_locals(); }
  bool has_locals() const override { return target().has("workgroups"); }
  /// One line for each instruction: its number, op, type, argument and the numbers of its sources; loops indented.
  std::string render(const Program& p) const override;
};

}  // namespace tg
