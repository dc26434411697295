/// \file Attention in blocks (online softmax) by groups of threads: the scores stay in registers.
#pragma once
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/schedule/attention_form.h"
#include "tinygrad/target/renderer.h"

namespace tg {

/// How a group of threads divides a tile of rows and a block of keys. The threads of a row share its keys, and the
/// columns of its result; where there are fewer rows than threads, slices of a block have threads of their own.
struct GroupTile {
  int64_t rows = 1, slices = 1, columns = 1;  ///< threads along rows, along slices of a block, and within each
  int64_t rows_each = 1, keys_each = 1;       ///< of a thread
  int64_t threads() const { return rows * slices * columns; }
  int64_t tile() const { return rows * rows_each; }               ///< rows of a group
  int64_t block() const { return slices * columns * keys_each; }  ///< keys of a block
};

/// Returns the tile for a target. `one_thread`: groups have one thread.
GroupTile choose_group_tile(const AttentionForm& form, UOp sink, const Target& target, bool one_thread);

/// Returns the kernel of attention_blocks (codegen/plan/attention_blocks.h) for a target with workgroups. A group has a
/// tile of rows; running maxima, sums and weighted sums are registers. Keys and values of a block, and the queries, are
/// in the memory of the group where they fit, probabilities pass through it. A thread has the scores of some rows and
/// keys, then of some rows and columns of the result; maxima and sums of a row are combined across its threads.
UOp attention_groups(UOp sink, const AttentionForm& form, const Target& target, bool one_thread, KernelContext& names);

}  // namespace tg
