/// \file Plans of kernels on targets with workgroups.
#include "tinygrad/codegen/plan/grid_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tinygrad/codegen/plan/grid_accesses.h"
#include "tinygrad/codegen/plan/grid_cost.h"
#include "tinygrad/codegen/plan/image_plan.h"
#include "tinygrad/codegen/plan/matrix_plan.h"
#include "tinygrad/codegen/plan/packed_grid_plan.h"
#include "tinygrad/codegen/plan/row_plan.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/target/gpu_figures.h"

namespace tg {
namespace {
constexpr int64_t kGroup = 256;          // threads that hide each other's waiting
constexpr int64_t kAdjacent = 32;        // threads that read memory together
constexpr double kFewOutputs = 1 << 14;  // results with a thread each are too few for a device
constexpr int64_t kLeastGroup = 16;      // elements of a sum that a group shares
constexpr double kBetter = 0.98;         // of the time of the plan that is tried first, to be taken in its place
constexpr int64_t kOwnRegisters = 20;    // of a thread, for addresses
constexpr double kOwnInstructions = 12;  // of a thread, for its place in the grid
constexpr double kShuffles = 15;         // instructions by which a warp adds up
constexpr int64_t kSide = 16;            // threads of a group along each side of a tile
constexpr int64_t kPadded = 16;          // runs of a group, from which on an axis is padded to whole ones
constexpr int64_t kSteps = 16;           // of a sum, between two fills of the group's memory

/// A tile of an output axis: threads of a group, results of each.
struct Tile {
  int64_t threads = 1, each = 1;
  int64_t size() const { return threads * each; }
};

class GridPlanner {
 public:
  explicit GridPlanner(KernelAxes& kernel)
      : k_(kernel), count_(static_cast<int>(kernel.axes().size())), accesses_(kernel) {}
  void run();

 private:
  /// The axes of a product: one of each operand's own, and one of the sum.
  struct Product {
    int rows, columns, sum;
    size_t operands[2];
  };
  const KernelAxes::Axis& axis(int a) const { return k_.axes()[static_cast<size_t>(a)]; }
  bool is_output(int a) const { return !axis(a).reduce && !axis(a).ordered && axis(a).size > 1; }
  double adjacent(int a) const { return accesses_.adjacent(k_.range(a)); }
  int64_t run_of(int a) const { return accesses_.run_of(k_.range(a)); }
  void read_runs(int a, OptOp op, int64_t threads);
  int longest(bool reduce) const;
  std::optional<Product> find_product() const;
  Tile best_tile(int64_t size, int64_t most_threads) const;
  bool plan_product();
  bool plan_shared_sums();
  bool plan_warp_sums(int a, int outer, int64_t most);
  void share_further_axes(int64_t most);
  void share_sums_of_pixels();
  void plan_threads();
  void unroll_sum();
  void split_off(OptOp op, int a, int64_t n);
  void measure();
  GridLoad load_of(int64_t threads, int64_t elements, int64_t run) const;
  std::pair<int64_t, int64_t> best_threads(int64_t most, int64_t run) const;
  int64_t best_team(int64_t terms, int64_t run, int64_t most) const;
  int64_t divisor(int a, int64_t most) const;

  KernelAxes& k_;
  const int count_;  // axes of the kernel; what is split off comes behind them
  const GridAccesses accesses_;
  double outputs_ = 1, terms_ = 1;            // results, and what each of them sums over
  double memory_bytes_ = 0, operations_ = 1;  // of all parameters; of a term
  int64_t threads_ = 1;
  bool pixels_ = false;  // threads have whole pixels
};

/// Gives each thread adjacent elements of an axis that `threads` share, as far as that leaves whole runs.
void GridPlanner::read_runs(int a, OptOp op, int64_t threads) {
  const int64_t n = run_of(a), together = n * threads;
  if (n < 2 || axis(a).size < together) return;
  int64_t shared = std::min(threads, axis(a).size / n);
  while (shared > 1 && axis(a).size % (n * shared)) shared--;
  if (axis(a).size % n || shared < std::min(threads, kAdjacent / 2)) {
    // Few elements in vain: the threads of the last group begin earlier.
    if (axis(a).size < kPadded * together) return;
    k_.apply({OptOp::kPadTo, a, together});
  }
  split_off(op, a, n);
}

/// Returns the axis along which most accesses are adjacent, the longest of them; -1: none is left.
int GridPlanner::longest(bool reduce) const {
  int best = -1;
  auto key = [&](int a) { return std::pair(adjacent(a), axis(a).size); };
  for (int a = 0; a < count_; a++) {
    const bool is_free = reduce ? axis(a).type == AxisType::kReduce && axis(a).size > 1
                                : axis(a).type == AxisType::kLoop && is_output(a);
    if (is_free && (best < 0 || key(a) > key(best))) best = a;
  }
  return best;
}

/// Returns the largest part of an axis, up to `most`, that divides it.
int64_t GridPlanner::divisor(int a, int64_t most) const {
  for (int64_t n = std::min(most, axis(a).size); n > 1; n--)
    if (axis(a).size % n == 0) return n;
  return 1;
}

void GridPlanner::split_off(OptOp op, int a, int64_t n) {
  if (n <= 1) return;
  k_.apply({op, a, n});
  if (op == OptOp::kLocal || op == OptOp::kGroup) threads_ *= n;
}

/// Returns the tile that computes least in vain, and of those the one with most results of a thread.
Tile GridPlanner::best_tile(int64_t size, int64_t most_threads) const {
  Tile best;
  double least = INFINITY;
  for (int64_t threads : {most_threads, most_threads / 2, most_threads / 4})
    for (int64_t each : {4, 2, 7, 5, 3, 1}) {
      const Tile t{std::max<int64_t>(threads, 1), each};
      const double computed = static_cast<double>((size + t.size() - 1) / t.size() * t.size());
      // Of each result in a thread, operands are read 1 / each times.
      const double cost = computed / static_cast<double>(size) * (1 + 1.0 / static_cast<double>(each)) *
                          (1 + 0.25 / static_cast<double>(t.threads));
      if (cost < least) {
        least = cost;
        best = t;
      }
    }
  return best;
}

std::optional<GridPlanner::Product> GridPlanner::find_product() const {
  const UOps values = stageable(k_.sink());
  for (size_t i = 0; i < values.size(); i++)
    for (size_t j = i + 1; j < values.size(); j++) {
      int own[2] = {-1, -1}, sum = -1;
      for (int a = 0; a < count_; a++) {
        const bool in[2] = {depends_on(values[i], k_.range(a)), depends_on(values[j], k_.range(a))};
        auto take = [&](int& to) {
          if (to < 0 || axis(a).size > axis(to).size) to = a;
        };
        if (axis(a).reduce && in[0] && in[1]) take(sum);
        else if (is_output(a) && in[0] != in[1]) take(own[in[1]]);
      }
      if (own[0] < 0 || own[1] < 0 || sum < 0 || axis(sum).size < 4) continue;
      if (axis(own[0]).size < 8 || axis(own[1]).size < 8) continue;
      return Product{std::min(own[0], own[1]), std::max(own[0], own[1]), sum, {i, j}};
    }
  return std::nullopt;
}

/// Tiles two axes, so that each element of an operand in the group's memory is used by as many threads as a tile is
/// wide.
bool GridPlanner::plan_product() {
  const std::optional<Product> p = find_product();
  if (!p) return false;
  const int64_t side = std::min<int64_t>(kSide, std::llround(std::sqrt(k_.renderer().target().group_threads)));
  for (int a : {p->rows, p->columns}) {
    const Tile t = best_tile(axis(a).size, side);
    if (axis(a).size % t.size()) k_.apply({OptOp::kPadTo, a, t.size()});
    split_off(OptOp::kLocal, a, t.threads);
    split_off(OptOp::kUpcast, a, t.each);
  }
  const int64_t steps = divisor(p->sum, kSteps);
  if (steps < 4) {
    unroll_sum();
    return true;
  }
  if (steps < axis(p->sum).size) k_.apply({OptOp::kSplit, p->sum, steps});
  for (size_t operand : p->operands) try {
      k_.apply({OptOp::kStage, p->sum, static_cast<int64_t>(operand)});
    } catch (const KernelOptError&) {}  // read from memory, where it does not fit
  return true;
}

/// Lets the threads of a group share a sum. All of them read its parts in the end, so a group has about as many as each
/// thread has elements.
bool GridPlanner::plan_shared_sums() {
  const int a = longest(true);
  const int64_t all = k_.renderer().target().group_threads;
  if (a < 0 || axis(a).size < kLeastGroup || all < kLeastGroup) return false;
  const int outer = longest(false);
  const bool across = outer >= 0 && adjacent(outer) > adjacent(a);  // columns: neighbours have a result each
  const bool shuffles = !across && k_.renderer().target().has("shuffles");
  if (outputs_ > kFewOutputs && !(shuffles && adjacent(a))) return false;
  if (across) {
    const int64_t neighbours = std::min(kAdjacent, all / 4);
    const double groups = outputs_ / static_cast<double>(neighbours * run_of(outer));
    if (groups >= gpu_figures(k_.renderer().target()).units) read_runs(outer, OptOp::kUpcast, neighbours);
    if (axis(outer).type == AxisType::kLoop) split_off(OptOp::kLocal, outer, divisor(outer, neighbours));
  }
  const int64_t most = std::min(kGroup, all) / threads_;
  // Few groups: each takes as many threads as there may be, where that saves time.
  if (shuffles)
    return plan_warp_sums(a, outer, outputs_ < gpu_figures(k_.renderer().target()).units ? all / threads_ : most);
  const auto wanted = static_cast<int64_t>(std::exp2(std::ceil(std::log2(std::sqrt(axis(a).size)))));
  const int64_t n = std::clamp<int64_t>(wanted, 4, std::max<int64_t>(most, 4));
  int64_t part = divisor(a, n);
  if (part < n / 2) k_.apply({OptOp::kPadTo, a, part = n});
  split_off(OptOp::kGroup, a, part);
  return true;
}

/// Finds out what the model needs to know of the kernel.
void GridPlanner::measure() {
  for (const KernelAxes::Axis& x : k_.axes()) (x.reduce ? terms_ : outputs_) *= static_cast<double>(x.size);
  for (UOp u : k_.sink().toposort()) {
    if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal)
      memory_bytes_ += static_cast<double>(vmax(u.src(0).src(0))) * u.dtype().itemsize();
    if (u.in(groups::kElementwise) && !u.dtype().is_weak()) operations_++;
  }
}

/// Returns what groups of `threads` ask of the GPU, whose threads have so many elements each, `run` at a time.
GridLoad GridPlanner::load_of(int64_t threads, int64_t elements, int64_t run) const {
  const auto n = static_cast<double>(elements), of_access = static_cast<double>(accesses_.count());
  GridLoad l;
  l.threads = threads;
  l.bytes = memory_bytes_;
  l.in_flight = accesses_.bytes_each() * static_cast<double>(run);
  l.registers = kOwnRegisters + static_cast<int64_t>(static_cast<double>(run) * (of_access + 1));
  l.instructions = kOwnInstructions + n * (operations_ + of_access / static_cast<double>(run));
  return l;
}

/// Returns the threads of a group, `most` at most, and the adjacent elements of a thread that take the least time: more
/// of either keep memory busy, fewer leave no processor without work.
std::pair<int64_t, int64_t> GridPlanner::best_threads(int64_t most, int64_t run) const {
  std::pair<int64_t, int64_t> best{most, 1};
  double least = INFINITY;
  const auto terms = static_cast<int64_t>(terms_);
  for (const int64_t threads : {int64_t{128}, int64_t{256}, int64_t{64}, int64_t{32}})
    for (const int64_t n : {run, int64_t{1}}) {
      if (threads > most) continue;
      GridLoad l = load_of(threads, n * terms, n);
      l.groups = std::max<int64_t>(static_cast<int64_t>(outputs_) / (threads * n), 1);
      const GridCost c = grid_cost(l, gpu_figures(k_.renderer().target()));
      if (!c.groups_at_once || c.clocks >= kBetter * least) continue;
      least = c.clocks;
      best = {threads, n};
    }
  return best;
}

/// Returns the threads that share a sum, from a warp to `most`, by the time that takes.
int64_t GridPlanner::best_team(int64_t terms, int64_t run, int64_t most) const {
  const GpuFigures& gpu = gpu_figures(k_.renderer().target());
  int64_t best = std::min<int64_t>(gpu.warp, most);
  double least = INFINITY;
  for (int64_t threads = best; threads <= most; threads *= 2) {
    if (threads > best && threads * run > terms) break;
    const int64_t each = (terms + threads - 1) / threads;
    GridLoad l = load_of(threads, each * static_cast<int64_t>(std::max(terms_ / static_cast<double>(terms), 1.0)), run);
    l.groups = static_cast<int64_t>(outputs_);
    l.instructions += kShuffles;
    l.barriers = threads > gpu.warp;
    l.shared_bytes = threads > gpu.warp ? threads / gpu.warp * 4 : 0;
    const GridCost c = grid_cost(l, gpu);
    if (!c.groups_at_once || c.clocks >= kBetter * least) continue;
    least = c.clocks;
    best = threads;
  }
  return best;
}

/// Lets whole warps share a sum over axis `a`, as many of them as take least time.
bool GridPlanner::plan_warp_sums(int a, int outer, int64_t most) {
  const int64_t warp = gpu_figures(k_.renderer().target()).warp;
  int64_t threads = best_team(axis(a).size, run_of(a), most);
  while (threads > 2 && threads > axis(a).size) threads /= 2;
  // Adjacent elements of a thread at once, where each thread still has some.
  const int64_t run = run_of(a), together = run * threads;
  const bool runs = run > 1 && axis(a).size >= together;
  if (axis(a).size % (runs ? together : threads)) k_.apply({OptOp::kPadTo, a, runs ? together : threads});
  if (runs) split_off(OptOp::kUnroll, a, run);
  const int64_t lanes = std::min(warp, threads);
  split_off(OptOp::kGroup, a, lanes);
  split_off(OptOp::kGroup, a, threads / lanes);
  share_further_axes(most);
  // Short sums: a group has several.
  if (outer >= 0 && axis(outer).type == AxisType::kLoop && outputs_ > kFewOutputs / 16)
    split_off(OptOp::kLocal, outer, divisor(outer, most / threads_ / 2));
  return true;
}

/// Lets more warps share the longest axis that is left of a sum, where there are too few results to give every
/// processor some groups: threads along the first axis alone would walk the others one element after another.
void GridPlanner::share_further_axes(int64_t most) {
  const GpuFigures& gpu = gpu_figures(k_.renderer().target());
  if (outputs_ * static_cast<double>(threads_) >= static_cast<double>(gpu.units * gpu.warps * gpu.warp)) return;
  int best = -1;
  for (int a = 0; a < count_; a++)
    if (axis(a).type == AxisType::kReduce && (best < 0 || axis(a).size > axis(best).size)) best = a;
  if (best >= 0 && axis(best).size >= kLeastGroup) split_off(OptOp::kGroup, best, divisor(best, most / threads_));
}

/// Lets some threads share a sum of few results. No axis is padded: pixels are whole.
void GridPlanner::share_sums_of_pixels() {
  const int a = longest(true);
  if (a < 0 || k_.no_locals() || outputs_ > kFewOutputs || axis(a).size < kLeastGroup) return;
  split_off(OptOp::kGroup, a, divisor(a, kLeastGroup));
}

void GridPlanner::unroll_sum() {
  const int a = longest(true);
  if (a >= 0 && axis(a).size > 1) split_off(OptOp::kUnroll, a, divisor(a, 4));
}

/// Puts neighbouring threads along memory, and threads of a group along further axes while it has few.
void GridPlanner::plan_threads() {
  const int along = longest(false);
  const auto [threads, run] =
      best_threads(k_.renderer().target().group_threads, !pixels_ && along >= 0 ? run_of(along) : 1);
  // As many are along memory, and twice as many where other axes are short.
  const int64_t most = std::min(2 * threads, k_.renderer().target().group_threads);
  if (run > 1) read_runs(along, OptOp::kUpcast, threads);
  for (int a = longest(false); a >= 0 && threads_ < most; a = longest(false)) {
    const bool first = threads_ == 1;
    const int64_t limit = first ? std::min(threads, std::max<int64_t>(most / 2, 1)) : most / threads_;
    if (limit < 2) return;
    int64_t n = divisor(a, limit);
    // Sizes that nothing divides: the last threads compute what others do, too.
    if (first && !pixels_ && n < kAdjacent / 2 && axis(a).size > kAdjacent && limit >= kAdjacent)
      k_.apply({OptOp::kPadTo, a, n = kAdjacent});
    if (n <= 1) return;
    split_off(OptOp::kLocal, a, n);
    if (axis(a).type == AxisType::kLoop && axis(a).size > 1) return;  // the grid takes the rest
  }
}

void GridPlanner::run() {
  for (const KernelAxes::Axis& x : k_.axes()) {
    if (x.size == 0) return;  // of a size that is not known
  }
  measure();
  pixels_ = plan_pixels(k_);
  if (pixels_) {
    share_sums_of_pixels();
    return k_.no_locals() ? void() : plan_threads();
  }
  if (k_.no_locals()) return unroll_sum();
  if (plan_rows(k_) || plan_packed_rows(k_) || plan_product()) return;
  const bool shared = plan_shared_sums();
  unroll_sum();
  if (!shared) plan_threads();
}
}  // namespace

void plan_workgroups(KernelAxes& kernel, const CodegenOptions& options) {
  if (kernel.no_locals() || !plan_matrices(kernel, options)) GridPlanner(kernel).run();
}

}  // namespace tg
