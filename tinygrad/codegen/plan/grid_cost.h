/// \file What a grid of groups costs on a GPU, for kernels that are no products of matrices: how many groups a unit has
/// at a time, and how well they keep its memory busy. See docs/gpu_codegen.md.
#pragma once
#include "tinygrad/target/gpu_figures.h"

namespace tg {

/// What a kernel asks of a GPU.
struct GridLoad {
  int64_t groups = 1, threads = 1;  ///< of the grid; of a group
  int64_t registers = 32;           ///< of 32 bits, of a thread
  int64_t shared_bytes = 0;         ///< memory of a group
  double bytes = 0;                 ///< that all threads together read from memory and write to it
  double in_flight = 4;             ///< bytes that a thread reads before it needs the first of them
  double instructions = 0;          ///< of a thread
  int64_t barriers = 0;             ///< of a group
};

/// Clocks of the GPU, by what takes them.
struct GridCost {
  int64_t groups_at_once = 0;  ///< of a processor; 0: it can't have one
  double occupancy = 0;        ///< warps of a processor that has its groups, of those that it may have
  double memory = 0, issue = 0, wait = 0;
  double clocks = 0;
};

/// Returns what a kernel is predicted to take.
GridCost grid_cost(const GridLoad& load, const GpuFigures& gpu);

}  // namespace tg
