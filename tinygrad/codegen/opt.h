/// \file OptOps: the optimisations of a kernel are splits, types and order of its ranges, nothing else.
///
/// A kernel has a list of axes: first its output ranges, then its reduce ranges, in nesting order. A split keeps the
/// outer part at its place in the list and appends the inner part (Opt::kThread with an argument appends the inner part
/// as a LOOP, too), so numbers of axes stay valid.
///
///   kUpcast axis n    inner n of an output axis becomes UPCAST (0: all of it)          kUnroll axis n   inner n of a
///   reduce axis becomes UNROLL (0: all) kVector axis n    inner n of any axis becomes the lanes; several axes may
///   share    kSplit axis n    inner n becomes a loop of its own (cache block)
///                     the lanes when no value depends on two of them                   kSwap axis other exchanges the
///                     places of two loops
///   kThread axis n    outer n of an output axis becomes THREAD (0: all), outermost     kPadTo axis n    size up to a
///   multiple of n; before any split of the axis kLocal axis n     inner n becomes LOCAL (0: all) kNoLocals        no
///   workgroups kGroup axis n inner n of a reduce axis becomes GROUP_REDUCE; kGroupTop: outer n. On a target without
///   workgroups kGroupTop makes the outer n a loop around all
///                     output loops, and what is stored accumulates in memory: every block of the operands is used for
///                     all outputs while it is in the cache
///   kStage axis k     operand k (codegen/stage.h) is computed into scratch memory once per iteration of the loop
///   `axis`, an output loop (-1: around them all). After all splits. k + kWindow: as a window (codegen/window.h). On a
///   target with workgroups into the memory of the group, `axis` is a reduce loop
///
///   kTc axis n        sums of products over the reduce axis by matrix instruction n of the table
///   (target/tensor_core.h): before anything else. The
///                     kernel's axes are then those of the packed sum. kWords (codegen/words.h) as n: numbers of a few
///                     bits, words as lanes
#pragma once
#include <vector>

#include "tinygrad/target/renderer.h"

namespace tg {

/// An Opt that does not fit its kernel or target.
struct KernelOptError : Error {
  using Error::Error;
};

/// A kernel AST with its axes while optimisations are chosen.
class KernelAxes {
 public:
  struct Axis {
    int64_t size = 0;  ///< 0: symbolic
    AxisType type = AxisType::kLoop;
    int origin = 0;        ///< which range of the AST it is a part of
    bool reduce = false;   ///< part of a reduce range
    bool block = false;    ///< a loop of a reduce range around the output loops
    bool ordered = false;  ///< a loop around the output loops in which what one iteration stores a later one reads: it
                           ///< stays as it is
  };
  KernelAxes(UOp sink, const Renderer& renderer);

  const std::vector<Axis>& axes() const { return axes_; }
  /// The AST the axes are those of: the kernel's, or with kTc the one that names the instruction.
  UOp sink() const { return sink_; }
  /// The RANGE of the AST an axis comes from.
  UOp range(int axis) const { return origins_[static_cast<size_t>(axes_[static_cast<size_t>(axis)].origin)].range; }
  /// True when the kernel stores one reduce as it is, so that kGroupTop can accumulate in what is stored.
  bool can_accumulate() const;
  /// Throws KernelOptError and changes nothing when the opt does not fit.
  void apply(const Opt& opt);
  const std::vector<Opt>& applied() const { return applied_; }
  bool no_locals() const { return no_locals_; }
  /// Bytes of scratch memory that operand `value` takes when it is staged at the loop `axis`; 0: it can't be.
  int64_t scratch_bytes(UOp value, int axis, bool window = false) const;
  /// The optimised AST; padded ranges are masked.
  UOp finish() const;

 private:
  struct Term {
    int axis;
    int64_t coefficient;
  };
  struct Origin {
    UOp range;
    int64_t size = 0;
    bool reduce = false, padded = false;
    std::vector<Term> terms;  ///< the range is the sum of axis * coefficient
  };
  struct Stage {
    UOp value;  ///< of the AST
    int axis;
    bool window = false;
  };
  void find_axes();
  int split(int axis, int64_t inner, AxisType type, bool outer_gets_type = false);
  void add_stage(const Opt& opt);
  /// True when `axis` is a loop at or around the loop `at`: what is staged there is computed again in each of its
  /// iterations.
  bool around(int axis, int at) const;

  UOp sink_;
  const Renderer* renderer_;
  std::vector<Axis> axes_;
  std::vector<int> order_;  // nesting order of the axes, outermost first
  std::vector<Origin> origins_;
  std::vector<Opt> applied_;
  std::vector<Stage> stages_;
  bool no_locals_ = false;
};

/// Fewer and better ranges: output or reduce ranges that every index walks as one merge; a range used only through r /
/// c and r % c splits. Meaning does not change.
UOp simplify_ranges(UOp sink);
/// Merges ranges (a, b) of one type where every expression walks them as a * size(b) + b.
UOp merge_ranges(UOp sink);

}  // namespace tg
