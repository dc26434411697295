/// \file The choice of tiles for matrix instructions.
#include "tinygrad/codegen/plan/matrix_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tinygrad/codegen/opt/fragments.h"
#include "tinygrad/codegen/opt/tensor_core_product.h"
#include "tinygrad/codegen/scratch/boxes.h"
#include "tinygrad/codegen/scratch/lower_stage.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr int64_t kAddresses = 48;        // registers of a thread that hold no elements of matrices
constexpr int64_t kMostThreads = 256;     // of a group
constexpr int64_t kMostWords = 32;        // of the sum, in the memory of a group
constexpr int64_t kMostWritten = 16;      // of multiply-adds, which are written out: a compiler takes a second for them
constexpr double kWorthCompiling = 1e11;  // multiply-adds of a product from which twice as many pay
constexpr int64_t kWordBytes = 4;         // of a register of a factor
constexpr int64_t kOfSystem = 1024;       // bytes of a unit's shared memory that no group has
constexpr double kTurn = 60;              // instructions of a warp for an iteration: addresses, loop, barriers
constexpr double kWait = 60;              // clocks that a group waits in an iteration, for barriers and memory
constexpr double kMeet = 300;             // until a group of a cluster knows what another one has read
constexpr double kInTurn = 0.1;           // part of what is not the longest that does not overlap with it
constexpr double kLaunch = 3000;          // clocks until the first group runs
constexpr double kLoaded = 4;             // registers of factors of multiply-adds that are one load
constexpr double kRepeated = 2;  // reads of what several threads have in common take twice the time of their bytes

int64_t parts(int64_t n, int64_t each) { return (n + each - 1) / each; }

/// The tiles that are tried, for any product.
template <class F> void for_each_tile(const TensorCore& core, F&& f) {
  for (const auto& [m, n] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}})
    for (int64_t rows : {1, 2, 4, 8})
      for (int64_t columns : {1, 2, 4, 8})
        for (int64_t steps : {1, 2, 4, 8})
          if (steps * core.words() <= kMostWords && m * n * core.threads <= kMostThreads &&
              (!core.reads_memory() || steps * core.words() * kWordBytes % kMatrixRow == 0))
            f(MatrixTile{{m, n}, {rows, columns}, steps});
}
}  // namespace

namespace {
/// What a step reads of a and b: bytes of shared memory, and instructions of a warp that bring them to registers.
struct Operands {
  double bytes = 0, loads = 0;
};
Operands operands_of(const TensorCore& core, const MatrixTile& tile) {
  const auto tiles = static_cast<double>(tile.tiles[0] * tile.tiles[1]);
  if (core.reads_memory()) return {tiles * (core.m + core.n) * core.words() * kWordBytes, 0};
  if (core.multiply_adds())
    return {kRepeated * static_cast<double>((tile.tiles[0] * core.m + tile.tiles[1] * core.n) * core.k) * kWordBytes,
            static_cast<double>(tile.tiles[0] * fragment_registers(core.layout[0]) +
                                tile.tiles[1] * fragment_registers(core.layout[1])) /
                kLoaded};
  const auto loads = static_cast<double>(tile.tiles[0] * fragment_registers(core.layout[0]) +
                                         tile.tiles[1] * fragment_registers(core.layout[1]));
  return {loads * core.threads * kWordBytes, loads};
}
}  // namespace

MatrixCost matrix_cost(const TensorCore& core, const MatrixTile& tile, const MatrixShape& shape, const GpuFigures& gpu,
                       double memory_bytes) {
  MatrixCost c;
  int64_t registers[3];
  for (size_t i = 0; i < 3; i++) registers[i] = fragment_registers(core.layout[i]);
  const int64_t tiles = tile.tiles[0] * tile.tiles[1], teams = tile.warps[0] * tile.warps[1];
  // Factors that are converted take two registers beside each of their own: of all steps, as compilers begin early.
  const int64_t factors = tile.tiles[0] * registers[0] + tile.tiles[1] * registers[1],
                converted = gpu.widens(core) ? 2 * factors : 0;
  c.registers = tiles * registers[2] + factors + converted * tile.steps + kAddresses;
  const int64_t rows = tile.warps[0] * tile.tiles[0] * core.m, columns = tile.warps[1] * tile.tiles[1] * core.n,
                words = tile.steps * core.words();
  // A step is filled, another one read; of what instructions read from memory two are filled, and two are read.
  const int64_t row = core.reads_memory() ? words : panel_row_elements(words, kWordBytes),
                step = (rows + columns) * row * kWordBytes;
  const bool ahead = core.reads_memory() && panel_steps_ahead() * step <= gpu.shared_bytes - kOfSystem;
  c.shared_bytes = (ahead ? panel_steps_ahead() : 2) * step;
  if (c.registers > gpu.registers_each) return c;
  const int64_t threads = teams * core.threads, warps = parts(threads, gpu.warp);
  c.groups_at_once =
      std::min({gpu.shared_bytes / c.shared_bytes, gpu.registers / (c.registers * threads), gpu.warps / warps});
  if (c.groups_at_once < 1) return c;
  const int64_t side[2] = {parts(shape.rows, tile.warps[0] * tile.tiles[0]),
                           parts(shape.columns, tile.warps[1] * tile.tiles[1])};
  const int64_t together = tile.cluster[0] * tile.cluster[1];
  const auto clusters = static_cast<double>(side[0] * side[1] * shape.products / together);
  const auto turns = static_cast<double>(parts(shape.words, words));
  // A unit computes its groups; a last wave that fills a part of the units takes as long as a full one.
  const double own = std::ceil(clusters / static_cast<double>(gpu.units / together));
  const Operands operands = operands_of(core, tile);
  const double products = turns * static_cast<double>(teams * tiles * tile.steps);
  const double steps = turns * static_cast<double>(warps * tile.steps);
  const double panel = turns * static_cast<double>((rows + columns) * words * kWordBytes);
  // Of what groups have in common, each brings a part to all of them.
  const double brought =
      turns * static_cast<double>((rows / tile.cluster[1] + columns / tile.cluster[0]) * words * kWordBytes);
  c.matrix = own * products * gpu.clocks(core);
  c.shared = own * (turns * static_cast<double>(teams * tile.steps) * operands.bytes + panel) / gpu.shared;
  c.l2 = own * brought / gpu.l2;
  const double issued = core.multiply_adds() ? static_cast<double>(core.m * core.n * core.k) / core.threads : 1;
  c.issue = own *
            (steps * (static_cast<double>(tiles) * issued + static_cast<double>(converted) + operands.loads) +
             (tile.boxes ? 0 : panel / (8 * gpu.warp)) + turns * static_cast<double>(warps) * kTurn) /
            gpu.schedulers;
  c.memory = memory_bytes / gpu.memory * gpu.clock;
  // Few warps do not hide what they wait for.
  const double hidden =
      std::min(1.0, static_cast<double>(std::min<int64_t>(c.groups_at_once, static_cast<int64_t>(own)) * warps) /
                        gpu.schedulers);
  const double longest = std::max({c.matrix, c.shared, c.l2, c.issue});
  // Other groups of the unit run while one waits, or products of the step before.
  const double before = ahead ? products / turns * gpu.clocks(core) : 0;
  c.wait = own * turns * std::max(0.0, (together > 1 ? kMeet : kWait) - before) / static_cast<double>(c.groups_at_once);
  c.clocks = (longest + kInTurn * (c.matrix + c.shared + c.l2 + c.issue - longest) + c.wait) / hidden;
  c.clocks = std::max(c.clocks, c.memory) + kLaunch;
  const double all = static_cast<double>(shape.rows * shape.columns * shape.products) *
                     static_cast<double>(parts(shape.words, core.words())) * gpu.clocks(core) / gpu.units;
  c.bound = std::max(all, c.memory);
  return c;
}

namespace {
/// A kernel with the instruction cut out of its axes.
class MatrixPlanner {
 public:
  explicit MatrixPlanner(KernelAxes& kernel) : k_(kernel), f_(kernel.fragment()) {}

  MatrixShape shape() const {
    MatrixShape s{size(f_.rows), size(f_.columns), size(f_.words) * f_.core->words(), 1};
    for (int a = 0; a < static_cast<int>(k_.axes().size()); a++) {
      const KernelAxes::Axis& x = k_.axes()[static_cast<size_t>(a)];
      if (a == f_.rows || a == f_.columns || a == f_.words || x.size == 0) continue;
      if (x.reduce && x.type == AxisType::kReduce) s.words *= x.size;
      if (!x.reduce && x.type == AxisType::kLoop) s.products *= x.size;
    }
    return s;
  }
  /// Returns the bytes of all parameters.
  double memory_bytes() const {
    double bytes = 0;
    for (UOp u : k_.sink().toposort())
      if (u.is(Ops::PARAM) && u.arg<ParamArg>().addrspace == AddrSpace::kGlobal)
        bytes += static_cast<double>(vmax(u.src(0).src(0))) * u.dtype().itemsize();
    return bytes;
  }
  /// Returns the lowest prediction.
  std::optional<std::pair<MatrixTile, double>> best() const {
    std::optional<std::pair<MatrixTile, double>> best;
    const bool boxes = reads_boxes();
    const Target& target = k_.renderer().target();
    const GpuFigures& gpu = gpu_figures(target);
    const MatrixShape s = shape();
    const double bytes = memory_bytes();
    for_each_tile(*f_.core, [&](const MatrixTile& t) {
      const int64_t threads = t.warps[0] * t.warps[1] * f_.core->threads;
      if (size(f_.rows) % (t.warps[0] * t.tiles[0]) || size(f_.columns) % (t.warps[1] * t.tiles[1]) ||
          size(f_.words) % t.steps || threads > target.group_threads || is_too_long(t, s))
        return;
      if (f_.core->reads_memory() && size(f_.words) == t.steps) return;  // no loop that would stage operands
      for (MatrixTile& form : forms_of(t, boxes)) {
        const MatrixCost c = matrix_cost(*f_.core, form, s, gpu, bytes);
        if (!c.groups_at_once || c.shared_bytes > target.shared_bytes) continue;
        if (!best || c.clocks < best->second) best = {form, c.clocks};
      }
    });
    return best;
  }
  /// True for multiply-adds that take longer to compile than they save.
  bool is_too_long(const MatrixTile& t, const MatrixShape& s) const {
    const double tiles = static_cast<double>(s.rows * s.columns) * static_cast<double>(s.products);
    return f_.core->multiply_adds() && t.steps * f_.core->words() > kMostWritten &&
           tiles * f_.core->m * f_.core->n * static_cast<double>(s.words) < kWorthCompiling;
  }
  void apply(const MatrixTile& t) {
    const int axes[2] = {f_.rows, f_.columns};
    for (size_t i = 0; i < 2; i++) {
      if (t.tiles[i] > 1) k_.apply({OptOp::kUpcast, axes[i], t.tiles[i]});
      if (t.warps[i] > 1) k_.apply({OptOp::kLocal, axes[i], t.warps[i]});
    }
    if (t.steps > 1) k_.apply({OptOp::kUnroll, f_.words, t.steps});
    for (size_t i = 0; i < 2; i++)
      if (t.cluster[i] > 1) split_cluster(axes[i], t.cluster[i]);
    const int loop = loop_to_fill_in();
    if (loop < 0) return;  // one step holds everything
    for (int64_t operand = 0; operand < static_cast<int64_t>(stageable(k_.sink()).size()); operand++) try {
        k_.apply({OptOp::kStage, loop, operand});
      } catch (const KernelOptError&) {}  // read from memory, where it does not fit
  }

 private:
  int64_t size(int a) const { return k_.axes()[static_cast<size_t>(a)].size; }
  bool is_padded(int a) const { return k_.origin_of(a).padded; }

  /// True where both operands lie in memory so that a copy engine brings them, in a loop that fills panels some steps
  /// ahead: what lower_stages finds when ranges are final.
  bool reads_boxes() const {
    if (!f_.core->reads_memory() || !copies_boxes(k_.renderer().target()) || is_padded(f_.words)) return false;
    for (int a = 0; a < static_cast<int>(k_.axes().size()); a++)
      if (a != f_.words && k_.axes()[static_cast<size_t>(a)].type == AxisType::kReduce && size(a) != 1) return false;
    const UOps operands = stageable(k_.sink());
    return operands.size() == 2 && std::all_of(operands.begin(), operands.end(), [&](UOp v) {
             const int side = depends_on(v, k_.range(f_.rows)) ? f_.rows : f_.columns;
             if (const auto halves = halves_of(v))
               return !is_padded(side) && rows_of_param(halves->first, halves->step).has_value();
             return v.is(Ops::LOAD) &&
                    rows_of_param(v, AffineIndex(v.src(0).src(1)).coefficient(k_.range(side))).has_value();
           });
  }
  /// Returns the ways in which a tile's operands can come.
  std::vector<MatrixTile> forms_of(const MatrixTile& t, bool boxes) const {
    std::vector<MatrixTile> out{t};
    if (!boxes || size(f_.words) / t.steps < panel_steps_ahead()) return out;
    out[0].boxes = true;
    const int axes[2] = {f_.rows, f_.columns};
    for (size_t i = 0; i < 2; i++) {
      if (size(axes[i]) / (t.warps[i] * t.tiles[i]) % kClusterGroups) continue;
      out.push_back(out[0]);
      out.back().cluster[i] = kClusterGroups;
    }
    return out;
  }
  /// Makes the inner n groups along an axis neighbours in the grid.
  void split_cluster(int axis, int64_t n) {
    const auto inner = static_cast<int>(k_.axes().size());
    if (n == size(axis)) return make_innermost(axis);
    k_.apply({OptOp::kSplit, axis, n});
    make_innermost(inner);
  }
  void make_innermost(int axis) {
    int last = axis;
    for (int a : k_.order())
      if (k_.axes()[static_cast<size_t>(a)].type == AxisType::kLoop && !k_.axes()[static_cast<size_t>(a)].reduce)
        last = a;
    if (last != axis) k_.apply({OptOp::kSwap, axis, last});
  }
  /// Returns the innermost loop of the sum, whose steps panels hold; -1: there is none. Multiply-adds leave the loop
  /// over words outside of others, those over the window of a convolution: what its steps read lies close together, so
  /// it stays in the first cache. For instructions the loop over words is made the innermost one.
  int loop_to_fill_in() {
    int last = -1;
    for (int a : k_.order())
      if (k_.axes()[static_cast<size_t>(a)].type == AxisType::kReduce) last = a;
    if (f_.core->multiply_adds() || last == f_.words) return last;
    if (k_.axes()[static_cast<size_t>(f_.words)].type != AxisType::kReduce) return -1;
    k_.apply({OptOp::kSwap, f_.words, last});
    return f_.words;
  }

  KernelAxes& k_;
  const KernelAxes::Fragment& f_;
};
}  // namespace

bool plan_matrices(KernelAxes& kernel, const CodegenOptions& options) {
  if (options.tensor_cores <= 0 || !kernel.applied().empty()) return false;
  std::optional<KernelAxes> best;
  double least = INFINITY;
  for (const auto& [range, number] :
       tensor_core_choices(kernel.sink(), kernel.renderer(), options.tensor_cores, options.tensor_core)) {
    KernelAxes k = kernel;
    int axis = 0;
    while (k.range(axis) != range) axis++;
    k.apply({OptOp::kTc, axis, number});
    const auto found = MatrixPlanner(k).best();
    if (!found || found->second >= least) continue;
    MatrixPlanner(k).apply(found->first);
    if (k.fragment().core->reads_memory() && k.stages().size() < 2) continue;  // some operand can't be staged
    least = found->second;
    best.emplace(std::move(k));
  }
  if (best) kernel = std::move(*best);
  return best.has_value();
}

}  // namespace tg
