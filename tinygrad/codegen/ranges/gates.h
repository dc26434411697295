/// \file Gates of memory accesses: from the Invalid branches of indices to the accesses themselves.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Moves validity out of indices: LOAD(INDEX(p, WHERE(g, i, Invalid))) becomes LOAD(INDEX(p, i), 0, g), a STORE gets
/// the gate as its third source.
UOp move_gates(UOp sink);

/// Removes what gates need not say: WHERE(g, ... LOAD(INDEX(p, WHERE(g & h, i, Invalid))) ..., c) does not use the
/// value where g is off, so the load does without g if i stays inside of the buffer. A weight read at an address that
/// the lanes share would otherwise become a masked gather. Elsewhere both get one gate.
UOp relax_gates(UOp sink);

}  // namespace tg
