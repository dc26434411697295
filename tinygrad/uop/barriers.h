/// \file The forms of BARRIER in kernels of workgroups, and copies in boxes, see docs/gpu_codegen.md.
///
/// form                      meaning
/// BARRIER                   all threads of a group wait for each other, and for what they have stored and copied
/// BARRIER, n                a thread waits until all but n groups of the matrix instructions that it has started, and
///                           that read memory, are done. Those since the last such BARRIER are a group
/// BARRIER, "copies"         what a thread has copied since the last such BARRIER is a group
/// BARRIER, "n"              as without a number, but the last n groups of copies may be under way
/// BARRIER(INDEX), "begin n c a"
///                           n barriers in the memory of the group begin their first phase, each of which is over when
///                           there were a arrivals; all threads of a cluster of c groups wait for each other
/// BARRIER(INDEX[, gate], ...), "expect n"
///                           one thread of the group arrives, and says that the phase of a barrier is not over before
///                           boxes of n bytes have come in all
/// BARRIER(INDEX, parity, ...), "await"
///                           a thread waits until a barrier's phase is over: its first one has parity 0, the next one 1
/// BARRIER(INDEX, parity[, gate], ...), "room"
///                           as "await", for the one thread that copies boxes. Before the first phase is over, one of
///                           parity 1 is
/// BARRIER(INDEX[, gate], ...), "release c"
///                           each warp arrives at the barrier, in all groups of a cluster of c
/// BARRIER, "cluster c"      all threads of a cluster of c groups wait for each other
///
/// CUSTOM(INDEX, barriers, number, PARAM, column, row[, gate]), "box c MAP"
///                           one thread of the group begins to copy the box at this column and row of a parameter
///                           (target/tensor_map.h) to the memory of the group, of each group of a cluster of c. It
///                           counts for the phase of barrier `number` there
#pragma once
#include <string>
#include <string_view>

#include "tinygrad/uop/uop.h"

namespace tg {

/// Returns whether `u` is a BARRIER whose argument begins with a word.
inline bool is_barrier(UOp u, std::string_view word) {
  return u.is(Ops::BARRIER) && u.arg_kind() == ArgKind::kString && u.arg<std::string>().starts_with(word);
}
/// Returns number `i`, from 1 on, behind the word of an argument.
inline int64_t barrier_number(UOp u, int i = 1) {
  const std::string& text = u.arg<std::string>();
  size_t at = 0;
  for (; i > 0; i--) at = text.find(' ', at) + 1;
  return std::stoll(text.substr(at));
}

inline bool is_wait_for_products(UOp u) { return u.is(Ops::BARRIER) && u.arg_kind() == ArgKind::kInt; }
inline bool ends_copies(UOp u) { return is_barrier(u, "copies"); }
inline bool begins_barriers(UOp u) { return is_barrier(u, "begin"); }
inline bool expects_boxes(UOp u) { return is_barrier(u, "expect"); }
inline bool awaits_boxes(UOp u) { return is_barrier(u, "await"); }
inline bool awaits_room(UOp u) { return is_barrier(u, "room"); }
inline bool releases_room(UOp u) { return is_barrier(u, "release"); }
inline bool is_cluster_barrier(UOp u) { return is_barrier(u, "cluster"); }
/// Returns how many groups of copies may be under way behind a BARRIER for which all threads wait; -1: none, nor copies
/// since the last group.
inline int64_t copies_under_way(UOp u) {
  if (u.arg_kind() != ArgKind::kString) return -1;
  const std::string& text = u.arg<std::string>();
  return text[0] >= '0' && text[0] <= '9' ? std::stoll(text) : -1;
}
inline UOp wait_for_products(const UOps& behind, int64_t running) {
  return UOp::make(Ops::BARRIER, dtypes::void_, behind, Arg(running));
}
inline UOp end_copies(const UOps& copies) { return UOp::make(Ops::BARRIER, dtypes::void_, copies, Arg("copies")); }
inline UOp wait_for_copies(UOp loop, int64_t under_way) {
  return UOp::make(Ops::BARRIER, dtypes::void_, {loop}, Arg(std::to_string(under_way)));
}

/// Returns whether the argument of a BARRIER is one of the forms above, with the numbers and sources it has. What
/// reads arguments relies on it.
bool is_well_formed_barrier(UOp u);
/// The same for the argument and sources of a copy of a box, and for a SPECIAL: "gidx0" to "lidx2".
bool is_well_formed_box(UOp u);
bool is_well_formed_special(UOp u);
/// The same for the texts of CUSTOMI: "x4.trans" (render/program_view.h), "mn 8192 1024" (target/shared_matrix.h).
bool is_well_formed_matrix_load(std::string_view text);
bool is_well_formed_matrix(std::string_view text);

/// Returns whether `u` copies a box.
inline bool is_box(UOp u) {
  return u.is(Ops::CUSTOM) && u.arg_kind() == ArgKind::kString && u.arg<std::string>().starts_with("box ");
}
/// The parts of a copy of a box.
struct BoxCopy {
  UOp op;
  UOp to() const { return op.src(0); }  ///< an INDEX
  UOp barriers() const { return op.src(1); }
  UOp number() const { return op.src(2); }
  UOp param() const { return op.src(3); }
  UOp column() const { return op.src(4); }
  UOp row() const { return op.src(5); }
  UOp gate() const { return op.nsrc() > 6 ? op.src(6) : UOp(); }  ///< empty: there is none
  int64_t groups() const { return std::stoll(op.arg<std::string>().substr(4)); }
  std::string map() const { return op.arg<std::string>().substr(op.arg<std::string>().find(' ', 4) + 1); }
};
/// Returns the gate of a BARRIER(INDEX, ...); empty: there is none.
inline UOp gate_of(UOp barrier) {
  for (size_t i = 1; i < barrier.nsrc(); i++)
    if (barrier.src(i).dtype().is_bool()) return barrier.src(i);
  return {};
}

}  // namespace tg
