/// \file One choice for the axes of a CPU kernel, which the cost model prices.
#pragma once
#include <cstdint>
#include <vector>

namespace tg {

/// A choice for the axes of a kernel, numbered as KernelAxes numbers them before any opt.
struct Candidate {
  std::vector<int> lane_axes;  ///< axes that get the lanes; empty: scalar code
  int lanes = 1;
  std::vector<int64_t> tile;      ///< per axis: instances (UPCAST, UNROLL), in addition to the lanes
  int block_axis = -1;            ///< reduce axis that runs in blocks around the output loops
  int64_t blocks = 0;             ///< of how many blocks
  std::vector<int> order;         ///< nesting order of the output axes, outermost first
  bool by_stride = false;         ///< reduce axes nest by their strides, the longest outermost, not as they come
  std::vector<int> reduce_order;  ///< then their order; else empty
  /// Bit k: operand k (codegen/scratch/stage.h) is read from scratch memory. Operands beyond these are read where they
  /// lie.
  uint32_t staged = 0;
  static constexpr int kMaxOperands = 32;
  uint32_t windows = 0;  ///< of these, operands whose scratch memory is a window (codegen/scratch/window.h)
  int split_axis = -1;   ///< output axis that gets a second loop, inside of all others,
  int64_t split = 0;     ///< of this length
  /// Output axis of which a panel without lanes holds several steps: a second loop around the one above,
  int rows_axis = -1;
  int64_t rows = 0;  ///< of this length
  /// An operand and the loop in which it is filled; -1: around all loops.
  struct Placement {
    int axis, operand;
  };
  std::vector<Placement> stages;
  int stages_outside = -1;  ///< the innermost loop around the first of them
  double cycles = 0;        ///< predicted, one core
  double filling = 0;       ///< cycles of these for panels
  static constexpr int kAnyThread = -2;
  /// Output axis shared by the threads; -1: one thread; kAnyThread: as its size suggests.
  int thread_axis = kAnyThread;
};

}  // namespace tg
