/// \file The forms of BARRIER in kernels of workgroups, see docs/gpu_codegen.md.
///
/// form               meaning
/// BARRIER            all threads of a group wait for each other, and for what they have stored and copied
/// BARRIER, n         a thread waits until all but n groups of the matrix instructions that it has started, and that
///                    read memory, are done. Those since the last such BARRIER are a group
/// BARRIER, "copies"  what a thread has copied since the last such BARRIER is a group
/// BARRIER, "n"       as without a number, but the last n groups of copies may be under way
#pragma once
#include <string>

#include "tinygrad/uop/uop.h"

namespace tg {

inline bool is_wait_for_products(UOp u) { return u.is(Ops::BARRIER) && u.arg_kind() == ArgKind::kInt; }
inline bool ends_copies(UOp u) {
  return u.is(Ops::BARRIER) && u.arg_kind() == ArgKind::kString && u.arg<std::string>() == "copies";
}
/// Returns how many groups of copies may be under way behind a BARRIER for which all threads wait; -1: none, nor copies
/// since the last group.
inline int64_t copies_under_way(UOp u) {
  return u.arg_kind() == ArgKind::kString && !ends_copies(u) ? std::stoll(u.arg<std::string>()) : -1;
}
inline UOp wait_for_products(const UOps& behind, int64_t running) {
  return UOp::make(Ops::BARRIER, dtypes::void_, behind, Arg(running));
}
inline UOp end_copies(const UOps& copies) { return UOp::make(Ops::BARRIER, dtypes::void_, copies, Arg("copies")); }
inline UOp wait_for_copies(UOp loop, int64_t under_way) {
  return UOp::make(Ops::BARRIER, dtypes::void_, {loop}, Arg(std::to_string(under_way)));
}

}  // namespace tg
