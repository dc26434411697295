/// \file Index arithmetic of movement ops: where an element of the result lies in the source.
#pragma once
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// A read of a value at `idx` (a STACK with one weakint expression per axis) where `valid` holds (empty: everywhere).
struct IndexedRead {
  UOp idx, valid;
};

/// Simplifies arithmetic on weakint expressions.
UOp index_simplify(UOp u);
/// Returns the conjunction; either may be empty, and the result is empty when it always holds.
UOp and_valid(UOp a, UOp b);

/// Returns the read of the source of a movement op (RESHAPE, EXPAND, PERMUTE, PAD, SHRINK, FLIP) that gives its result
/// at `at`.
IndexedRead through_movement(UOp op, const IndexedRead& at);
/// Returns true where a view of `base` shows any of the zeros that a PAD adds. (A stride that does not divide an axis
/// pads it and shrinks the padding away again.)
bool shows_padding(UOp view, UOp base);
/// Returns the index into a source of shape `from` of an op that broadcasts to shape `to`, NumPy's rule.
UOp through_broadcast(UOp idx, const Shape& to, const Shape& from);
/// Returns the row-major position of `idx` in an array of this shape.
UOp flat_index(UOp idx, const Shape& shape);

}  // namespace tg
