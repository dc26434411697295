/// \file Fewer and better ranges before a kernel is optimised.
#pragma once
#include "tinygrad/uop/rebuild.h"

namespace tg {

/// Rewrites a kernel to fewer and better ranges: merges output or reduce ranges that every index walks as one, splits a
/// range used only through r / c and r % c. Meaning does not change.
UOp simplify_ranges(UOp sink);
/// Merges ranges (a, b) of one type where every expression uses them as a * size(b) + b.
UOp merge_ranges(UOp sink);
/// Merges output ranges (a, b) that every operand of a reduction reads as a * size(b) + b, one of them contiguously,
/// though the stored value does not: a long contiguous range in the innermost loop is worth a store through x / c and
/// x % c. At most one pair; the sink itself when there is none.
UOp merge_operand_ranges(UOp sink);
/// Splits ranges that are used through r / c and r % c: r becomes the sum of its factors.
UOp split_divmod_ranges(UOp sink);

/// map_ranges over nodes that simplify as they are built.
UOp replace_ranges(UOp sink, const RangeMap& map);

}  // namespace tg
