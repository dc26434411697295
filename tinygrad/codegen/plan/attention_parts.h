/// \file What attention in blocks has on every target: the blocks that a mask keeps, reads that end with the keys.
#pragma once
#include "tinygrad/schedule/attention_form.h"

namespace tg {

using PositionMap = std::vector<std::pair<UOp, UOp>>;

int64_t ceil_div(int64_t n, int64_t d);
UOp ceil_div(UOp n, int64_t d);

/// A mask: the value is closed where the condition, or its negation, does not hold.
struct AttentionMask {
  UOp condition;
  bool contrary = false;
};
/// Returns the mask of a product's factor, which may be scaled; without a condition: it has none.
AttentionMask mask_of_factor(const AttentionForm& f);

/// Blocks of f.over, as numbers: all of them, and the first and the end of those that a mask like i < j keeps for some
/// row of a tile.
struct BlockSpan {
  UOp blocks, begin, end;
};
/// Returns them for blocks of `block` positions and the tile of `rows` rows that begins with `first_row`.
BlockSpan open_blocks(const AttentionForm& f, UOp first_row, int64_t rows, int64_t block);

/// Returns `value` at mapped positions. Memory that depends on `over` is read where the gate is on; without one,
/// everywhere.
UOp read_within(UOp value, UOp over, const PositionMap& map, UOp gate);

}  // namespace tg
