/// \file Bounds checks of indices in users' kernels, as far as the graph tells.
#pragma once
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/uop.h"

namespace tg {

struct IndexCheck {
  enum Kind : uint8_t {
    kInside,   ///< for every iteration
    kOutside,  ///< for at least one iteration
    kUnknown,  ///< it depends on the contents of memory or on variables, or nothing was found either way
  } kind = kUnknown;
  Bounds bounds{};  ///< of the index, where it is valid
};

/// Compares a weakint index with 0 and `size`; iterations where it is Invalid or `valid` (may be empty) is false do not
/// count. Bounds of the expression decide where they can, otherwise its values at points of its loops: every point of
/// small loops, corners and samples of others.
IndexCheck check_index(UOp index, UOp valid, int128 size);

}  // namespace tg
