/// \file The loops of attention, its normalizers and the products of its gradient in blocks of scores.
#include "tinygrad/codegen/plan/attention_blocks.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/plan/attention_parts.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
constexpr int64_t kMostRows = 128;   // of a tile
constexpr int64_t kMostBlock = 256;  // keys of a block
constexpr int64_t kVectors = 2;      // of a register tile

using Map = PositionMap;

/// Returns the largest divisor of n that is a multiple of `step` and at most `most`; 0: there is none.
int64_t part(int64_t n, int64_t step, int64_t most) {
  int64_t d = std::max(most / step * step, step);
  while (d && n % d) d -= step;
  return d;
}
/// Returns the size of the parts of n, a multiple of `step` and at most `most`: of equal ones if they are not much
/// smaller, else of as few as possible.
int64_t part_or_tail(int64_t n, int64_t step, int64_t most) {
  if (int64_t d = part(n, step, most); 2 * d > most || d == n) return d;
  return ceil_div(ceil_div(n, ceil_div(n, most)), step) * step;
}

class Blocks {
 public:
  Blocks(UOp sink, const AttentionForm& f, const Renderer& renderer, KernelContext& names)
      : sink_(sink), f_(f), names_(names) {
    lanes_ = std::min(renderer.max_lanes(dtypes::float32), 16);
    tile_rows_ = renderer.target().vector_registers >= 32 ? 8 : 4;
    all_rows_ = f.row.src(0);
    const int64_t rows = static_cast<int64_t>(vmax(all_rows_));
    if (all_rows_.is_const()) {
      rows_ = part_or_tail(rows, 8, kMostRows);
      if (rows_ > rows) rows_ = ceil_div(ceil_div(rows, ceil_div(rows, rows_) + 1), 8) * 8;  // two smaller tiles
    } else {
      rows_ = std::min(ceil_div(rows, 8) * 8, kMostRows);
    }
    columns_ = f.column ? constant_size(f.column) : 0;
    const int64_t tiles = std::max<int64_t>(1, static_cast<int64_t>(f.sums.size()) - 1);
    int64_t most = kMostBlock;
    while (most > 64 && 4 * most * (tiles * rows_ + 2 * columns_) > renderer.target().l2_bytes / 2) most /= 2;
    over_ = f.over.src(0);
    block_ = over_.is_const() ? part_or_tail(constant_size(f.over), 32, most) : most;
    tail_ = !over_.is_const() || constant_size(f.over) % block_ != 0;
  }

  UOp run() {
    UOp end = sink_.src(0), store = end.src(0);
    // The outer loops: the largest one is shared by the threads.
    UOps ranges(end.srcs().begin() + 1, end.srcs().end());
    UOp tiles =
        all_rows_.is_const() ? UOp::constant(ceil_div(constant_size(f_.row), rows_)) : ceil_div(all_rows_, rows_);
    UOp tile = names_.range(tiles, AxisType::kLoop);
    UOp* most = &tile;
    for (UOp& r : ranges)
      if (r != f_.row && r != f_.column) outer_.push_back(r);
    for (UOp& r : outer_)
      if (!most->src(0).is_const() || constant_size(r) > constant_size(*most)) most = &r;
    const Map threaded{{*most, UOp::range(most->src(0), RangeArg{most->arg<RangeArg>().id, AxisType::kThread})}};
    if (*most != tile) around_ = threaded;
    *most = threaded[0].second;
    outer_.push_back(tile);
    first_row_ = fold_mul(tile, rows_);
    if (!all_rows_.is_const()) {
      // The last tile has the remaining rows.
      UOp left = all_rows_ + fold_mul(tile, -rows_);
      tile_size_ = (left < rows_).where(left, UOp::constant(rows_));
    } else if (const int64_t rows = constant_size(f_.row); rows % rows_) {
      // The last tile overlaps the one before it: some rows are computed twice, with the same results.
      first_row_ = (first_row_ < rows - rows_).where(first_row_, UOp::constant(rows - rows_));
    }

    for (UOp r : f_.more) {
      more_.push_back(names_.range(r.src(0), AxisType::kLoop));
      around_.push_back({r, more_.back()});
    }
    const BlockSpan open = open_blocks(f_, first_row_, rows_, block_);
    blocks_ = open.blocks;
    begin_ = open.begin;
    end_ = open.end;
    block_range_ = names_.range(fold_add(end_, fold_mul(begin_, -1)), AxisType::kLoop);
    first_place_ = fold_mul(fold_add(block_range_, begin_), block_);
    scores_ = scratch(rows_ * block_);
    if (columns_) acc_ = scratch(rows_ * columns_);
    UOps result{f_.kind == AttentionForm::kProduct ? product(store) : mean(store)};
    return UOp::sink(result, sink_.arg());
  }

 private:
  /// Makes the kernel of a mean, or of its normalizer.
  UOp mean(UOp store) {
    for (UOp* each : {&top_, &total_, &factor_}) *each = scratch(ceil_div(rows_, lanes_) * lanes_);
    UOp updated = update_rows(fill(f_.score, scores_, -INFINITY, UOp(), {}));
    if (!columns_) return store_total(store, updated.end(block_loops()));
    return store_sums(store, update_sums(updated).end(block_loops()));
  }

  /// Makes the kernel of a product: all sums of its factor but the last go to scratch memory first, where the factor
  /// then replaces one.
  UOp product(UOp store) {
    const AttentionMask mask = mask_of_factor(f_);
    UOp filled;
    Map tiles;
    for (size_t i = 0; i + 1 < f_.sums.size(); i++) {
      UOp sum = f_.sums[i], none = sum.const_like(0), tile = i ? scratch(rows_ * block_) : scores_;
      if (mask.condition) sum = mask.contrary ? mask.condition.where(none, sum) : mask.condition.where(sum, none);
      filled = fill(sum, tile, 0, filled, {});
      tiles.push_back({f_.sums[i], tile});
    }
    return store_sums(store, update_sums(fill(f_.factor, scores_, 0, filled, tiles)).end(block_loops()));
  }

  UOp loop(int64_t n, AxisType type = AxisType::kLoop) { return names_.range(n, type); }
  /// Splits a range into a loop, at most `vectors` adjacent vectors, and lanes.
  UOp lane_axis(int64_t n, int64_t vectors, UOps& own, AxisType outer = AxisType::kLoop,
                AxisType side = AxisType::kUpcast) {
    const int64_t wide = part(n, lanes_, vectors * lanes_);
    UOp i = UOp::constant(int64_t{0});
    auto add = [&](int64_t size, int64_t step, AxisType type) {
      if (size == 1) return;
      own.push_back(loop(size, type));
      i = fold_add(i, fold_mul(own.back(), step));
    };
    add(n / wide, wide, outer);
    add(wide / lanes_, lanes_, side);
    add(lanes_, 1, AxisType::kVector);
    return i;
  }
  /// Makes the loop over groups of `side` rows of a tile.
  UOp rows_of_tile(int64_t side) {
    if (!tile_size_) return loop(rows_ / side);
    return names_.range(side == 1 ? tile_size_ : ceil_div(tile_size_, side), AxisType::kLoop);
  }
  /// Makes the loop over the rows of a tile, `side` of them unrolled.
  UOp row_axis(int64_t side, UOps& own) {
    own.push_back(rows_of_tile(side));
    own.push_back(loop(side, AxisType::kUpcast));
    return fold_add(fold_mul(own[own.size() - 2], side), own.back());
  }
  UOp scratch(int64_t n) { return names_.scratch(dtypes::float32, n); }
  static UOp at(UOp buffer, UOp index) { return buffer.index({index}).load(); }
  /// Returns a scratch buffer that the loop over blocks carries from iteration to iteration, initialized to `start`.
  UOp carried(UOp buffer, double start) {
    UOps deps{buffer}, own;
    deps.insert(deps.end(), outer_.begin(), outer_.end());
    UOp i = lane_axis(constant_size(buffer.src(0)), 8, own);
    UOp init =
        UOp::make(Ops::AFTER, buffer.dtype(), deps).index({i}).store(UOp::constant(start, buffer.dtype())).end(own);
    UOps found{buffer, init};
    for (UOp r : block_loops()) found.push_back(r);
    return UOp::make(Ops::AFTER, buffer.dtype(), found);
  }
  /// Maps the ranges of the kernel to positions in the tile and the block.
  Map places(UOp row, UOp over, UOp column) const {
    Map map = around_;
    if (row) {
      UOp place = fold_add(first_row_, row);
      // Unrolled rows beyond a variable end repeat the last one.
      map.push_back({f_.row, tile_size_ ? (place < all_rows_).where(place, all_rows_ + ConstValue(-1)) : place});
    }
    if (over) map.push_back({f_.over, fold_add(first_place_, over)});
    if (column) map.push_back({f_.column, column});
    return map;
  }
  /// Returns the gate of positions in the last block that are before the end; empty: all are.
  UOp within(UOp over) const { return tail_ ? over < over_ : UOp(); }
  UOp placed(UOp value, const Map& map, UOp gate) const { return read_within(value, f_.over, map, gate); }
  /// Returns the loops over blocks, inside of those over a product's further ranges.
  UOps block_loops() const {
    UOps loops = more_;
    loops.push_back(block_range_);
    return loops;
  }
  bool inside(UOp r) const {
    const auto in = [&](const UOps& loops) { return contains(loops, r); };
    return r != block_range_ && !in(outer_) && !in(more_);
  }

  /// Stores `value` in `tile`, and `beyond` behind the end of the keys, after `before`. `tiles`: the scratch memory of
  /// sums in the value.
  UOp fill(UOp value, UOp tile, double beyond, UOp before, const Map& tiles) {
    UOps own;
    UOp over = lane_axis(block_, kVectors, own);
    const size_t columns = own.size();
    UOp row = row_axis(tile_rows_, own), place = fold_add(fold_mul(row, block_), over);
    Map loads;
    for (const auto& [sum, filled] : tiles) loads.push_back({sum, at(filled.after({before}), place)});
    UOp gate = within(fold_add(first_place_, over));
    value = placed(value.substitute(loads), places(row, over, UOp()), gate);
    // Pack the operands of the product that all rows share.
    Map panels;
    for (UOp u : value.toposort()) {
      if (!u.is(Ops::REDUCE) || !u.src(0).is(Ops::MUL)) continue;
      for (UOp operand : u.src(0).srcs()) {
        UOps open;
        for (UOp r : ranges_of(operand))
          if (inside(r)) open.push_back(r);
        const bool of_block = std::any_of(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(columns),
                                          [&](UOp r) { return depends_on(operand, r); });
        const bool of_rows = std::any_of(own.begin() + static_cast<std::ptrdiff_t>(columns), own.end(),
                                         [&](UOp r) { return depends_on(operand, r); });
        if (of_block && !of_rows && !operand.dtype().is_weak() && plain(operand))
          panels.push_back({operand, stage(StageKind::kPanel, operand, open, open)});
      }
    }
    value = value.substitute(panels);
    if (gate) value = gate.where(value, UOp::constant(beyond, value.dtype()));
    return (before ? tile.after({before}) : tile).index({place}).store(value).end(own);
  }
  static bool plain(UOp u) {
    const UOps order = u.toposort();
    return std::none_of(order.begin(), order.end(), [](UOp v) { return v.in(Ops::REDUCE | Ops::AFTER); });
  }

  UOp update_rows(UOp filled) {
    UOps own, least, summed;
    UOp row = row_axis(8, own), first = fold_mul(row, block_), scores = scores_.after({filled});
    auto reduced = [&](UOps& over) {
      return fold_add(first, lane_axis(block_, 1, over, AxisType::kReduce, AxisType::kUnroll));
    };
    UOp before = at(carried(top_, -INFINITY), row);
    UOp value = at(scores, reduced(least));
    UOp top = UOp::alu(Ops::MAX, {before, value.reduce(Ops::MAX, least)});
    UOp base = top.ne(UOp::constant(-INFINITY, top.dtype())).where(top, UOp::constant(0, top.dtype()));
    auto power = [&](UOp score) { return f_.power.substitute({{f_.score, score}, {f_.top, base}}); };
    UOp place = reduced(summed), p = power(at(scores, place));
    p = UOp::make(Ops::AFTER, p.dtype(), {p, scores_.index({place}).store(p)});
    UOp factor = power(before), total = at(carried(total_, 0), row) * factor + p.reduce(Ops::ADD, summed);
    UOps stores{top_.index({row}).store(top), total_.index({row}).store(total), factor_.index({row}).store(factor)};
    return UOp::make(Ops::GROUP, dtypes::void_, stores).end(own);
  }

  UOp update_sums(UOp filled) {
    UOps own;
    // The last block ends with the range: there are no weights beyond it.
    UOp column = lane_axis(columns_, kVectors, own), row = row_axis(tile_rows_, own),
        over = loop(block_, AxisType::kReduce);
    if (tail_) {
      UOp left = over_ + fold_mul(first_place_, -1);
      over = UOp::range((left < block_).where(left, UOp::constant(block_)), over.arg<RangeArg>());
    }
    UOp place = fold_add(fold_mul(row, columns_), column), before = at(carried(acc_, 0), place);
    if (factor_) before = before * at(factor_.after({filled}), row);
    UOp p = at(scores_.after({filled}), fold_add(fold_mul(row, block_), over));
    UOp product = p * f_.weight.substitute(places(UOp(), over, column));
    return acc_.index({place}).store(before + product.reduce(Ops::ADD, UOps{over})).end(own);
  }

  /// Returns the sum of 0 * w over the blocks that are skipped, `count` from `first` on.
  UOp closed_sum(UOp first, UOp count, UOp column) {
    UOp left = names_.range(count, AxisType::kReduce), i = loop(block_, AxisType::kReduce);
    UOp over = (first + left) * ConstValue(block_) + i;
    Map map = around_;
    map.push_back({f_.over, over});
    map.push_back({f_.column, column});
    UOps closed{left, i};
    for (size_t k = 0; k < more_.size(); k++) {
      const auto again = std::find_if(map.begin(), map.end(), [&](const auto& m) { return m.first == f_.more[k]; });
      closed.push_back(again->second = names_.range(more_[k].src(0), AxisType::kReduce));
    }
    return (placed(f_.weight, map, within(over)) * UOp::constant(0, dtypes::float32)).reduce(Ops::ADD, closed);
  }

  UOp store_sums(UOp store, UOp done) {
    UOps own;
    UOp column = lane_axis(columns_, 4, own), row = rows_of_tile(1);
    own.push_back(row);
    UOp sum = at(acc_.after({done}), fold_add(fold_mul(row, columns_), column));
    if (end_ != blocks_) sum = sum + closed_sum(end_, fold_add(blocks_, fold_mul(end_, -1)), column);
    if (!begin_.is_const_int(0)) sum = sum + closed_sum(UOp::constant(int64_t{0}), begin_, column);
    Map map = places(row, UOp(), column);
    if (f_.total) sum = sum / divisor_of(f_, at(total_.after({done}), row));
    map.push_back({f_.sum, sum});
    own.insert(own.begin(), outer_.begin(), outer_.end());
    return store.substitute(map).end(own);
  }

  /// A row of nothing but -inf is NaN, as in the plain form, unless total and maximum are bounded.
  UOp store_total(UOp store, UOp done) {
    UOp row = rows_of_tile(1), top = at(top_.after({done}), row), total = at(total_.after({done}), row);
    if (!f_.bounded) total = top.ne(top.const_like(-INFINITY)).where(total, total.const_like(NAN));
    Map map = places(row, UOp(), UOp());
    for (UOp u : store.src(1).toposort())
      if (u.is(Ops::REDUCE)) map.push_back({u, u == f_.total ? total : top});
    UOps own = outer_;
    own.push_back(row);
    return store.substitute(map).end(own);
  }

  UOp sink_;
  AttentionForm f_;
  int64_t lanes_, tile_rows_, rows_, block_;
  UOp all_rows_;       // their number
  UOp tile_size_;      // rows of a tile when their number is variable
  UOp over_;           // the size of the mean's range
  bool tail_ = false;  // it may end within a block
  UOps outer_, more_;
  Map around_;
  int64_t columns_ = 0;       // none: of a total
  UOp blocks_, begin_, end_;  // the number of blocks, those that are computed
  UOp first_row_, block_range_, first_place_, scores_, top_, total_, factor_, acc_;
  KernelContext& names_;
};
}  // namespace

UOp attention_blocks(UOp sink, const AttentionForm& form, const Renderer& renderer, KernelContext& names) {
  return Blocks(sink, form, renderer, names).run();
}

}  // namespace tg
