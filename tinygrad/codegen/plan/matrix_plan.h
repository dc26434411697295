/// \file Plans of products by matrix instructions that the threads of a warp share.
#pragma once
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/target/gpu_figures.h"

namespace tg {

/// How the results of a product are divided: a group has `warps` along rows and columns, a warp `tiles` of an
/// instruction along each, and the group's memory holds `steps` instructions of the sum, two or four times.
struct MatrixTile {
  int64_t warps[2] = {1, 1}, tiles[2] = {1, 1}, steps = 1;
  bool boxes = false;           ///< operands are copied in boxes, by a copy engine
  int64_t cluster[2] = {1, 1};  ///< groups along rows and columns that copy together what they have in common
};

/// A product as the model sees it: rows, columns and registers of the sum in instructions, and how many products there
/// are side by side.
struct MatrixShape {
  int64_t rows = 1, columns = 1, words = 1, products = 1;
};

/// What a tile takes and is predicted to take.
struct MatrixCost {
  int64_t registers = 0;                                                   ///< of a thread
  int64_t shared_bytes = 0;                                                ///< of a group
  int64_t groups_at_once = 0;                                              ///< of a unit; 0: it does not fit
  double matrix = 0, shared = 0, l2 = 0, memory = 0, issue = 0, wait = 0;  ///< clocks of the whole kernel, each alone
  double clocks = 0;  ///< predicted: the longest of them and a part of the others, for whole waves of groups
  double bound = 0;   ///< the roofline: matrix instructions alone at full rate, or memory alone
};

/// Predicts what a product takes (docs/gpu_codegen.md). `memory_bytes`: of operands and results, each once.
MatrixCost matrix_cost(const TensorCore& core, const MatrixTile& tile, const MatrixShape& shape, const GpuFigures& gpu,
                       double memory_bytes);

/// Applies OptOps for the matrix instruction and the tile with the lowest prediction. Returns false, and leaves the
/// kernel as it is, where no instruction fits.
bool plan_matrices(KernelAxes& kernel, const CodegenOptions& options);

}  // namespace tg
