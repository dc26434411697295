/// \file Facts about the contents of a BUFFER node's memory, as flags of the node next to Node::Flag.
#pragma once
#include <cstdint>

#include "tinygrad/uop/uop.h"

namespace tg {

enum BufferFlag : uint8_t {
  kFreshBuffer = 16,  ///< nobody has seen its raw contents: writing it needs no care
  kValueWrite =
      16,  ///< of an AFTER: a copy of a value, or an indexed write: the history goes on, as through other operations
  kStaleBuffer = 32,  ///< its memory was overwritten since; another BUFFER node represents the new contents
  kLeafWrite = 32,    ///< of an AFTER: the write has run, and what it wrote is a leaf: gradients end here
};

inline bool is_leaf_write(UOp u) { return u.is(Ops::AFTER) && u.node()->flags & kLeafWrite; }
inline bool is_value_write(UOp u) { return u.is(Ops::AFTER) && u.node()->flags & kValueWrite; }
inline bool is_stale(UOp u) { return u.is(Ops::BUFFER) && u.node()->flags & kStaleBuffer; }

}  // namespace tg
