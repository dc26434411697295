/// \file How groups of threads divide attention: tiles of rows, blocks of keys, what is in the memory of a group.
#pragma once
#include <vector>

#include "tinygrad/codegen/codegen.h"
#include "tinygrad/schedule/attention_form.h"
#include "tinygrad/target/renderer.h"

namespace tg {

/// How a group of threads divides a tile of rows and a block of keys. The threads of a row share its keys, and the
/// columns of its result; where there are fewer rows than threads, slices of a block have threads of their own.
struct GroupTile {
  int64_t rows = 1, slices = 1, columns = 1;  ///< threads along rows, along slices of a block, and within each
  int64_t rows_each = 1, keys_each = 1;       ///< of a thread
  const TensorCore* core = nullptr;           ///< the matrix instruction, where one is used
  bool loads = false;                         ///< its operands come by matrix loads, probabilities stay where they are
  int64_t threads() const { return rows * slices * columns; }
  int64_t tile() const { return rows * rows_each; }               ///< rows of a group
  int64_t block() const { return slices * columns * keys_each; }  ///< keys of a block
};

/// An operand of a score, or the weights: elements along rows or keys, and along its other ranges.
struct AttentionOperand {
  UOp value;         ///< as the form has it
  UOp stored;        ///< what the memory of a group holds: the value, or the bits of what it is widened from
  UOp along;         ///< f.row or f.over
  UOps dims{};       ///< its other ranges inside of the kernel's; the last one walks memory in the smallest steps
  int64_t each = 1;  ///< elements of a row or key
  /// Returns how many elements a thread moves side by side.
  int64_t run() const { return 16 / stored.dtype().itemsize(); }
  /// Returns the elements from row to row: 16 bytes more than a row has, so that eight rows begin in eight banks.
  int64_t stride() const { return (each + run() - 1) / run() * run() + run(); }
};

/// Returns the value of a form that threads compute for each row and key.
inline UOp score_of(const AttentionForm& f) { return f.kind == AttentionForm::kProduct ? f.factor : f.score; }
/// True for sums of products of a score that threads compute from operands.
bool is_score_product(UOp u);
/// Returns the operands that several threads read: what of the scores' products depends on rows or on keys alone, and
/// the weights. `core`: the instruction that they are for; null: none.
std::vector<AttentionOperand> attention_operands(const AttentionForm& f, const TensorCore* core);

/// Returns the elements of scratch memory from one row of probabilities to the next: 16 bytes more than a row has.
inline int64_t probability_stride(const GroupTile& t) { return t.block() + (t.core ? 8 : 4); }
/// Returns the bytes of probabilities that pass through the memory of a group.
int64_t probability_bytes(const AttentionForm& f, const GroupTile& t);
/// Returns the bytes of an operand of a tile or a block; 0: it is not worth a place in the memory of a group.
int64_t panel_bytes(const AttentionOperand& o, const AttentionForm& f, const GroupTile& t);
/// Returns the bytes a group may have, so that a processor has two of them.
int64_t shared_budget(const Target& target);

/// Returns the tile for a target: with matrix instructions for means of 16-bit operands where there are some.
GroupTile choose_group_tile(const AttentionForm& f, UOp sink, const Renderer& renderer, const CodegenOptions& options);

}  // namespace tg
