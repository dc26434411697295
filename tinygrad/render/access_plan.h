/// \file How the memory accesses of a program are best written: one pass over the linear program whose result renderers
/// read.
#pragma once
#include "tinygrad/render/blocks.h"
#include "tinygrad/render/cache_hints.h"
#include "tinygrad/render/tables.h"

namespace tg {

/// Strides up to this are vector loads and shuffles, larger ones gathers or transposed blocks.
constexpr int64_t kShuffledStride = 4;

/// What a language does with whole registers.
struct RegisterOps {
  bool transposes = false;  ///< blocks of rows and columns
  bool words = false;       ///< words of two or four bytes, wherever they are in two registers
  bool tables = false;      ///< looks up a value among 16 in a register
  int64_t run_bytes = 0;    ///< scalars side by side that are one access (Renderer::run_bytes)
};

struct AccessPlan {
  AccessPlan(const ProgramView& view, const Target& target, RegisterOps ops);
  CacheHints hints;
  LaneBlocks blocks, runs;
  Tables tables;
};

/// True for a load of a parameter that is not of one of its elements: of a word of narrow ones, or of several words.
bool reads_wide(const ProgramView& view, UOp load);
/// True for a load of 16 bytes that are stored at once, into the memory of a group.
inline bool is_copied(const ProgramView& view, UOp load) { return reads_wide(view, load) && view.lanes(load) > 1; }
/// Returns the parameters of a grid that are read in words or copies, or in runs that are aligned as they are: those
/// whose alignment a kernel asks for.
UOps aligned_parameters(const ProgramView& view, const LaneBlocks& runs);
/// Returns how many iterations of a loop over a sum are written out: some that divide their number, `most` at most,
/// where the innermost instructions are those of matrices.
int64_t unrolled_iterations(const ProgramView& view, UOp loop, int64_t most);

}  // namespace tg
