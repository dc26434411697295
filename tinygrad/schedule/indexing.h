/// \file Index arithmetic of movement ops: where an element of the result lies in the source.
#pragma once
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// Reads a value at `idx` (a STACK with one weakint expression per axis) where `valid` holds (empty: everywhere).
struct Access {
  UOp idx, valid;
};

/// Simplified arithmetic on weakint expressions.
UOp index_simplify(UOp u);
/// The conjunction; either may be empty, and the result is empty when it always holds.
UOp and_valid(UOp a, UOp b);

/// The access to the source of a movement op (RESHAPE, EXPAND, PERMUTE, PAD, SHRINK, FLIP) that gives its result at
/// `at`.
Access through_movement(UOp op, const Access& at);
/// Does a view of `base` show any of the zeros that a PAD puts around what it is of? A step that does not fit an axis
/// passes through padding that is cut off again.
bool shows_padding(UOp view, UOp base);
/// Index into a source of shape `from` of an op that broadcasts to shape `to`, NumPy's rule.
UOp through_broadcast(UOp idx, const Shape& to, const Shape& from);
/// Row-major position of `idx` in an array of this shape.
UOp flat_index(UOp idx, const Shape& shape);

}  // namespace tg
