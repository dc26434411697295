/// \file The choice of tiles for attention.
#include "tinygrad/codegen/plan/attention_tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tinygrad/codegen/plan/attention_fragments.h"
#include "tinygrad/codegen/plan/attention_parts.h"
#include "tinygrad/codegen/scratch/panel.h"
#include "tinygrad/target/gpu_figures.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kThreads = 128;       // of a group
constexpr int64_t kMostThreads = 256;   // of one whose rows are few, and so are the groups
constexpr int64_t kAcross = 16;         // threads of a row that read adjacent keys and columns
constexpr int64_t kMostRows = 8;        // of a thread
constexpr int64_t kMostKeys = 4;        // of a block, that a thread has
constexpr int64_t kMostHeld = 96;       // scores and sums of a thread, that registers hold
constexpr int64_t kMostProducts = 128;  // the same with matrix instructions, which have fewer other values
constexpr int64_t kMostRead = 8;        // words of an operand for all keys, that threads read one by one
constexpr int64_t kInFlight = 3;        // matrix instructions whose operands are being read
constexpr int64_t kSharedRows = 4;      // of a tile, from which on what they share is worth a place in memory
constexpr int64_t kWarps = 4;           // of a group, with matrix instructions

bool is_plain(UOp u) {
  const UOps order = u.toposort();
  return std::none_of(order.begin(), order.end(), [](UOp v) { return v.in(Ops::REDUCE | Ops::AFTER); });
}
bool reads_memory(UOp u) {
  const UOps order = u.toposort();
  return std::any_of(order.begin(), order.end(), [](UOp v) { return v.is(Ops::LOAD); });
}
/// Returns what a value is widened from, where that is of a type; empty: it is not.
UOp narrow(UOp value, DType type) { return value.is(Ops::CAST) && value.src(0).dtype() == type ? value.src(0) : UOp(); }
int64_t count_of(UOp range) { return static_cast<int64_t>(vmax(range.src(0))); }

/// What the choice depends on.
struct Counts {
  int64_t rows, keys, columns;
  double outer = 1;  // groups for each tile of rows
  Counts(const AttentionForm& f, UOp sink)
      : rows(f.row ? count_of(f.row) : 1), keys(count_of(f.over)), columns(f.column ? constant_size(f.column) : 0) {
    for (UOp r : listed_ranges(sink.src(0)))
      if (r != f.row && r != f.column) outer *= static_cast<double>(count_of(r));
  }
  double groups(const GroupTile& t) const { return outer * static_cast<double>(ceil_div(rows, t.tile())); }
};

/// True where an instruction computes the scores, and their products with the weights.
bool multiplies(const TensorCore& core, const AttentionForm& f) {
  if (!AttentionFragments::fits(core) || f.kind != AttentionForm::kMean || !f.row) return false;
  if (count_of(f.row) < core.m || constant_size(f.column) % core.n || !narrow(f.weight, core.b)) return false;
  const std::vector<AttentionOperand> operands = attention_operands(f, &core);
  const auto known = [&](UOp x, UOp along) {
    return std::any_of(operands.begin(), operands.end(),
                       [&](const AttentionOperand& o) { return o.value == x && o.along == along && o.stored != x; });
  };
  bool any = false;
  for (UOp u : f.score.toposort()) {
    if (!is_score_product(u)) continue;
    const UOp a = u.src(0).src(0), b = u.src(0).src(1);
    const bool both = (known(a, f.row) && known(b, f.over)) || (known(a, f.over) && known(b, f.row));
    if (!both || listed_ranges(u).size() != 1 || !constant_size(u.src(1)) || constant_size(u.src(1)) % core.k)
      return false;
    any = true;
  }
  return any && known(f.weight, f.over);
}
const TensorCore* core_for(const AttentionForm& f, const Renderer& renderer, const CodegenOptions& o) {
  const Target& target = renderer.target();
  if (o.tensor_cores < 2 || o.no_locals) return nullptr;
  for (const TensorCore* core : renderer.tensor_cores()) {
    const auto number = static_cast<int>(core - tensor_core_table().data());
    if ((o.tensor_core < 0 || o.tensor_core == number) && core->threads <= target.group_threads && multiplies(*core, f))
      return core;
  }
  return nullptr;
}

/// Returns the loads of a thread for each product: of scores, and of weighted sums.
double loads_each(const Counts& s, const GroupTile& t) {
  const auto r = static_cast<double>(t.rows_each), k = static_cast<double>(t.keys_each);
  const double c = s.columns ? static_cast<double>(s.columns / t.columns) : k;
  return 1 / r + 1 / k + 1 / r + 1 / c;
}

/// Divides the threads of a group.
GroupTile threads_of(const Counts& s, const Target& target) {
  const GpuFigures& gpu = gpu_figures(target);
  const auto power = [](int64_t n) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); };
  int64_t threads = power(std::min(kThreads, target.group_threads));
  GroupTile t;
  t.columns = std::gcd(std::min(kAcross, threads), s.columns ? s.columns : kAcross);
  t.rows = std::min<int64_t>(threads / t.columns, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.rows))));
  // Few rows: more threads read the keys of each.
  const int64_t most = power(std::min(kMostThreads, target.group_threads));
  while (t.rows * t.columns < threads / 2 && threads * 2 <= most && threads < s.keys &&
         s.outer * static_cast<double>(threads) < gpu.units * static_cast<double>(kMostThreads))
    threads *= 2;
  t.slices = threads / (t.rows * t.columns);
  return t;
}
/// Returns the warps of a group with matrix instructions, at most.
int64_t most_warps(const TensorCore& core, const Counts& s, const Target& target) {
  const auto tiles = static_cast<uint64_t>(ceil_div(s.rows, core.m));
  return std::min(
      {kWarps, static_cast<int64_t>(std::bit_ceil(tiles)), static_cast<int64_t>(target.group_threads / core.threads)});
}
GroupTile threads_of(const TensorCore& core, int64_t warps, const Target& target) {
  GroupTile t;
  t.core = &core;
  t.loads = target.has("matrix_loads") && AttentionFragments::keeps_results(core);
  t.rows = warps * AttentionFragments::row_threads(core);
  t.columns = AttentionFragments::column_threads(core);
  return t;
}
}  // namespace

bool is_score_product(UOp u) { return is_sum_of_products(u) && is_plain(u.src(0)); }

std::vector<AttentionOperand> attention_operands(const AttentionForm& f, const TensorCore* core) {
  std::vector<AttentionOperand> out;
  const auto add = [&](UOp value, std::span<const UOp> own) {
    if (value.dtype().is_weak() || !is_plain(value) || !reads_memory(value)) return;
    if (std::any_of(out.begin(), out.end(), [&](const AttentionOperand& o) { return o.value == value; })) return;
    const bool of_key = depends_on(value, f.over), of_row = f.row && depends_on(value, f.row);
    if (of_key == of_row) return;
    const UOp bits = core ? narrow(value, core->a) : UOp();
    AttentionOperand o{value, bits ? bits.bitcast(dtypes::uint16) : value, of_key ? f.over : f.row};
    for (UOp r : own) {
      if (!depends_on(value, r)) continue;
      if (!constant_size(r)) return;
      o.dims.push_back(r);
      o.each *= constant_size(r);
    }
    const auto step = [&](UOp r) {
      const int64_t k = stride_along(value, r);
      return k < 0 ? INT64_MAX : k;
    };
    std::stable_sort(o.dims.begin(), o.dims.end(), [&](UOp a, UOp b) { return step(a) > step(b); });
    out.push_back(o);
  };
  for (UOp u : score_of(f).toposort())
    if (is_score_product(u))
      for (UOp x : u.src(0).srcs()) add(x, listed_ranges(u));
  if (f.weight) add(f.weight, UOps{f.column});
  return out;
}

/// With matrix instructions they are two 16-bit numbers each.
int64_t probability_bytes(const AttentionForm& f, const GroupTile& t) {
  return f.column && !t.loads ? t.tile() * probability_stride(t) * dtypes::float32.itemsize() : 0;
}
int64_t panel_bytes(const AttentionOperand& o, const AttentionForm& f, const GroupTile& t) {
  const bool of_keys = o.along == f.over;
  if (of_keys && t.tile() < kSharedRows) return 0;
  return (of_keys ? t.block() : t.tile()) * o.stride() * o.stored.dtype().itemsize();
}
int64_t shared_budget(const Target& target) {
  return std::min(target.shared_bytes, gpu_figures(target).shared_bytes / 2);
}

namespace {
/// What a tile may have at most: rows and keys of a thread, and numbers it holds in registers.
struct TileLimits {
  int64_t rows_step, keys_step, rows, keys, held;
};

/// Tries how many rows and keys a thread has.
class TileSearch {
 public:
  TileSearch(const AttentionForm& f, const Counts& s, const Target& target, const GroupTile& threads)
      : f_(f), s_(s), target_(target), threads_(threads), operands_(attention_operands(f, threads.core)) {}
  /// Returns the tile with the fewest loads for each product; with matrix instructions, none where no tile fits.
  GroupTile best(const TileLimits& most) const {
    GroupTile best;
    double least = INFINITY;
    for (int64_t r = most.rows_step; r <= most.rows && (r == most.rows_step || threads_.rows * r / 2 < s_.rows); r *= 2)
      for (int64_t k = most.keys_step; k <= most.keys; k *= 2) {
        GroupTile g = threads_;
        g.rows_each = r;
        g.keys_each = k;
        if (!is_possible(g, most) || loads_each(s_, g) >= least) continue;
        least = loads_each(s_, g);
        best = g;
      }
    return best;
  }

 private:
  bool is_possible(const GroupTile& g, const TileLimits& most) const {
    const bool more_rows = g.rows_each > most.rows_step, more_keys = g.keys_each > most.keys_step;
    if (more_rows && s_.groups(g) < gpu_figures(target_).units) return false;
    if (more_keys && g.block() / 2 >= s_.keys) return false;
    return (held(g) <= most.held && bytes(g) <= shared_budget(target_)) || (!g.core && !more_rows && !more_keys);
  }
  /// Scores and sums; the queries that matrix instructions multiply stay in registers, too.
  int64_t held(const GroupTile& g) const {
    const int64_t scores = static_cast<int64_t>(std::max<size_t>(f_.sums.size(), 1)) * g.keys_each;
    int64_t queries = 0;
    for (const AttentionOperand& o : operands_)
      if (g.loads && o.along == f_.row) queries += o.each / (g.core->pack * g.columns);
    return g.rows_each * (scores + s_.columns / g.columns + queries) + in_flight(g);
  }
  /// Elements that threads read one by one are in flight for some instructions.
  static int64_t in_flight(const GroupTile& g) {
    if (!g.core || g.loads) return 0;
    return kInFlight * (g.rows_each / AttentionFragments::rows_each(*g.core) * fragment_registers(g.core->layout[0]) +
                        fragment_registers(g.core->layout[1]));
  }
  int64_t bytes(const GroupTile& g) const {
    int64_t n = probability_bytes(f_, g);
    for (const AttentionOperand& o : operands_) n += panel_bytes(o, f_, g);
    return n;
  }

  const AttentionForm& f_;
  const Counts& s_;
  const Target& target_;
  const GroupTile& threads_;
  std::vector<AttentionOperand> operands_;
};
}  // namespace

GroupTile choose_group_tile(const AttentionForm& f, UOp sink, const Renderer& renderer, const CodegenOptions& options) {
  const Target& target = renderer.target();
  const Counts s(f, sink);
  if (const TensorCore* core = core_for(f, renderer, options)) {
    const int64_t rows = AttentionFragments::rows_each(*core), steps = std::max(core->k / core->n, 1),
                  keys = AttentionFragments::columns_each(*core) * steps;
    // With fewer warps its operands may fit; otherwise it is not used.
    for (int64_t warps = most_warps(*core, s, target); warps > 0; warps /= 2) {
      const GroupTile own = threads_of(*core, warps, target);
      const int64_t more =
          own.loads ? kMostKeys : std::clamp<int64_t>(kMostRead / fragment_registers(core->layout[1]), 1, kMostKeys);
      const TileLimits most{rows, keys, 2 * rows, more * keys, kMostProducts};
      if (const GroupTile t = TileSearch(f, s, target, own).best(most); t.core) return t;
    }
  }
  const GroupTile threads = options.no_locals ? GroupTile{} : threads_of(s, target);
  return TileSearch(f, s, target, threads).best({1, 1, kMostRows, kMostKeys, kMostHeld});
}

}  // namespace tg
