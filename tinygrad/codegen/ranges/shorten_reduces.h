/// \file Sums of which a mask leaves a part: rows of a filter that lie beyond the edge of an image.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Marks a term of a sum: where `gate` fails it is zero already, and need not be added.
UOp needed_where(UOp gate, UOp term);

/// Shortens the loops of sums over marked terms, and takes the marks away. Of each gate, comparisons of sums of ranges
/// with literals count. They bound one loop of the sum, that of the largest coefficient: the loop runs from the first
/// to the last step in which they may hold for some lane, unrolled instance or step of the sum's other loops.
UOp shorten_reduces(UOp sink);

}  // namespace tg
