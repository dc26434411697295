/// \file STAGE: a value computed once into scratch memory, and read from there by everything inside of a loop.
///
/// STAGE(value, ranges...) is memory that holds `value` for all of `ranges`, which it ends; it is filled wherever the
/// ranges that are left open begin a new iteration. LOAD(INDEX(STAGE, coordinates...)) reads it. Passes that want
/// scratch memory make such nodes; lower_stage.h says how each kind is laid out and filled.
#pragma once
#include "tinygrad/uop/uop.h"

namespace tg {

/// Returns the values of a kernel AST that OptOp::kStage knows by number: the factors of every product that is summed,
/// in the order of the program, each once, of those that read memory and hold no reduce themselves.
UOps stageable(UOp sink);

/// Returns a read at `coordinates` of STAGE(value, over...).
UOp stage(StageKind kind, UOp value, const UOps& over, const UOps& coordinates);

/// The parts of a LOAD from a STAGE.
struct StageRead {
  explicit StageRead(UOp load);
  UOp stage, value;
  UOps over, coordinates;
};
/// True for a LOAD from a STAGE.
bool reads_stage(UOp u);
/// True for a product that threads share, before it is expanded: WMMA(a, b, register, registers of a, of b).
bool is_shared_product(UOp u);
/// True for CUSTOMI(LOAD), the descriptor of a matrix that a product reads from memory (target/shared_matrix.h).
bool is_matrix_in_memory(UOp u);
/// True for the STAGE of a window (codegen/scratch/window.h).
bool is_window(UOp u);

/// Returns the scratch memory of a spilled value that an INDEX is into; empty for any other INDEX. Before the ranges
/// are final no other scratch memory is a BUFFER.
UOp reused_memory(UOp index);

}  // namespace tg
