/// \file Writes into storage: what a set of roots overwrites, who still reads the old contents, and what tensors point
/// to afterwards.
///
/// `assign` is AFTER(S, STORE(view of S, value)), S being a BUFFER or an earlier AFTER on it. Once it has run, the
/// memory gets a new BUFFER node: expressions of the old contents can never be mistaken for expressions of the new
/// ones, although nodes are shared by structure.
#pragma once
#include <functional>
#include <vector>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tensor/impl.h"

namespace tg::tensor_detail {

/// What may lie between a tensor and the storage it shows: assigning to it writes there, and it sees what others write.
inline constexpr OpSet kViewOps = groups::kMovement | Ops::DETACH | Ops::BITCAST | Ops::UNSHARD;

inline UOp below_views(UOp u) {
  while (u.in(kViewOps)) u = u.src(0);
  return u;
}
/// Calls `f` on the node below the views of a value, of several devices on that of each shard.
template <class F> void each_base(UOp u, F&& f) {
  u = below_views(u);
  if (!u.is(Ops::MSTACK)) return static_cast<void>(f(u));
  for (UOp s : u.srcs()) f(below_views(s));
}
/// Replaces the node `from` below the views of `u`; `u` itself when there is another one.
UOp rebased(UOp u, UOp from, UOp to);
/// Replaces the nodes below the views of a value; `to` gives a node itself where it stays.
UOp with_bases(UOp u, const std::function<UOp(UOp)>& to);

/// Whether a node is an AFTER with a write to storage.
bool is_effect(UOp u);
/// The BUFFER a state is in now.
UOp memory_of(UOp state);
/// Marks a leaf that wants a gradient, and what it views.
void mark_leaf(UOp u);
/// Marks storage as seen by others.
void clear_fresh(UOp buffer);

struct Writes {
  UOps buffers;             ///< BUFFERs written to that others may read
  UOps last;                ///< per buffer: the AFTER of its last write
  std::vector<bool> blank;  ///< per buffer: it had no memory before, all its contents come from these writes
  UOps effects;             ///< every AFTER with a STORE
  bool contiguous = false;  ///< the roots contain a CONTIGUOUS that has not been computed, other than themselves
};
Writes writes_of(const UOps& roots);
/// Returns nodes of live tensors that read an overwritten buffer in an earlier state.
UOps readers_of(const Writes& w);
/// Gives, after a run, the memory written new BUFFER nodes; live tensors that view it follow. `read`: values were only
/// read, so that what kernels with a gradient wrote keeps its history.
void finish_effects(const Writes& w, bool read);

/// A node and the references to it.
struct Watched {
  UOpRef node;
  uint32_t refs = 0;
};
/// Memory that a replay reads or writes behind the graph's back.
struct TrackedMemory {
  std::shared_ptr<Buffer> memory;
  bool written = false;
  UOpRef node{};  ///< its BUFFER, when tensors have one
  /// The BUFFER and its views where nothing but tensors uses them; none where something does.
  std::vector<Watched> watched{};
  uint64_t users_seen = 0;  ///< user_table::users_of_watched() when nothing but those used it
  /// Whether nothing new refers to it: no pending write, no expression of its contents.
  bool is_unreferenced();
};
/// Computes, before a replay, pending writes to the memory and pending expressions of what will be overwritten, which
/// then gets new BUFFER nodes.
void flush_pending(std::vector<TrackedMemory>& tracked);
/// Returns pending writes that tensors hold, to storage others may have seen; `fresh`: to new storage too.
Tensors pending_writes(bool fresh);

/// Returns for each tensor whether it has storage that no other live tensor shows, so that a write to it changes this
/// tensor only.
std::vector<bool> sole_owners(const Tensors& tensors);
/// Returns tensors whose last write may be pending and is not the first of new storage.
Tensors writes_with_earlier_state();
/// Takes back the last pending write of a tensor and all that view its storage. False when there is nothing before it.
bool roll_back_write(const Tensor& t);

/// Returns what `u` shows now, as something that may be written to: where that is memory somebody forbids writes to, it
/// and every tensor that views it move to a copy.
UOp leave_read_only_memory(UOp u);
/// Does so for tensors, and computes the copies; returns whether there are any.
bool leave_read_only_memory(const Tensors& tensors);

/// Whether a node is the result of a user's kernel whose gradient may be asked for: it stays what it is, forwarded to
/// its storage.
bool keeps_call(UOp u);
/// Whether a value is an AFTER with a write, possibly under views.
bool is_effect_target(UOp u);
/// Replaces the storage behind the views of `u` by what it has been computed into.
UOp current_view(UOp u);
/// Returns the node below the views a tensor can be written through; empty when something else is in the way.
UOp writable_state(UOp u);

}  // namespace tg::tensor_detail
