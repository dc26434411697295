/// \file The operands that OptOp::kStage named, as STAGE nodes.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {
class FinalRanges;

/// Wraps the operands that kStage named: a panel is read where its ranges are, a window at the sums they appear in.
UOp stage_operands(UOp sink, const FinalRanges& ranges);
/// Returns what a window holds: `value` beyond the ends of padded ranges, too, and zeros where the sum of its ranges is
/// out of bounds.
UOp window_contents(UOp value, const FinalRanges& ranges);

}  // namespace tg
