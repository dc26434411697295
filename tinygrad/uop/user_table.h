/// \file The side table from nodes of the global graph to their users: the nodes that have them as a source, or that
/// have been computed into them. Guarded by the graph's lock.
///
/// Entries of users that die are not searched for; a list drops them when it is full, so that adding an entry takes
/// constant time on average. Literals and shapes have no users here: they are shared by all, and nobody asks.
#pragma once
#include <cstdint>
#include <span>

#include "tinygrad/uop/uop.h"

namespace tg::user_table {

struct Use {
  uint32_t user;  ///< id of the node
  uint32_t slot;  ///< which of its sources it is; kForward: the user has been computed into it
  auto operator<=>(const Use&) const = default;
};
inline constexpr uint32_t kForward = UINT32_MAX;

/// Adds a node of the global graph, as a user of its sources.
void add(UOp u);
/// Records that `from` has been computed into `to`.
void add_forward(UOp from, UOp to);
/// Erases a node that dies.
void erase(UOp u);
/// Frees the rows of ids from `limit` on, which belong to no node.
void trim(uint32_t limit);

/// Counts users that the node gets from now on.
void watch(UOp u);
/// Returns how many users watched nodes have got, dead ones included. Needs no lock.
uint64_t users_of_watched();

/// Returns the entries of a node, those of dead users among them.
std::span<const Use> entries(UOp u);
/// Returns the user of an entry of `u`, or nothing when it is dead or has another value by now.
UOp user_of(UOp u, Use use);
/// Calls `f(user, slot)` for the users of a node. A user may come several times. `f` must not make nodes.
template <class F> void each(UOp u, F&& f) {
  for (const Use use : entries(u))
    if (const UOp user = user_of(u, use)) f(user, use.slot);
}

}  // namespace tg::user_table
