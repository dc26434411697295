/// \file From axes to ranges: the passes that turn a kernel AST and the axes chosen for it into the optimised AST.
///
/// Each is a row of the pass table (codegen.cpp), in this order. Until the last one the AST has its own ranges; what is
/// added (guards, blocks, coordinates in scratch memory) is said in the final ones already.
#pragma once
#include <unordered_map>

#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

/// What a range of the AST becomes.
struct FinalRange {
  UOp value;      ///< of the final ranges; within bounds
  UOp unclamped;  ///< the same, beyond the end where the range is padded
  UOp guard;      ///< holds within bounds; empty: the range is not padded
  bool masked =
      false;       ///< its lanes or runs go beyond the end: loads are masked. Else what lies there is computed again
  UOps parts;      ///< the loops, lanes and unrolled ranges it consists of, for END and REDUCE
  UOps instances;  ///< those of `parts` that are no loops of an output: UPCAST and VECTOR
};

/// The ranges of an optimised kernel.
class FinalRanges {
 public:
  FinalRanges(const KernelAxes& kernel, KernelContext& names);

  const FinalRange* find(UOp range) const;
  const FinalRange& at(UOp range) const { return *find(range); }
  const KernelAxes& kernel() const { return kernel_; }
  /// Returns the RANGE of an axis.
  UOp axis(int i) const { return axes_[static_cast<size_t>(i)]; }
  /// Returns the RANGE of an axis behind the pass "substitute ranges".
  UOp numbered(int i) const;
  /// Returns the loop of a reduce around all output loops; empty: there is none.
  UOp block() const { return block_; }
  /// Returns the condition that holds where all of `open` are within bounds, or, with `masked`, those of them whose
  /// loads are masked; empty: it always does.
  UOp guard(const UOps& open, bool masked) const;
  /// Returns `sink` with its ranges numbered by their position in the nest: kernels of the same loops are the same
  /// graphs, whatever their ASTs were, and come out with operands in the same order.
  UOp renumber(UOp sink) const;

 private:
  void make_ranges(KernelContext& names);
  FinalRange make(const KernelAxes::Origin& origin);
  void pad(const KernelAxes::Origin& origin, UOp loops, UOp unrolled, int64_t span, FinalRange* f) const;
  bool slides_in_window(UOp range) const;
  bool reads_runs() const;

  KernelAxes kernel_;
  UOps axes_;  // by axis
  std::vector<std::pair<UOp, UOp>> numbered_;
  UOp block_;
  std::unordered_map<UOp, FinalRange> map_;
};

/// Masks reduces, loads and stores where padded ranges are beyond their ends.
UOp guard_padding(UOp sink, const FinalRanges& ranges);
/// Makes stores accumulate where a loop of the reduce lies around the outputs: the first block starts, the others add
/// to what is there.
UOp accumulate_blocks(UOp sink, const FinalRanges& ranges);
/// Replaces the ranges of the AST by the final ones.
UOp substitute_ranges(UOp sink, const FinalRanges& ranges);

}  // namespace tg
