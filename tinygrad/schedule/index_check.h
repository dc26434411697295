/// \file Whether an index stays inside of what it indexes, as far as the graph of a user's kernel tells.
#pragma once
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/uop.h"

namespace tg {

struct IndexCheck {
  enum Kind : uint8_t {
    kInside,   ///< for every iteration
    kOutside,  ///< for at least one iteration
    kUnknown,  ///< it depends on what is in memory or on variables, or nothing was found either way
  } kind = kUnknown;
  Bounds bounds{};  ///< of the index, where it is valid
};

/// Compares a weakint index, of which iterations where it is Invalid or `valid` (may be empty) is false do not count,
/// with 0 and `size`. Bounds of the expression decide where they can, its values at points of its loops where they
/// cannot: every point of small loops, corners and samples of others.
IndexCheck check_index(UOp index, UOp valid, int128 size);

}  // namespace tg
