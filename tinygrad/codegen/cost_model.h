/// \file The cost model of a CPU kernel: cycles of one core for a choice of lanes, tile, panels and blocks, in closed
/// form.
#pragma once
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "tinygrad/codegen/cache_model.h"
#include "tinygrad/codegen/heuristic.h"

namespace tg {

/// What the score needs of a kernel, in terms of axes.
struct CostModel {
  using Mask = uint64_t;                   // a set of axes
  static constexpr double kSymbolic = 64;  // trips assumed for a loop of unknown length

  struct Alu {
    Mask mask, scope;
    double cost;
    int bytes;
    int operand = -1, window = -1;  // what it is a part of: a stageable operand, one as a window
    double alone = 0;               // more than `cost` where it has no lanes
    size_t place = 0;               // in `places`
    Mask decides = 0;               // reduce axes that, unrolled, leave nothing of it: a choice by place
  };
  struct Access : MemoryWalk {
    bool gated;
    Mask near = 0;  ///< axes as in i / 8: neighbouring lanes share elements
    Mask gate;
    int operand = -1;   ///< the stageable operand it is a part of
    UOp base{};         ///< the buffer
    bool kept = false;  ///< scratch memory of a kept value
    size_t place = 0;
  };
  struct Operand {
    Mask mask, scope;
    int bytes;
    bool usable;
    size_t place = 0;
    std::vector<std::vector<std::pair<size_t, int64_t>>>
        sums{};  // as a window: axes and coefficients; empty: no two axes slide over each other
  };
  struct Reduce {
    Mask value, reduced, scope;
    int bytes;
    bool mul, dot = false;
    size_t place = 0;
  };
  /// What many nodes have in common: the axes they depend on, the loops they are in.
  struct Place {
    Mask mask, scope;
  };
  static constexpr size_t kPlaces = 32;  // more are rare
  std::vector<int64_t> size;             // 0: symbolic
  std::vector<bool> is_reduce;
  std::vector<size_t> natural, by_stride;  // nesting orders: as the axes come; reduce axes by stride
  std::vector<Alu> alu;
  std::vector<Access> accesses;
  std::vector<Reduce> reduces;
  std::vector<Operand> operands;
  std::vector<Place> places;
  Mask stored = 0;              // axes in every store's END
  std::vector<Mask> exclusive;  // sets of axes some value depends on, maximal ones
  bool blocks = false;          // the output can accumulate over blocks of a reduce axis
  int item = 1;                 // widest type that is computed
  double path_bytes;            // width of a vector unit
  double untiled = 0;           // instructions of one instance of everything
  double l1 = 1 << 15, l2 = 1 << 19;
  int registers = 16, vector_bytes = 16;
  bool gather = true;
  bool loads_early = false;  // where few instructions read memory, compilers move loads far ahead of their use
  double mask_cost = 1;      // of a masked load, beside the load

  CostModel(const KernelAxes& kernel, UOp sink, const Renderer& renderer);
  /// Instructions that an elementwise op becomes.
  static double cost_of(UOp u);

  static Mask lane_mask(const Candidate& c) {
    Mask lane = 0;
    for (int a : c.lane_axes) lane |= Mask{1} << a;
    return lane;
  }
  /// Bytes of the longest panel worth its place: shorter ones, and more of them, when the other operand is packed again
  /// for each group of panels.
  double longest_panel(const Candidate& c, Mask lane) const { return packs_again(c, lane) ? l2 / 64 : l2 / 8; }
  /// True when an operand without lanes is packed, too.
  bool packs_again(const Candidate& c, Mask lane) const {
    for (size_t o = 0; o < operands.size(); o++)
      if (c.staged >> o & 1 && !(operands[o].mask & lane)) return true;
    return false;
  }
  double trips(const Candidate& c, size_t axis) const {
    if (size[axis] == 0) return kSymbolic;
    int64_t step = c.tile[axis];
    if (std::find(c.lane_axes.begin(), c.lane_axes.end(), static_cast<int>(axis)) != c.lane_axes.end()) step *= c.lanes;
    return static_cast<double>((size[axis] + step - 1) / step);
  }
  const std::vector<size_t>& nest(const Candidate& c) const { return c.by_stride ? by_stride : natural; }
  /// True when no vector of the access lies across two cache lines.
  bool aligned(const Access& a, const Candidate& c, Mask lane) const;
  /// Loads of one iteration: unrolled steps along axes of one stride (y and ky) slide over each other.
  double distinct(const Access& a, const Candidate& c, Mask lane) const;
  /// Cycles of one vector of an access whose lanes stride over memory: what lies side by side in memory and is unrolled
  /// is a block, transposed in registers; else a gather or a scatter.
  double strided_vector(const Access& a, const Candidate& c, int64_t stride) const;
  /// True when what is unrolled fills the places between the lanes of a store.
  bool interleaved(const Access& a, const Candidate& c, int64_t stride) const;
  /// The same where `columns` vectors lie side by side.
  double transposed_vector(int itemsize, int lanes, int64_t columns, bool store) const;
  /// Cycles the first level cache waits for the second while operands of a reduction are read.
  double refills(const Candidate& c, Mask lane) const;
  /// Predicted cycles of one core; infinite for candidates that are out of the question, and for those that certainly
  /// take `bound` or more.
  double score(const Candidate& c, double bound = std::numeric_limits<double>::infinity()) const;
  static bool is_window(const Candidate& c, int operand) { return operand >= 0 && c.windows >> operand & 1; }
  /// Windows that the lanes walk along; others are broadcast.
  uint32_t lane_windows(const Candidate& c, Mask lane) const {
    uint32_t w = c.windows;
    for (size_t o = 0; o < operands.size(); o++)
      if (!(operands[o].mask & lane)) w &= ~(1u << o);
    return w;
  }
  /// Bytes of a window that covers all steps of the axes in `whole`, and `steps` of one more.
  double window(const Operand& o, const Candidate& c, Mask lane, Mask whole, int axis = -1, int64_t steps = 1) const;
  /// What one filling of broadcast windows serves, when the panels beside them hold the whole reduction.
  struct Cover {
    bool usable = false;
    Mask outer = 0;      ///< output axes of the panels: around all windows, and each of their steps fills those again
    Mask whole = 0;      ///< output axes of which a window holds all steps,
    int rows_axis = -1;  ///< and one more of which it holds some,
    int64_t rows = 1;    ///< as many as this
  };
  Cover cover(const Candidate& c, Mask lane) const;
  /// Elements side by side in a window that covers all steps of the axes in `whole`: of the sum that memory is read
  /// along.
  double window_run(size_t operand, const Candidate& c, Mask lane, Mask whole) const;
  /// Lines of a window without lanes that one step of the reduction reads.
  double step_lines(size_t operand, const Candidate& c) const;
  /// True when memory is read along this sum of a window.
  bool runs_along(size_t operand, const std::vector<std::pair<size_t, int64_t>>& sum) const;
  /// Output axes, those outside first along which windows are filled from far away.
  std::vector<size_t> far_first(const Candidate& c) const;
  /// Output axes whose loops are inside of the window's, so that neighbouring steps share it.
  Mask within(const Candidate& c, Mask lane) const;
  bool is_staged(const Candidate& c, int operand) const { return operand >= 0 && c.staged >> operand & 1; }
  /// Bytes of an operand for one step of the output loops, and how many such panels are kept at once; `blocks` of the
  /// longest reduce loop share them.
  double scratch(const Operand& o, const Candidate& c, Mask lane) const;
  int64_t steps_kept(const Candidate& c, Mask lane) const;
  /// Cycles to fill scratch memory, and of those that wait for memory.
  std::pair<double, double> fill(const Candidate& c, Mask lane) const;
  /// Where staged operands are filled, and the loops around them. False when the panels are too large.
  bool place_stages(Candidate& c, int cores) const;
  /// The same where windows that are broadcast serve several steps.
  void place_covered(Candidate& c, const Cover& covered, Mask lane) const;
  /// Bytes of an operand that one step of the output loops reads; of the axes in `whole`, all steps.
  double panel(const Access& a, const Candidate& c, Mask lane, Mask whole = 0) const;
  double traffic(const Candidate& c, Mask lane, bool in_blocks) const;
  /// True when an earlier pass over the same rows has left them in the cache.
  bool again(const Access& a, const Candidate& c, Mask lane, double total) const;
  /// Bytes of the second level cache that an access can use: strides by powers of two reach few of its sets.
  double capacity(const Access& a, const Candidate& c, Mask lane) const;
  /// Bytes side by side that one step of the output loops reads.
  double unit_run(const Access& a, const Candidate& c, Mask lane) const;
  /// Cycles for what the blocks of a reduction add up in memory.
  double accumulating(const Candidate& c) const;
  /// In how many blocks the reduction should run around the output loops (0: none), and over which axis; `thread` is
  /// the axis that stays outside.
  std::pair<int, int64_t> blocking(const Candidate& c, int thread) const;
  /// Order of the output loops with the least traffic between caches.
  std::vector<int> best_order(const Candidate& c) const;
};

}  // namespace tg
