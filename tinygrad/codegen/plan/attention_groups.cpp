/// \file The loops of attention by groups of threads.
#include "tinygrad/codegen/plan/attention_groups.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/plan/attention_parts.h"
#include "tinygrad/codegen/scratch/panel.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/target/gpu_figures.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kThreads = 128;      // of a group
constexpr int64_t kMostThreads = 512;  // of one whose rows are few, and so are the groups
constexpr int64_t kAcross = 16;        // threads of a row that read adjacent keys and columns
constexpr int64_t kMostRows = 8;       // of a thread
constexpr int64_t kMostKeys = 4;       // of a block, that a thread has
constexpr int64_t kMostHeld = 96;      // scores and sums of a thread, that registers hold
constexpr int64_t kRun = 4;            // elements that a thread reads side by side
constexpr int64_t kSharedRows = 4;     // rows of a tile, from which on what they share is worth a place in memory
constexpr int64_t kTurns = 8;          // of a thread that fills a panel: that many loads are in flight together

/// An operand of a score, or the weights: elements along rows or keys, and along its other ranges.
struct Operand {
  UOp value, along;  // along: f.row or f.over
  UOps dims;         // its other ranges inside of the kernel's; the last one walks memory in the smallest steps
  int64_t each = 1;  // elements of a row or key
  int64_t stride() const { return (each + kRun - 1) / kRun * kRun + kRun; }
};

bool is_plain(UOp u) {
  const UOps order = u.toposort();
  return std::none_of(order.begin(), order.end(), [](UOp v) { return v.in(Ops::REDUCE | Ops::AFTER); });
}
bool reads_memory(UOp u) {
  const UOps order = u.toposort();
  return std::any_of(order.begin(), order.end(), [](UOp v) { return v.is(Ops::LOAD); });
}
/// Returns the value of a form that threads compute for each row and key.
UOp score_of(const AttentionForm& f) { return f.kind == AttentionForm::kProduct ? f.factor : f.score; }

/// Returns the operands that several threads read: what of the scores' products depends on rows or on keys alone, and
/// the weights.
std::vector<Operand> operands_of(const AttentionForm& f) {
  std::vector<Operand> out;
  const auto add = [&](UOp value, std::span<const UOp> own) {
    if (value.dtype().is_weak() || !is_plain(value) || !reads_memory(value)) return;
    if (std::any_of(out.begin(), out.end(), [&](const Operand& o) { return o.value == value; })) return;
    const bool of_key = depends_on(value, f.over), of_row = f.row && depends_on(value, f.row);
    if (of_key == of_row) return;
    Operand o{value, of_key ? f.over : f.row, {}};
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
    if (is_sum_of_products(u))
      for (UOp x : u.src(0).srcs()) add(x, listed_ranges(u));
  if (f.weight) add(f.weight, UOps{f.column});
  return out;
}
int64_t panel_bytes(const Operand& o, const AttentionForm& f, const GroupTile& t) {
  return (o.along == f.over ? t.block() : t.tile()) * o.stride() * o.value.dtype().itemsize();
}
int64_t probability_stride(const GroupTile& t) { return t.block() + kRun; }
int64_t probability_bytes(const AttentionForm& f, const GroupTile& t) {
  return f.column ? t.tile() * probability_stride(t) * 4 : 0;
}
int64_t shared_budget(const Target& target) {
  return std::min(target.shared_bytes, gpu_figures(target).shared_bytes / 2);
}
/// True for operands that several rows read, or several blocks.
bool is_shared(const Operand& o, const AttentionForm& f, const GroupTile& t) {
  return o.along != f.over || t.tile() >= kSharedRows;
}
/// Returns the loads of a thread for each product: of scores, and of weighted sums.
double loads_each(const AttentionForm& f, const GroupTile& t) {
  const auto r = static_cast<double>(t.rows_each), k = static_cast<double>(t.keys_each);
  const double c = f.column ? static_cast<double>(constant_size(f.column) / t.columns) : k;
  return 1 / r + 1 / k + 1 / r + 1 / c;
}
}  // namespace

GroupTile choose_group_tile(const AttentionForm& f, UOp sink, const Target& target, bool one_thread) {
  const GpuFigures& gpu = gpu_figures(target);
  const int64_t rows = f.row ? static_cast<int64_t>(vmax(f.row.src(0))) : 1;
  const int64_t columns = f.column ? constant_size(f.column) : kAcross;
  double outer = 1;  // groups for each tile of rows
  for (UOp r : listed_ranges(sink.src(0)))
    if (r != f.row && r != f.column) outer *= static_cast<double>(vmax(r.src(0)));
  const auto keys = static_cast<int64_t>(vmax(f.over.src(0)));
  GroupTile t;
  if (!one_thread) {
    const auto power = [](int64_t n) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); };
    int64_t threads = power(std::min(kThreads, target.group_threads));
    t.columns = std::gcd(std::min(kAcross, threads), columns);
    t.rows = std::min<int64_t>(threads / t.columns, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
    // Few rows: more threads read the keys of each.
    const int64_t most = power(std::min(kMostThreads, target.group_threads));
    while (t.rows * t.columns < threads / 2 && threads * 2 <= most && threads < keys &&
           outer * static_cast<double>(threads) < gpu.units * static_cast<double>(kMostThreads))
      threads *= 2;
    t.slices = threads / (t.rows * t.columns);
  }
  const std::vector<Operand> operands = operands_of(f);
  const auto bytes = [&](const GroupTile& g) {
    int64_t n = probability_bytes(f, g);
    for (const Operand& o : operands)
      if (is_shared(o, f, g)) n += panel_bytes(o, f, g);
    return n;
  };
  GroupTile best = t;
  double least = INFINITY;
  for (int64_t r = 1; r <= kMostRows && (r == 1 || t.rows * r / 2 < rows); r *= 2)
    for (int64_t k = 1; k <= kMostKeys; k *= 2) {
      GroupTile g = t;
      g.rows_each = r;
      g.keys_each = k;
      const int64_t sums = static_cast<int64_t>(std::max<size_t>(f.sums.size(), 1)) * k + columns / t.columns;
      const double groups = outer * static_cast<double>(ceil_div(rows, g.tile()));
      const bool fits = r * sums <= kMostHeld && bytes(g) <= shared_budget(target);
      if ((r > 1 && groups < gpu.units) || (k > 1 && g.block() / 2 >= keys) || (r * k > 1 && !fits)) continue;
      if (loads_each(f, g) < least) {
        least = loads_each(f, g);
        best = g;
      }
    }
  return best;
}

namespace {
class Groups {
 public:
  Groups(UOp sink, const AttentionForm& f, const Target& target, bool one_thread, KernelContext& names)
      : sink_(sink), f_(f), t_(choose_group_tile(f, sink, target, one_thread)), names_(names) {
    columns_ = f.column ? constant_size(f.column) : 0;
    over_ = f.over.src(0);
    rows_ = f.row ? f.row.src(0) : UOp::constant(int64_t{1});
    tail_ = !over_.is_const() || constant_size(f.over) % t_.block() != 0;
    more_rows_ = !rows_.is_const() || rows_.const_int() % t_.tile() != 0;
    left_ = shared_budget(target) - probability_bytes(f, t_);
  }

  UOp run() {
    const UOp end = sink_.src(0), store = end.src(0);
    place_grid(listed_ranges(end));
    for (UOp r : f_.more) {
      loops_.push_back(names_.range(r.src(0), AxisType::kLoop));
      around_.push_back({r, loops_.back()});
    }
    span_ = open_blocks(f_, first_row_, t_.tile(), t_.block());
    const UOp blocks = fold_add(span_.end, fold_mul(span_.begin, -1));
    UOp block = span_.begin;
    if (!blocks.is_const_int(1)) {
      loops_.push_back(names_.range(blocks, AxisType::kLoop));
      block = fold_add(loops_.back(), block);
    }
    first_place_ = fold_mul(block, t_.block());
    fill_panels();
    row_ = range(t_.rows_each, AxisType::kUpcast);
    const bool product = f_.kind == AttentionForm::kProduct;
    const UOp result = product ? store_sums(store, product_loop()) : mean(store);
    return UOp::sink(UOps{result}, sink_.arg());
  }

 private:
  UOp range(int64_t n, AxisType type) { return n == 1 ? UOp::constant(int64_t{0}) : names_.range(n, type); }

  /// Gives the grid and the threads of a group their ranges.
  void place_grid(std::span<const UOp> ranges) {
    for (UOp r : ranges) {
      if (r == f_.row || r == f_.column) continue;
      grid_.push_back(names_.range(r.src(0), AxisType::kGlobal));
      around_.push_back({r, grid_.back()});
    }
    const UOp tiles = rows_.is_const() ? UOp::constant(ceil_div(static_cast<int64_t>(rows_.const_int()), t_.tile()))
                                       : ceil_div(rows_, t_.tile());
    if (tiles.is_const_int(1)) {
      first_row_ = UOp::constant(int64_t{0});
    } else {
      grid_.push_back(names_.range(tiles, AxisType::kGlobal));
      first_row_ = fold_mul(grid_.back(), t_.tile());
    }
    of_row_ = range(t_.rows, AxisType::kLocal);
    slice_ = range(t_.slices, AxisType::kGroupReduce);
    lane_ = range(t_.columns, AxisType::kGroupReduce);
    thread_ = fold_add(fold_mul(fold_add(fold_mul(of_row_, t_.slices), slice_), t_.columns), lane_);
  }
  UOps only_ranges(std::initializer_list<UOp> list) const {
    UOps out;
    for (UOp r : list)
      if (r && r.is(Ops::RANGE)) out.push_back(r);
    return out;
  }

  // ---- positions ----

  /// Returns a row of this thread, within the tile.
  UOp row_at() const { return fold_add(fold_mul(row_, t_.rows), of_row_); }
  UOp key_at(UOp key) const {
    return fold_add(fold_mul(key, t_.slices * t_.columns), fold_add(fold_mul(slice_, t_.columns), lane_));
  }
  int64_t column_run() const { return columns_ % (kRun * t_.columns) ? 1 : kRun; }
  /// A column of a thread: its place in the result, and among those of the thread.
  struct Column {
    UOp at, held;
  };
  /// Returns the columns of a thread, whose ranges it appends.
  Column columns_of_thread(UOps& own) {
    const int64_t run = column_run();
    const UOp c = range(columns_ / (t_.columns * run), AxisType::kUpcast), e = range(run, AxisType::kUpcast);
    for (UOp r : only_ranges({c, e})) own.push_back(r);
    return {fold_add(fold_mul(fold_add(fold_mul(c, t_.columns), lane_), run), e), fold_add(fold_mul(c, run), e)};
  }
  int64_t columns_each() const { return columns_ / t_.columns; }
  /// Maps the ranges of the kernel to positions in the tile and the block; rows beyond the end are the last one.
  PositionMap places(UOp row, UOp over, UOp column) const {
    PositionMap map = around_;
    if (row && f_.row) {
      const UOp place = fold_add(first_row_, row);
      map.push_back({f_.row, more_rows_ ? (place < rows_).where(place, rows_ + ConstValue(-1)) : place});
    }
    if (over) map.push_back({f_.over, fold_add(first_place_, over)});
    if (column) map.push_back({f_.column, column});
    return map;
  }
  UOp within(UOp over) const { return tail_ ? fold_add(first_place_, over) < over_ : UOp(); }

  // ---- the memory of the group ----

  struct Panel {
    Operand operand;
    UOp memory, filled;
    UOp read(UOp place, const UOps& dims) const {
      UOp at = fold_mul(place, operand.stride());
      int64_t step = 1;
      for (size_t i = dims.size(); i-- > 0; step *= constant_size(operand.dims[i]))
        at = fold_add(at, fold_mul(dims[i], step));
      return memory.after({filled}).index({at}).load();
    }
  };

  /// Puts operands into the memory of the group as far as they fit: those of rows once, those of keys block by block.
  /// The panels of a block share their barriers.
  void fill_panels() {
    UOps rows, keys;
    for (const Operand& o : operands_of(f_)) {
      const int64_t bytes = panel_bytes(o, f_, t_);
      if (!is_shared(o, f_, t_) || bytes > left_) continue;
      left_ -= bytes;
      Panel p{o, names_.scratch(o.value.dtype(), bytes / o.value.dtype().itemsize()), {}};
      (o.along == f_.over ? keys : rows).push_back(fill(p));
      panels_.push_back(p);
    }
    for (Panel& p : panels_)
      p.filled = UOp::make(Ops::BARRIER, dtypes::void_, p.operand.along == f_.over ? keys : rows);
  }
  UOp fill(const Panel& p) {
    const Operand& o = p.operand;
    const bool of_keys = o.along == f_.over;
    // Memory is walked along the dimension of the smallest step, be it that of rows or keys.
    UOps walk = o.dims;
    const int64_t along = stride_along(o.value, o.along);
    const bool first =
        !o.dims.empty() && along >= 0 && along < std::max<int64_t>(stride_along(o.value, o.dims.back()), 0);
    walk.insert(first ? walk.end() : walk.begin(), o.along);
    const int64_t count = of_keys ? t_.block() : t_.tile();
    const auto size = [&](UOp r) { return r == o.along ? count : constant_size(r); };
    const int64_t run = size(walk.back()) % kRun ? 1 : kRun, runs = count * o.each / run, threads = t_.threads();
    const int64_t turns = ceil_div(runs, threads);
    const UOp turn = range(turns, turns <= kTurns ? AxisType::kUpcast : AxisType::kLoop),
              e = range(run, AxisType::kUpcast), number = fold_add(thread_, fold_mul(turn, threads));
    UOp rest = number;
    PositionMap at;
    for (size_t i = walk.size(); i-- > 0;) {
      const bool last = i + 1 == walk.size();
      const int64_t n = last ? size(walk[i]) / run : size(walk[i]);
      UOp c = i ? UOp::alu(Ops::FLOORMOD, {rest, UOp::constant(n)}) : rest;
      rest = UOp::alu(Ops::FLOORDIV, {rest, UOp::constant(n)});
      at.push_back({walk[i], last ? fold_add(fold_mul(c, run), e) : c});
    }
    const auto place = [&](UOp r) {
      return std::find_if(at.begin(), at.end(), [&](const auto& m) { return m.first == r; })->second;
    };
    PositionMap map = of_keys ? places(UOp(), place(o.along), UOp()) : places(place(o.along), UOp(), UOp());
    UOp index = fold_mul(place(o.along), o.stride());
    int64_t step = 1;
    for (size_t i = o.dims.size(); i-- > 0; step *= constant_size(o.dims[i])) {
      map.push_back({o.dims[i], place(o.dims[i])});
      index = fold_add(index, fold_mul(place(o.dims[i]), step));
    }
    const UOp own = runs % threads ? number < runs : UOp(), open = of_keys ? within(place(o.along)) : UOp();
    const UOp gate = own && open ? own & open : own ? own : open;
    UOp value = read_within(o.value, o.along, map, gate);
    if (open) value = open.where(value, value.const_like(0));
    if (own) index = index.valid(own);
    const UOp memory = of_keys ? emptied(p.memory) : p.memory;
    return memory.index({index}).store(value).end(only_ranges({turn, e}));
  }
  /// Returns memory as a fill finds it: all threads have read what the iteration before has left.
  UOp emptied(UOp memory) const {
    return loops_.empty() ? memory : memory.after({UOp::make(Ops::BARRIER, dtypes::void_, loops_)});
  }
  const Panel* panel_of(UOp value) const {
    for (const Panel& p : panels_)
      if (p.operand.value == value) return &p;
    return nullptr;
  }

  // ---- registers that the loop over blocks carries ----

  /// Returns registers of the thread inside of the loops, which were `start` before them.
  UOp carried(UOp registers, double start) {
    const int64_t n = constant_size_of(registers);
    const UOp i = range(n, AxisType::kUpcast);
    UOps found{registers, registers.index({i}).store(UOp::constant(start, registers.dtype())).end(only_ranges({i}))};
    found.insert(found.end(), loops_.begin(), loops_.end());
    return UOp::make(Ops::AFTER, registers.dtype(), found);
  }
  static int64_t constant_size_of(UOp buffer) { return static_cast<int64_t>(buffer.src(0).src(0).const_int()); }
  static UOp at(UOp buffer, UOp index) { return buffer.index({index}).load(); }

  // ---- one block ----

  /// Returns a sum of products at a row and a key, its operands read from the group's memory where they are there.
  UOp sum_at(UOp sum, UOp row, UOp key) {
    PositionMap split;
    UOps own;
    const auto listed = listed_ranges(sum);
    const Panel* panel = nullptr;
    for (UOp x : sum.src(0).srcs())
      if (const Panel* p = panel_of(x); p && !p->operand.dims.empty()) panel = p;
    const UOp innermost = panel ? panel->operand.dims.back() : listed.back();
    for (UOp r : listed) {
      const int64_t n = constant_size(r), part = r != innermost || n % kRun ? 1 : kRun;
      const UOp inner = range(part, AxisType::kUnroll);
      const UOp outer = n ? range(n / part, AxisType::kReduce) : names_.range(r.src(0), AxisType::kReduce);
      for (UOp x : only_ranges({outer, inner})) own.push_back(x);
      split.push_back({r, fold_add(fold_mul(outer, part), inner)});
    }
    UOps factors;
    for (UOp x : sum.src(0).srcs()) {
      if (const Panel* p = panel_of(x)) {
        UOps dims;
        for (UOp r : p->operand.dims)
          dims.push_back(std::find_if(split.begin(), split.end(), [&](const auto& m) { return m.first == r; })->second);
        factors.push_back(p->read(p->operand.along == f_.over ? key : row, dims));
        continue;
      }
      PositionMap map = places(row, key, UOp());
      map.insert(map.end(), split.begin(), split.end());
      factors.push_back(read_within(x, f_.over, map, within(key)));
    }
    const UOp product = factors[0] * factors[1];
    return own.empty() ? product : product.reduce(Ops::ADD, own);
  }
  /// Returns the scores, or the factor of a product, of this thread: `beyond` behind the end of the keys.
  UOp score_at(UOp key_range, double beyond) {
    const UOp row = row_at(), key = key_at(key_range);
    PositionMap sums;
    const UOp score = score_of(f_);
    for (UOp u : score.toposort())
      if (is_sum_of_products(u) && is_plain(u.src(0))) sums.push_back({u, sum_at(u, row, key)});
    PositionMap map = places(row, key, UOp());
    map.insert(map.end(), sums.begin(), sums.end());
    const UOp gate = within(key), value = read_within(score, f_.over, map, gate);
    return gate ? gate.where(value, UOp::constant(beyond, value.dtype())) : value;
  }

  /// Makes the kernel of a mean, or of its normalizer.
  UOp mean(UOp store) {
    top_ = names_.registers(dtypes::float32, t_.rows_each);
    total_ = names_.registers(dtypes::float32, t_.rows_each);
    const UOp key = range(t_.keys_each, AxisType::kUnroll), score = score_at(key, -INFINITY);
    const UOps across = only_ranges({key, slice_, lane_});
    const auto all = [&](Ops op, UOp v) { return across.empty() ? v : v.reduce(op, across); };
    const UOp before = at(carried(top_, -INFINITY), row_), top = UOp::alu(Ops::MAX, {before, all(Ops::MAX, score)});
    const UOp base = top.ne(top.const_like(-INFINITY)).where(top, top.const_like(0));
    const auto power = [&](UOp s) { return f_.power.substitute({{f_.score, s}, {f_.top, base}}); };
    const UOp p = power(score), factor = power(before),
              total = at(carried(total_, 0), row_) * factor + all(Ops::ADD, p);
    const UOp kept =
        UOp::make(Ops::GROUP, dtypes::void_, {top_.index({row_}).store(top), total_.index({row_}).store(total)})
            .end(only_ranges({row_}));
    if (!columns_) return store_total(store, kept.end(loops_));
    const UOp summed = add_weighted(p, key, factor);
    return store_sums(store, UOp::make(Ops::GROUP, dtypes::void_, {kept, summed}).end(loops_));
  }
  UOp product_loop() {
    const UOp key = range(t_.keys_each, AxisType::kUnroll);
    return add_weighted(score_at(key, 0), key, UOp()).end(loops_);
  }

  /// Adds the products of probabilities and weights to the sums of this thread, which `factor` multiplies before.
  UOp add_weighted(UOp p, UOp key, UOp factor) {
    const int64_t stride = probability_stride(t_);
    sums_ = names_.registers(dtypes::float32, t_.rows_each * columns_each());
    const UOp memory = names_.scratch(dtypes::float32, t_.tile() * stride);
    const UOp stored = emptied(memory)
                           .index({fold_add(fold_mul(row_at(), stride), key_at(key))})
                           .store(p)
                           .end(only_ranges({row_, key}));
    const UOp ready = UOp::make(Ops::BARRIER, dtypes::void_, {stored});
    UOps own = only_ranges({row_}), over;
    const Column column = columns_of_thread(own);
    const int64_t keys = t_.block() / t_.slices, part = std::gcd(keys, kRun);
    const UOp outer = range(keys / part, AxisType::kReduce), inner = range(part, AxisType::kUnroll);
    over = only_ranges({outer, inner});
    const UOp place = fold_add(fold_mul(slice_, keys), fold_add(fold_mul(outer, part), inner));
    UOp product = at(memory.after({ready}), fold_add(fold_mul(row_at(), stride), place)) * weight_at(place, column.at);
    if (!over.empty()) product = product.reduce(Ops::ADD, over);
    const UOp index = fold_add(fold_mul(row_, columns_each()), column.held);
    UOp before = at(carried(sums_, 0), index);
    if (factor) before = before * factor;
    return sums_.index({index}).store(before + product).end(own);
  }
  UOp weight_at(UOp place, UOp column) const {
    if (const Panel* p = panel_of(f_.weight)) return p->read(place, p->operand.dims.empty() ? UOps{} : UOps{column});
    const UOp gate = within(place), value = read_within(f_.weight, f_.over, places(UOp(), place, column), gate);
    return gate ? gate.where(value, value.const_like(0)) : value;
  }

  // ---- results ----

  /// Returns the sum of 0 * w over the blocks that are skipped, `count` from `first` on: all threads of the group share
  /// it.
  UOp closed_sum(UOp first, UOp count, UOp column) {
    const int64_t shared = t_.rows * t_.slices, keys = ceil_div(t_.block(), shared);
    UOps closed{names_.range(count, AxisType::kReduce)};
    const UOp k = range(keys, AxisType::kReduce);
    for (UOp r : only_ranges({k})) closed.push_back(r);
    const UOp in_block = fold_add(fold_mul(k, shared), fold_add(fold_mul(of_row_, t_.slices), slice_));
    const UOp over = (first + closed[0]) * ConstValue(t_.block()) + in_block;
    PositionMap map = around_;
    map.push_back({f_.over, over});
    map.push_back({f_.column, column});
    for (UOp r : f_.more) {
      const auto again = std::find_if(map.begin(), map.end(), [&](const auto& m) { return m.first == r; });
      closed.push_back(again->second = names_.range(r.src(0), AxisType::kReduce));
    }
    UOp gate = tail_ ? over < over_ : UOp();
    if (keys * shared != t_.block()) gate = gate ? gate & (in_block < t_.block()) : in_block < t_.block();
    UOp zero = read_within(f_.weight, f_.over, map, gate) * UOp::constant(0, dtypes::float32);
    if (gate) zero = gate.where(zero, zero.const_like(0));
    zero = zero.reduce(Ops::ADD, closed);
    UOps over_threads, loops;
    for (UOp r : ranges_of(zero))
      if (r == of_row_ || r == slice_ || r == lane_ || is_unrolled(r)) over_threads.push_back(r);
    UOps places = over_threads;
    for (UOp& r : places)
      if (r == of_row_ || r == slice_) loops.push_back(r = names_.range(constant_size(r), AxisType::kReduce));
    return loops.empty() ? zero : stage(StageKind::kPartial, zero, over_threads, places).reduce(Ops::ADD, loops);
  }

  /// Returns a store of this thread's rows, and ends it.
  UOp finish(UOp store, const PositionMap& map, UOps own) const {
    UOp out = store.substitute(map);
    if (more_rows_) {
      const UOp index = out.src(0);
      UOps src(out.srcs().begin(), out.srcs().end());
      src[0] = UOp::make(Ops::INDEX, index.dtype(),
                         {index.src(0), index.src(1).valid(fold_add(first_row_, row_at()) < rows_)});
      out = out.with_srcs(src);
    }
    own.insert(own.begin(), grid_.begin(), grid_.end());
    return out.end(own);
  }
  UOp store_sums(UOp store, UOp done) {
    UOps own = only_ranges({of_row_, lane_, row_});
    const Column column = columns_of_thread(own);
    UOp sum = at(sums_.after({done}), fold_add(fold_mul(row_, columns_each()), column.held));
    if (slice_.is(Ops::RANGE)) sum = sum.reduce(Ops::ADD, UOps{slice_});
    if (span_.end != span_.blocks)
      sum = sum + closed_sum(span_.end, fold_add(span_.blocks, fold_mul(span_.end, -1)), column.at);
    if (!span_.begin.is_const_int(0)) sum = sum + closed_sum(UOp::constant(int64_t{0}), span_.begin, column.at);
    PositionMap map = places(row_at(), UOp(), column.at);
    if (f_.total) sum = sum * UOp::alu(Ops::RECIPROCAL, {at(total_.after({done}), row_)});
    map.push_back({f_.sum, sum});
    return finish(store, map, own);
  }
  /// A row of nothing but -inf is NaN, as in the plain form.
  UOp store_total(UOp store, UOp done) {
    UOp top = at(top_.after({done}), row_), total = at(total_.after({done}), row_);
    total = top.ne(top.const_like(-INFINITY)).where(total, total.const_like(NAN));
    PositionMap map = places(row_at(), UOp(), UOp());
    for (UOp u : store.src(1).toposort())
      if (u.is(Ops::REDUCE)) map.push_back({u, u == f_.total ? total : top});
    return finish(store, map, only_ranges({of_row_, row_}));
  }

  const UOp sink_;
  const AttentionForm f_;
  const GroupTile t_;
  KernelContext& names_;
  int64_t columns_ = 0, left_ = 0;         // none: of a total; bytes of the group's memory
  UOp over_, rows_;                        // how many keys and rows there are
  bool tail_ = false, more_rows_ = false;  // the last block, the last tile may end within it
  UOps grid_, loops_;                      // loops: over blocks, inside of those over a product's further ranges
  PositionMap around_;
  UOp of_row_, slice_, lane_, thread_;  // of a thread in the group
  UOp row_;                             // of its rows
  UOp first_row_, first_place_;
  BlockSpan span_;
  std::vector<Panel> panels_;
  UOp top_, total_, sums_;
};
}  // namespace

UOp attention_groups(UOp sink, const AttentionForm& form, const Target& target, bool one_thread, KernelContext& names) {
  return Groups(sink, form, target, one_thread, names).run();
}

}  // namespace tg
