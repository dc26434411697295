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

}  // namespace tg
