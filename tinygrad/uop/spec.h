/// \file Well-formedness of each level of the IR, as rule tables; see docs/ir.md. Tests verify after every stage
/// (SPEC=1).
#pragma once
#include <span>

#include "tinygrad/uop/rewrite.h"

namespace tg {

/// Verdict of a spec rule on a node: none (the next rule is asked), well-formed, or the reason why not.
struct Verdict {
  enum Kind : uint8_t { kNone, kGood, kBad } kind = kNone;
  const char* why = "";
  explicit operator bool() const { return kind != kNone; }
};
using Spec = PatternMatcher<Verdict>;

const Spec& spec_tensor();   ///< docs/ir.md, section 1: tensor graphs
const Spec& spec_kernel();   ///< section 3: kernel ASTs, optimised ones included, until index types are lowered
const Spec& spec_program();  ///< section 4: nodes of linear programs

/// Checks every node `root` depends on. InternalError naming the stage, the rule that broke, the node with its
/// neighbourhood.
void verify(UOp root, const Spec& spec, const char* stage);
/// Checks one node as far as that can be done without knowing the level it is for (SPEC=2: as it is made).
/// InternalError like verify's.
void verify_made(UOp u);
/// Checks a linear program: every instruction, that sources stand before users, that loops nest and each is closed
/// once, at most one VECTOR range.
void verify_program(std::span<const UOp> program, const char* stage);

}  // namespace tg
