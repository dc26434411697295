/// \file The loops of attention by groups of threads.
#include "tinygrad/codegen/plan/attention_groups.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/plan/attention_fragments.h"
#include "tinygrad/codegen/plan/attention_parts.h"
#include "tinygrad/codegen/plan/attention_tile.h"
#include "tinygrad/codegen/scratch/panel.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr int64_t kRun = 4;    // elements that a thread reads side by side
constexpr int64_t kTurns = 8;  // of a thread that fills a panel: that many loads are in flight together
constexpr int64_t kSteps = 8;  // of a sum by matrix instructions, that are unrolled
constexpr int64_t kOwn = 2;    // of them, where threads read operands element by element

class Groups {
 public:
  Groups(UOp sink, const AttentionForm& f, const Renderer& renderer, const CodegenOptions& options,
         KernelContext& names)
      : sink_(sink), f_(f), t_(choose_group_tile(f, sink, renderer, options)), names_(names) {
    columns_ = f.column ? constant_size(f.column) : 0;
    over_ = f.over.src(0);
    rows_ = f.row ? f.row.src(0) : UOp::constant(int64_t{1});
    tail_ = !over_.is_const() || constant_size(f.over) % t_.block() != 0;
    more_rows_ = !rows_.is_const() || rows_.const_int() % t_.tile() != 0;
    left_ = shared_budget(renderer.target()) - probability_bytes(f, t_);
  }

  UOp run() {
    const UOp end = sink_.src(0), store = end.src(0);
    place_grid(listed_ranges(end));
    for (UOp r : f_.more) {
      loops_.push_back(names_.range(r.src(0), AxisType::kLoop));
      around_.push_back({r, loops_.back()});
    }
    span_ = open_blocks(f_, first_row_, t_.tile(), t_.block());
    const UOp blocks = simplify(fold_add(span_.end, fold_mul(span_.begin, -1)));
    UOp block = span_.begin;
    if (!blocks.is_const_int(1)) {
      loops_.push_back(names_.range(blocks, AxisType::kLoop));
      block = fold_add(loops_.back(), block);
    }
    first_place_ = fold_mul(block, t_.block());
    fill_panels();
    row_ = rows_of_thread();
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
    const int64_t of_warp = t_.core ? AttentionFragments::row_threads(*t_.core) : 1;
    const UOp warp = range(t_.rows / of_warp, AxisType::kLocal), row = range(of_warp, AxisType::kLocal);
    row_threads_ = only_ranges({warp, row});
    of_row_ = fold_add(fold_mul(warp, of_warp), row);
    slice_ = range(t_.slices, AxisType::kGroupReduce);
    lane_ = range(t_.columns, AxisType::kGroupReduce);
    thread_ = fold_add(fold_mul(fold_add(fold_mul(of_row_, t_.slices), slice_), t_.columns), lane_);
    warp_ = warp;
    if (t_.core) fragments_.emplace(*t_.core, row, lane_, t_.loads, names_);
  }
  UOps only_ranges(std::initializer_list<UOp> list) const {
    UOps out;
    for (UOp r : list)
      if (r && r.is(Ops::RANGE)) out.push_back(r);
    return out;
  }

  // ---- positions ----

  /// What a thread has along rows, keys or columns: where it is in the tile, the block or the result, its number among
  /// those of the thread, and the ranges of both. With matrix instructions the number is that of the instruction and
  /// that of the register.
  struct Own {
    UOp at, held, instruction{}, in_register{};
    UOps ranges{};
  };
  Own own_of(UOp at, UOp outer, UOp inner, int64_t inner_size) const {
    return {at, fold_add(fold_mul(outer, inner_size), inner), outer, inner, only_ranges({outer, inner})};
  }
  Own rows_of_thread() {
    if (!t_.core) {
      const UOp i = range(t_.rows_each, AxisType::kUpcast);
      return own_of(fold_add(fold_mul(i, t_.rows), of_row_), i, UOp::constant(int64_t{0}), 1);
    }
    const int64_t each = AttentionFragments::rows_each(*t_.core);
    const UOp i = range(t_.rows_each / each, AxisType::kUpcast), r = range(each, AxisType::kUpcast);
    return own_of(fold_add(rows_of_instruction(i), fragments_->row(r)), i, r, each);
  }
  /// Returns the first row of an instruction of this warp.
  UOp rows_of_instruction(UOp i) const {
    const int64_t n = t_.rows_each / AttentionFragments::rows_each(*t_.core);
    return fold_mul(fold_add(fold_mul(warp_, n), i), t_.core->m);
  }
  Own keys_of_thread() {
    if (!t_.core) {
      const UOp k = range(t_.keys_each, AxisType::kUnroll);
      const UOp in_row = fold_add(fold_mul(slice_, t_.columns), lane_);
      return own_of(fold_add(fold_mul(k, t_.slices * t_.columns), in_row), k, UOp::constant(int64_t{0}), 1);
    }
    return columns_of_instructions(t_.keys_each, AxisType::kUnroll);
  }
  Own columns_of_thread() {
    if (t_.core) return columns_of_instructions(columns_each(), AxisType::kUpcast);
    const int64_t run = columns_ % (kRun * t_.columns) ? 1 : kRun;
    const UOp c = range(columns_ / (t_.columns * run), AxisType::kUpcast), e = range(run, AxisType::kUpcast);
    return own_of(fold_add(fold_mul(fold_add(fold_mul(c, t_.columns), lane_), run), e), c, e, run);
  }
  Own columns_of_instructions(int64_t n, AxisType type) {
    const int64_t each = AttentionFragments::columns_each(*t_.core);
    const UOp i = range(n / each, type), r = range(each, type);
    return own_of(fold_add(fold_mul(i, t_.core->n), fragments_->column(r)), i, r, each);
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
    AttentionOperand operand;
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
    for (const AttentionOperand& o : attention_operands(f_, t_.core)) {
      const int64_t bytes = panel_bytes(o, f_, t_);
      if (!bytes || bytes > left_) continue;
      left_ -= bytes;
      Panel p{o, names_.scratch(o.stored.dtype(), bytes / o.stored.dtype().itemsize()), {}};
      (o.along == f_.over ? keys : rows).push_back(fill(p));
      panels_.push_back(p);
    }
    for (Panel& p : panels_)
      p.filled = UOp::make(Ops::BARRIER, dtypes::void_, p.operand.along == f_.over ? keys : rows);
  }
  UOp fill(const Panel& p) {
    const AttentionOperand& o = p.operand;
    const bool of_keys = o.along == f_.over;
    // Memory is walked along the dimension of the smallest step, be it that of rows or keys.
    UOps walk = o.dims;
    const int64_t along = stride_along(o.value, o.along);
    const bool first =
        !o.dims.empty() && along >= 0 && along < std::max<int64_t>(stride_along(o.value, o.dims.back()), 0);
    walk.insert(first ? walk.end() : walk.begin(), o.along);
    const int64_t count = of_keys ? t_.block() : t_.tile();
    const auto size = [&](UOp r) { return r == o.along ? count : constant_size(r); };
    const int64_t run = size(walk.back()) % o.run() ? 1 : o.run(), runs = count * o.each / run, threads = t_.threads();
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
    UOp value = read_within(o.stored, o.along, map, gate);
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
  UOp sum_at(UOp sum, const Own& key_of_thread) {
    if (t_.core) return product_of_fragments(sum, key_of_thread);
    const UOp row = row_.at, key = key_of_thread.at;
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
  /// Returns a sum of products by matrix instructions.
  UOp product_of_fragments(UOp sum, const Own& key) {
    const bool first = panel_of(sum.src(0).src(0))->operand.along == f_.row;
    const Panel &a = *panel_of(sum.src(0).src(first ? 0 : 1)), &b = *panel_of(sum.src(0).src(first ? 1 : 0));
    const int64_t steps = a.operand.each / t_.core->k, part = std::gcd(steps, t_.loads ? kSteps : kOwn);
    const UOp outer = range(steps / part, AxisType::kReduce), inner = range(part, AxisType::kUnroll);
    const UOp step = fold_mul(fold_add(fold_mul(outer, part), inner), t_.core->k);
    const auto read = [&](const Panel& p, UOp begin, bool second) {
      return fragments_->along(p.memory.after({p.filled}), fold_add(fold_mul(begin, p.operand.stride()), step),
                               p.operand.stride(), second);
    };
    const UOp product =
        fragments_->product(read(a, rows_of_instruction(row_.instruction), false),
                            read(b, fold_mul(key.instruction, t_.core->n), true), row_.in_register, key.in_register);
    const UOps own = only_ranges({outer, inner});
    return own.empty() ? product : product.reduce(Ops::ADD, own);
  }
  /// Returns the scores, or the factor of a product, of this thread: `beyond` behind the end of the keys.
  UOp score_at(const Own& of_thread, double beyond) {
    const UOp row = row_.at, key = of_thread.at;
    PositionMap sums;
    const UOp score = score_of(f_);
    for (UOp u : score.toposort())
      if (is_score_product(u)) sums.push_back({u, sum_at(u, of_thread)});
    // The sums are in final ranges already: the map of positions leaves them alone.
    PositionMap map = places(row, key, UOp());
    map.insert(map.end(), sums.begin(), sums.end());
    const UOp gate = within(key), value = read_within(score, f_.over, map, gate);
    return gate ? gate.where(value, UOp::constant(beyond, value.dtype())) : value;
  }

  /// Makes the kernel of a mean, or of its normalizer.
  UOp mean(UOp store) {
    top_ = names_.registers(dtypes::float32, t_.rows_each);
    total_ = names_.registers(dtypes::float32, t_.rows_each);
    const Own key = keys_of_thread();
    const UOp score = score_at(key, -INFINITY);
    UOps across = key.ranges;
    for (UOp r : only_ranges({slice_, lane_})) across.push_back(r);
    const auto all = [&](Ops op, UOp v) { return across.empty() ? v : v.reduce(op, across); };
    const UOp before = at(carried(top_, -INFINITY), row_.held),
              top = UOp::alu(Ops::MAX, {before, all(Ops::MAX, score)});
    const UOp base = top.ne(top.const_like(-INFINITY)).where(top, top.const_like(0));
    const auto power = [&](UOp s) { return f_.power.substitute({{f_.score, s}, {f_.top, base}}); };
    const UOp p = power(score), factor = power(before),
              total = at(carried(total_, 0), row_.held) * factor + all(Ops::ADD, p);
    UOps done{top_.index({row_.held}).store(top).end(row_.ranges),
              total_.index({row_.held}).store(total).end(row_.ranges)};
    if (columns_) done.push_back(add_weighted(p, key, factor));
    const UOp block = UOp::make(Ops::GROUP, dtypes::void_, done).end(loops_);
    return columns_ ? store_sums(store, block) : store_total(store, block);
  }
  UOp product_loop() {
    const Own key = keys_of_thread();
    return add_weighted(score_at(key, 0), key, UOp()).end(loops_);
  }

  /// Adds the products of probabilities and weights to the sums of this thread, which `factor` multiplies before.
  UOp add_weighted(UOp p, const Own& key, UOp factor) {
    sums_ = names_.registers(dtypes::float32, t_.rows_each * columns_each());
    const Own column = columns_of_thread();
    const UOp product = t_.core ? weighted_by_fragments(p, key, column) : weighted(p, key, column);
    const UOp index = fold_add(fold_mul(row_.held, columns_each()), column.held);
    UOp before = at(carried(sums_, 0), index);
    if (factor) before = before * factor;
    return sums_.index({index}).store(before + product).end(with(row_.ranges, column.ranges));
  }
  static UOps with(UOps a, const UOps& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  /// Returns the products of a block, whose probabilities pass through the memory of the group.
  UOp weighted(UOp p, const Own& key, const Own& column) {
    const int64_t stride = probability_stride(t_);
    const UOp memory = names_.scratch(dtypes::float32, t_.tile() * stride);
    const UOp stored = emptied(memory)
                           .index({fold_add(fold_mul(row_.at, stride), key.at)})
                           .store(p)
                           .end(with(row_.ranges, key.ranges));
    const UOp ready = UOp::make(Ops::BARRIER, dtypes::void_, {stored});
    const int64_t keys = t_.block() / t_.slices, part = std::gcd(keys, kRun);
    const UOp outer = range(keys / part, AxisType::kReduce), inner = range(part, AxisType::kUnroll);
    const UOps over = only_ranges({outer, inner});
    const UOp place = fold_add(fold_mul(slice_, keys), fold_add(fold_mul(outer, part), inner));
    const UOp product =
        at(memory.after({ready}), fold_add(fold_mul(row_.at, stride), place)) * weight_at(place, column.at);
    return over.empty() ? product : product.reduce(Ops::ADD, over);
  }
  /// Returns them by matrix instructions. A probability is the sum of two 16-bit numbers, so hardly anything is lost.
  UOp weighted_by_fragments(UOp p, const Own& key, const Own& column) {
    const TensorCore& core = *t_.core;
    // Elements that threads read one by one are those of one step.
    const int64_t steps = t_.block() / core.k, part = t_.loads ? steps : 1;
    const UOp outer = range(steps / part, AxisType::kReduce), inner = range(part, AxisType::kUnroll),
              step = fold_add(fold_mul(outer, part), inner), rest = names_.range(2, AxisType::kUnroll);
    const auto a = t_.loads ? kept_powers(p, key, step, rest) : stored_powers(p, key, step, rest);
    const Panel& w = *panel_of(f_.weight);
    const UOp from =
        fold_add(fold_mul(fold_mul(step, core.k), w.operand.stride()), fold_mul(column.instruction, core.n));
    const auto b = fragments_->across(w.memory.after({w.filled}), from, w.operand.stride());
    UOps over = only_ranges({outer, inner});
    over.push_back(rest);
    return fragments_->product(a, b, row_.in_register, column.in_register).reduce(Ops::ADD, over);
  }
  /// Returns the bits of both parts of a probability.
  std::pair<UOp, UOp> parts_of(UOp p) const {
    const UOp high = p.cast(t_.core->a), low = (p + high.cast(dtypes::float32) * ConstValue(-1.0)).cast(t_.core->a);
    return {high.bitcast(dtypes::uint16), low.bitcast(dtypes::uint16)};
  }
  /// Returns probabilities as a first factor, where this thread holds them.
  AttentionFragments::Operand kept_powers(UOp p, const Own& key, UOp step, UOp rest) {
    const TensorCore& core = *t_.core;
    const UOp powers = names_.registers(dtypes::float32, t_.rows_each * t_.keys_each);
    const auto index = [&](UOp row, UOp of_key) { return fold_add(fold_mul(row, t_.keys_each), of_key); };
    const UOp kept =
        powers.after({powers.index({index(row_.held, key.held)}).store(p).end(with(row_.ranges, key.ranges))});
    const int64_t rows = AttentionFragments::rows_each(core), columns = AttentionFragments::columns_each(core);
    return fragments_->of_results([&](const AttentionFragments::Source& s) {
      const UOp row = fold_add(fold_mul(row_.instruction, rows), s.row);
      const UOp instruction = fold_add(fold_mul(step, core.k / core.n), s.instruction);
      const auto [high, low] = parts_of(at(kept, index(row, fold_add(fold_mul(instruction, columns), s.column))));
      return (rest < 1).where(high, low);
    });
  }
  /// Returns them from the memory of the group, through which they pass.
  AttentionFragments::Operand stored_powers(UOp p, const Own& key, UOp step, UOp rest) {
    const int64_t stride = probability_stride(t_), part = t_.tile() * stride;
    const UOp memory = names_.scratch(dtypes::uint16, 2 * part), empty = emptied(memory),
              place = fold_add(fold_mul(row_.at, stride), key.at);
    const auto [high, low] = parts_of(p);
    const UOps ranges = with(row_.ranges, key.ranges);
    const UOp ready = UOp::make(Ops::BARRIER, dtypes::void_,
                                UOps{empty.index({place}).store(high).end(ranges),
                                     empty.index({fold_add(place, UOp::constant(part))}).store(low).end(ranges)});
    const UOp from = fold_add(fold_mul(rows_of_instruction(row_.instruction), stride),
                              fold_add(fold_mul(step, t_.core->k), fold_mul(rest, part)));
    return fragments_->along(memory.after({ready}), from, stride, false);
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
      if (contains(row_threads_, r) || r == slice_ || r == lane_ || is_unrolled(r)) over_threads.push_back(r);
    UOps places = over_threads;
    for (UOp& r : places)
      if (contains(row_threads_, r) || r == slice_)
        loops.push_back(r = names_.range(constant_size(r), AxisType::kReduce));
    return loops.empty() ? zero : stage(StageKind::kPartial, zero, over_threads, places).reduce(Ops::ADD, loops);
  }

  /// Returns a store of this thread's rows, and ends it.
  UOp finish(UOp store, const PositionMap& map, UOps own) const {
    UOp out = store.substitute(map);
    if (more_rows_) {
      const UOp index = out.src(0);
      UOps src(out.srcs().begin(), out.srcs().end());
      src[0] = UOp::make(Ops::INDEX, index.dtype(),
                         {index.src(0), index.src(1).valid(fold_add(first_row_, row_.at) < rows_)});
      out = out.with_srcs(src);
    }
    own.insert(own.begin(), grid_.begin(), grid_.end());
    return out.end(own);
  }
  UOp store_sums(UOp store, UOp done) {
    const Own column = columns_of_thread();
    const UOps own = with(with(row_threads_, only_ranges({lane_})), with(row_.ranges, column.ranges));
    UOp sum = at(sums_.after({done}), fold_add(fold_mul(row_.held, columns_each()), column.held));
    if (slice_.is(Ops::RANGE)) sum = sum.reduce(Ops::ADD, UOps{slice_});
    if (span_.end != span_.blocks)
      sum = sum + closed_sum(span_.end, fold_add(span_.blocks, fold_mul(span_.end, -1)), column.at);
    if (!span_.begin.is_const_int(0)) sum = sum + closed_sum(UOp::constant(int64_t{0}), span_.begin, column.at);
    PositionMap map = places(row_.at, UOp(), column.at);
    if (f_.total) sum = sum / divisor_of(f_, at(total_.after({done}), row_.held));
    map.push_back({f_.sum, sum});
    return finish(store, map, own);
  }
  /// A row of nothing but -inf is NaN, as in the plain form, unless total and maximum are bounded.
  UOp store_total(UOp store, UOp done) {
    UOp top = at(top_.after({done}), row_.held), total = at(total_.after({done}), row_.held);
    if (!f_.bounded) total = top.ne(top.const_like(-INFINITY)).where(total, total.const_like(NAN));
    PositionMap map = places(row_.at, UOp(), UOp());
    for (UOp u : store.src(1).toposort())
      if (u.is(Ops::REDUCE)) map.push_back({u, u == f_.total ? total : top});
    return finish(store, map, with(row_threads_, row_.ranges));
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
  UOp warp_, of_row_, slice_, lane_, thread_;  // of a thread in the group
  UOps row_threads_;                           // the ranges of of_row_
  std::optional<AttentionFragments> fragments_;
  Own row_;  // of its rows
  UOp first_row_, first_place_;
  BlockSpan span_;
  std::vector<Panel> panels_;
  UOp top_, total_, sums_;
};
}  // namespace

UOp attention_groups(UOp sink, const AttentionForm& form, const Renderer& renderer, const CodegenOptions& options,
                     KernelContext& names) {
  return Groups(sink, form, renderer, options, names).run();
}

}  // namespace tg
