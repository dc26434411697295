/// \file OptOps: the optimisations of a kernel are splits, types and order of its ranges, nothing else.
///
/// A kernel has a list of axes: first its output ranges, then its reduce ranges, in nesting order. A split keeps the
/// outer part at its position in the list and appends the inner part (kThread with an argument appends the inner part
/// as a LOOP, too), so axis numbers stay valid.
///
/// op         axis           arg
/// kTc        a reduce axis  computes sums of products over it by matrix instruction n of target/tensor_core.h. Comes
///                           first: the axes are then those of the rewritten kernel. Where several threads share an
///                           instruction, the longest axes of rows and of columns, padded, lose what one computes:
///                           LOCAL axes are its threads, UPCAST axes their registers, and an UNROLL axis what it sums
/// kPacked4   a reduce axis  computes sums of products over it by dot products of 4-bit values
///                           (codegen/opt/packed4.h): the axis walks bytes that hold two values each, four bytes become
///                           a lane. Comes first, as kTc does
/// kUpcast    an output axis its inner n become UPCAST; 0: all of it
/// kUnroll    a reduce axis  its inner n become UNROLL; 0: all of it
/// kVector    any axis       its inner n become the lanes; several axes may share them when no value depends on two
/// kLocal     an output axis its inner n become LOCAL; 0: all of it
/// kThread    an output axis its outer n become THREAD, the outermost loop; 0: all of it
/// kGroup     any axis       its inner n become GROUP_REDUCE, threads of the group; 0: all. Axes of which no value
///                           depends on two share the threads, where n is the same: so a reduce and what reads its
///                           result are at the same elements in the same thread. Nothing of an output axis with one is
///                           in the grid: the rest are loops of each thread. With n = 1 all of it is
/// kGroupTop  a reduce axis  its outer n become GROUP_REDUCE. On a target without workgroups they become a loop around
///                           all output loops, and what is stored accumulates in memory: every block of the operands
///                           is used for all outputs while it is in the cache
/// kNoLocals                 no workgroups
/// kPadTo     any axis       pads the size to a multiple of n; before any split of the axis
/// kSwap      a loop         exchanges its position in the nest with that of loop n
/// kSplit     any axis       its inner n become a loop of their own: a cache block
/// kStage     an output loop computes operand n of stageable(sink) into scratch memory, a panel, once per iteration of
///                           the loop; -1: once, around all loops. After all splits. On a target with workgroups the
///                           loop is one of a reduce, and the memory is the workgroup's
/// kStageWindow              the same for an operand that slides over memory (codegen/scratch/window.h); not on targets
///                           with workgroups
#pragma once
#include <string>
#include <vector>

#include "tinygrad/target/renderer.h"

namespace tg {

/// An Opt that does not fit its kernel or target.
struct KernelOptError : Error {
  using Error::Error;
};

/// Returns the lanes of a vector of elements of `itemsize` bytes: 1 where the language has no vectors.
int lanes_of_items(const Renderer& renderer, int itemsize);

/// A kernel AST with its axes while optimisations are chosen.
class KernelAxes {
 public:
  struct Axis {
    int64_t size = 0;  ///< 0: symbolic
    AxisType type = AxisType::kLoop;
    int origin = 0;        ///< index of the Origin it is a part of
    bool reduce = false;   ///< part of a reduce range
    bool block = false;    ///< a loop of a reduce range around the output loops
    bool ordered = false;  ///< a loop around the output loops in which what one iteration stores a later one reads: it
                           ///< stays as it is
    int dimension = -1;    ///< of the threads of a group, for GROUP_REDUCE: axes of one number share them
  };
  struct Term {
    int axis;
    int64_t coefficient;
  };
  /// A range of the AST: the sum of axis * coefficient over its terms.
  struct Origin {
    UOp range;
    int64_t size = 0;
    bool reduce = false, padded = false;
    std::vector<Term> terms;
    bool walked = false;  ///< by the threads of one group: no part of the grid
  };
  struct Stage {
    UOp value;  ///< of the AST
    int axis;
    bool window = false;
  };
  /// Some consecutive bits of a row, a column or a step of an instruction that threads share.
  struct FragmentPart {
    char letter;  ///< as in FragmentLayout
    int bit, bits, axis;
  };
  /// How an instruction that threads share is cut out of the axes.
  struct Fragment {
    const TensorCore* core = nullptr;                  ///< null: there is none
    int rows = -1, columns = -1, words = -1;           ///< the axes that are left of what it was cut out of
    std::vector<FragmentPart> threads{}, registers{};  ///< of the result, the lowest bits of the number first
    int sum = -1;                                      ///< the UNROLL axis
  };
  KernelAxes(UOp sink, const Renderer& renderer);

  const std::vector<Axis>& axes() const { return axes_; }
  const std::vector<int>& order() const { return order_; }  ///< nesting order of the axes, outermost first
  const std::vector<Origin>& origins() const { return origins_; }
  const std::vector<Stage>& stages() const { return stages_; }
  const Renderer& renderer() const { return *renderer_; }
  const Fragment& fragment() const { return fragment_; }
  /// Returns the AST the axes are those of: the kernel's, or with kTc the one that names the instruction.
  UOp sink() const { return sink_; }
  /// Returns the RANGE of the AST an axis comes from.
  UOp range(int axis) const { return origin_of(axis).range; }
  const Origin& origin_of(int axis) const { return origins_[static_cast<size_t>(at(axis).origin)]; }
  /// True when the kernel stores one reduce as it is, so that kGroupTop can accumulate in what is stored.
  bool can_accumulate() const;
  /// True when `axis` is a loop at or around the loop `at`: what is staged there is computed again in each of its
  /// iterations.
  bool is_around(int axis, int at) const;
  /// Throws KernelOptError and changes nothing when the opt does not fit.
  void apply(const Opt& opt);
  const Opts& applied() const { return applied_; }
  bool no_locals() const { return no_locals_; }
  /// Returns the bytes of scratch memory that operand `value` takes when it is staged at the loop `axis`; 0: it can't
  /// be.
  int64_t scratch_bytes(UOp value, int axis, bool window = false) const;

 private:
  void find_axes();
  int split(int axis, int64_t inner, AxisType type, bool outer_gets_type = false);
  // One function for each kind of OptOp; they call fail() or need() before they change anything.
  void apply_tensor_core(const Opt& opt);
  void cut_fragment(const Opt& opt, const TensorCore& core);
  void split_fragment(Fragment& f);
  int own_axis(UOp factor, UOp other) const;
  void pad(int axis, int64_t multiple);
  void apply_unrolled(const Opt& opt);
  void apply_vector(const Opt& opt);
  void apply_local(const Opt& opt);
  void apply_thread(const Opt& opt);
  void apply_group(const Opt& opt);
  int free_dimension(const Opt& opt, int64_t n) const;
  bool has_dimension(int dimension) const;
  void apply_block(const Opt& opt);
  void apply_split(const Opt& opt);
  void apply_pad(const Opt& opt);
  void apply_swap(const Opt& opt);
  void apply_stage(const Opt& opt);

  [[noreturn]] static void fail(const Opt& opt, const std::string& why);
  static void need(bool condition, const Opt& opt, const char* why) {
    if (!condition) fail(opt, why);
  }
  /// Returns the size an opt asks for, which has to divide that of its axis; 0 stands for all of it.
  int64_t part_of_axis(const Opt& opt) const;
  /// Gives the inner `n` of an axis a type.
  void retype(int axis, int64_t n, AxisType type);
  /// Throws where the target has no groups, or none of so many threads.
  void need_threads(const Opt& opt) const;
  void check_lanes(const Opt& opt, int64_t lanes) const;
  const Axis& at(int axis) const { return axes_[static_cast<size_t>(axis)]; }
  Axis& at(int axis) { return axes_[static_cast<size_t>(axis)]; }
  bool is_output_loop(int axis) const;
  bool is_reduce_loop(int axis) const { return at(axis).type == AxisType::kReduce; }
  int64_t window_bytes(UOp value, int axis) const;

  UOp sink_;
  const Renderer* renderer_;
  std::vector<Axis> axes_;
  std::vector<int> order_;
  std::vector<Origin> origins_;
  Opts applied_;
  std::vector<Stage> stages_;
  Fragment fragment_;
  bool no_locals_ = false;
};

}  // namespace tg
