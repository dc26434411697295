/// \file Owners of nodes. A node that is built under an owner is private to it: it equals no node that was built
/// without, so that the value of an equal expression elsewhere does not stand for its own. A function that is being
/// captured owns what it builds.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Sets the owner of what this thread builds in the global graph from now on; 0: none. Literals, storage, parameters,
/// effects without a value and expressions of sizes are public all the same. Returns the owner before.
uint64_t set_owner(uint64_t owner);
/// Returns the owner of what this thread builds.
uint64_t owner();

/// The owner of a node is in the upper bits of its tag.
inline constexpr int kOwnerShift = 40;
inline uint64_t owner_of(UOp u) { return u.tag() >> kOwnerShift; }                       ///< 0: none
inline uint64_t mark_of(UOp u) { return u.tag() & ((uint64_t{1} << kOwnerShift) - 1); }  ///< the tag without the owner

/// Returns the expression as it is without an owner.
UOp as_public(UOp root);

}  // namespace tg
