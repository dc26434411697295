/// \file The cost model of a CPU kernel: cycles of one core for a choice of lanes, tile, panels and blocks, in closed
/// form.
#pragma once
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/cost/cache_model.h"
#include "tinygrad/codegen/cost/candidate.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/target/machine_rates.h"

namespace tg {

/// A kernel in terms of its axes, as far as its speed depends on it, and what a candidate makes of it.
struct CostModel {
  using Mask = uint64_t;                   // a set of axes
  static constexpr double kSymbolic = 64;  // trips assumed for a loop of unknown length
  static constexpr size_t kMaxOperands = Candidate::kMaxOperands;

  /// An elementwise operation.
  struct Alu {
    Mask mask, scope;
    double cost;  ///< instructions
    int bytes;
    int operand = -1, window = -1;  ///< the stageable operand it is a part of; the same as a window
    double scalar_penalty = 0;      ///< instructions more than `cost` where it has no lanes
    size_t domain = 0;              ///< in `domains`
    Mask predicate_axes = 0;        ///< reduce axes that, unrolled, decide the value at compile time
  };
  struct Access : MemoryWalk {
    bool gated;
    Mask shared_lane_axes = 0;  ///< axes as in i / 8: neighbouring lanes share elements
    Mask gate;
    int operand = -1;      ///< the stageable operand it is a part of
    UOp base{};            ///< the buffer
    bool spilled = false;  ///< scratch memory of a reused value
    size_t domain = 0;
  };
  /// Axes and coefficients of a sum that a window slides along.
  using AxisSum = std::vector<std::pair<size_t, int64_t>>;
  struct Operand {
    Mask mask, scope;
    int bytes;
    bool usable;
    size_t domain = 0;
    std::vector<AxisSum> sums{};  ///< as a window; empty: no two axes slide over each other
  };
  struct Reduce {
    Mask value, reduced, scope;
    int bytes;
    bool mul, dot = false;
    size_t domain = 0;
  };
  /// What nodes have in common that run equally often: the axes they depend on, the loops around them.
  struct IterationDomain {
    Mask mask, scope;
  };

  MachineRates rates;
  std::vector<int64_t> size;  // 0: symbolic
  std::vector<bool> is_reduce;
  Mask reduce_axes = 0;
  std::vector<size_t> natural, by_stride;  // nesting orders: as the axes come; reduce axes by stride
  std::vector<Alu> alu;
  std::vector<Access> accesses;
  std::vector<Reduce> reduces;
  std::vector<Operand> operands;
  std::vector<IterationDomain> domains;
  std::vector<Mask> exclusive;  // sets of axes some value depends on, maximal ones
  bool blocks = false;          // the output can accumulate over blocks of a reduce axis
  int item = 1;                 // widest type that is computed
  double unrolled_ops = 0;      // instructions of one instance of everything
  double l1 = 1 << 15, l2 = 1 << 19;
  int registers = 16, vector_bytes = 16;
  int most_lanes = 1;  // of a vector of the widest type
  bool gather = true;

  CostModel(const KernelAxes& kernel, UOp sink, const Renderer& renderer);
  /// Returns the instructions that an elementwise op becomes.
  static double cost_of(UOp u);

  // --- What a candidate makes of the axes.
  static Mask lane_mask(const Candidate& c) {
    Mask lane = 0;
    for (int a : c.lane_axes) lane |= Mask{1} << a;
    return lane;
  }
  static bool is_staged(const Candidate& c, int operand) { return operand >= 0 && c.staged >> operand & 1; }
  static bool is_window(const Candidate& c, int operand) { return operand >= 0 && c.windows >> operand & 1; }
  double trips(const Candidate& c, size_t axis) const {
    if (size[axis] == 0) return kSymbolic;
    int64_t step = c.tile[axis];
    if (contains(c.lane_axes, static_cast<int>(axis))) step *= c.lanes;
    return static_cast<double>((size[axis] + step - 1) / step);
  }
  /// Returns the elements of an axis, with an assumption for symbolic ones.
  double elements(size_t axis) const { return size[axis] ? static_cast<double>(size[axis]) : kSymbolic; }
  /// Returns the elements of an axis that one iteration covers.
  static double step(const Candidate& c, Mask lane, size_t axis) {
    return static_cast<double>(c.tile[axis]) * (lane >> axis & 1 ? c.lanes : 1);
  }
  /// Returns the vector instructions for one vector of elements of `bytes`.
  double vectors(const Candidate& c, int bytes) const { return std::max(1.0, c.lanes * bytes / datapath()); }
  double datapath() const { return rates.datapath_bytes; }
  const std::vector<size_t>& nest(const Candidate& c) const { return c.by_stride ? by_stride : natural; }
  /// Returns the elements from lane to lane of an access; -1: without a stride.
  static int64_t lane_stride(const Access& a, const Candidate& c);

  // --- Cycles (cost_model.cpp, cache_traffic.cpp, pack_cost.cpp).
  /// Predicts the cycles of one core; infinite for candidates that are out of the question, and for those that
  /// certainly take `bound` or more.
  double score(const Candidate& c, double bound = std::numeric_limits<double>::infinity()) const;
  /// Returns where the cycles of a candidate go.
  CostAccount account(const Candidate& c) const;
  /// Returns the cycles of one vector of `columns` adjacent ones, transposed in registers.
  double transposed_vector(int itemsize, int lanes, int64_t columns, bool store) const;
  /// Returns the cycles the first level cache waits for the second while operands of a reduction are read.
  double refills(const Candidate& c, Mask lane) const;
  /// Returns the cycles to move what does not stay in the second level cache.
  double traffic(const Candidate& c, Mask lane, bool in_blocks) const;
  /// Returns the cycles for what the blocks of a reduction add up in memory.
  double accumulating(const Candidate& c) const;
  struct PackCycles {
    double filling = 0;  ///< instructions
    double waiting = 0;  ///< for memory
  };
  /// Returns the cycles to fill scratch memory.
  PackCycles pack_cycles(const Candidate& c, Mask lane) const;

  // --- Bytes (cache_traffic.cpp).
  /// Returns the bytes of an operand that one step of the output loops reads; of the axes in `whole`, all steps.
  double panel(const Access& a, const Candidate& c, Mask lane, Mask whole = 0) const;
  /// Returns the contiguous bytes that one step of the output loops reads.
  double contiguous_bytes(const Access& a, const Candidate& c, Mask lane) const;
  /// Returns the bytes of the second level cache that an access can use: strides by powers of two reach few of its
  /// sets.
  double capacity(const Access& a, const Candidate& c, Mask lane) const;
  /// Returns true when an earlier pass over the same rows has left them in the cache.
  bool is_reread(const Access& a, const Candidate& c, Mask lane, double total) const;

  // --- Panels and windows (scratch_size.cpp).
  /// Returns the bytes of an operand for one step of the output loops.
  double scratch(const Operand& o, const Candidate& c, Mask lane) const;
  /// Returns how many such panels are resident at once.
  int64_t resident_panels(const Candidate& c, Mask lane) const;
  /// Returns the bytes of the longest panel worth its memory: shorter ones, and more of them, when the other operand is
  /// packed again for each group of panels.
  double longest_panel(const Candidate& c, Mask lane) const {
    return l2 * (packs_again(c, lane) ? rates.repacked_panel_share : rates.panel_share);
  }
  /// Returns true when an operand without lanes is packed, too.
  bool packs_again(const Candidate& c, Mask lane) const {
    for (size_t o = 0; o < operands.size(); o++)
      if (c.staged >> o & 1 && !(operands[o].mask & lane)) return true;
    return false;
  }
  /// Returns the windows that the lanes walk along; others are broadcast.
  uint32_t lane_windows(const Candidate& c, Mask lane) const {
    uint32_t w = c.windows;
    for (size_t o = 0; o < operands.size(); o++)
      if (!(operands[o].mask & lane)) w &= ~(1u << o);
    return w;
  }
  /// Returns the bytes of a window that covers all steps of the axes in `whole`, and `steps` of one more.
  double window(const Operand& o, const Candidate& c, Mask lane, Mask whole, int axis = -1, int64_t steps = 1) const;
  /// What one filling of broadcast windows serves, when the other operand's panels hold the whole reduction.
  struct Cover {
    bool usable = false;
    Mask outer = 0;      ///< output axes of the panels: around all windows, and each of their steps fills those again
    Mask whole = 0;      ///< output axes of which a window holds all steps,
    int rows_axis = -1;  ///< and one more of which it holds some,
    int64_t rows = 1;    ///< as many as this
  };
  Cover cover(const Candidate& c, Mask lane) const;
  /// Returns the axes along which windows slide; neighbouring steps share nothing along others.
  Mask sliding_axes(const Candidate& c) const;
  /// Returns the adjacent elements in a window that covers all steps of the axes in `whole`: of the sum that memory is
  /// read along.
  double window_run(size_t operand, const Candidate& c, Mask lane, Mask whole) const;
  /// Returns the lines of a window without lanes that one step of the reduction reads.
  double step_lines(size_t operand, const Candidate& c) const;
  /// Returns true when memory is read along this sum of a window.
  bool runs_along(size_t operand, const AxisSum& sum) const;
  /// Returns the output axes, those outside first along which windows are filled from far away.
  std::vector<size_t> far_first(const Candidate& c) const;
  /// Returns the output axes whose loops are inside of the window's, so that neighbouring steps share it.
  Mask window_inner_axes(const Candidate& c, Mask lane) const;

  // --- Loops (loop_plan.cpp).
  /// Places the filling of staged operands, and the loops around them. False when the panels are too large.
  bool place_stages(Candidate& c, int cores) const;
  /// Returns in how many blocks the reduction should run around the output loops (0: none), and over which axis;
  /// `thread` is the axis that stays outside.
  std::pair<int, int64_t> blocking(const Candidate& c, int thread) const;
  /// Returns the order of the output loops with the least traffic between caches.
  std::vector<int> best_order(const Candidate& c) const;
};

}  // namespace tg
