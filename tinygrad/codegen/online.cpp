/// \file The loops of weighted means in blocks.
#include "tinygrad/codegen/online.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/codegen/fold.h"
#include "tinygrad/codegen/stage.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
constexpr int64_t kMostRows = 128;     // of a tile
constexpr int64_t kMostBlock = 256;    // of the mean's range
constexpr int64_t kVectors = 2;        // of a register tile
constexpr int32_t kFirstRange = 6000;  // identifiers of the loops, beyond all others
constexpr int32_t kFirstSlot = 500;    // of scratch memory, beyond staged operands

using Map = std::vector<std::pair<UOp, UOp>>;

int64_t size_of(UOp range) { return static_cast<int64_t>(range.src(0).const_int()); }
int64_t ceil_div(int64_t n, int64_t d) { return (n + d - 1) / d; }
UOp ceil_div(UOp n, int64_t d) { return UOp::alu(Ops::FLOORDIV, {n + ConstValue(d - 1), UOp::constant(d)}); }
/// The greatest divisor of n that is a multiple of `step` and at most `most`; 0: there is none.
int64_t part(int64_t n, int64_t step, int64_t most) {
  int64_t d = std::max(most / step * step, step);
  while (d && n % d) d -= step;
  return d;
}
/// The size of the parts of n, a multiple of `step` and at most `most`: equal ones if they are not much smaller, else as few as there can be.
int64_t part_or_tail(int64_t n, int64_t step, int64_t most) {
  if (int64_t d = part(n, step, most); 2 * d > most || d == n) return d;
  return ceil_div(ceil_div(n, ceil_div(n, most)), step) * step;
}

class Blocks {
 public:
  Blocks(UOp sink, const OnlineForm& f, const Renderer& renderer) : sink_(sink), f_(f) {
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
    const int64_t columns = size_of(f.column);
    int64_t most = kMostBlock;
    while (most > 64 && 4 * most * (rows_ + 2 * columns) > renderer.target().l2_bytes / 2) most /= 2;
    over_ = f.over.src(0);
    block_ = over_.is_const() ? part_or_tail(size_of(f.over), 32, most) : most;
    tail_ = !over_.is_const() || size_of(f.over) % block_ != 0;
  }

  UOp run() {
    UOp end = sink_.src(0), store = end.src(0);
    // The loops around: the largest one is divided over the threads.
    UOps ranges(end.srcs().begin() + 1, end.srcs().end());
    UOp tiles = all_rows_.is_const() ? UOp::constant(ceil_div(size_of(f_.row), rows_)) : ceil_div(all_rows_, rows_);
    UOp tile = UOp::range(tiles, RangeArg{{fresh_++}, AxisType::kLoop});
    UOp* most = &tile;
    for (UOp& r : ranges)
      if (r != f_.row && r != f_.column) outer_.push_back(r);
    for (UOp& r : outer_)
      if (!most->src(0).is_const() || size_of(r) > size_of(*most)) most = &r;
    const Map threaded{{*most, UOp::range(most->src(0), RangeArg{most->arg<RangeArg>().id, AxisType::kThread})}};
    if (*most != tile) around_ = threaded;
    *most = threaded[0].second;
    outer_.push_back(tile);
    first_row_ = fold_mul(tile, rows_);
    if (!all_rows_.is_const()) {
      // The last tile has what is left.
      UOp left = all_rows_ + fold_mul(tile, -rows_);
      tile_size_ = (left < rows_).where(left, UOp::constant(rows_));
    } else if (const int64_t rows = size_of(f_.row); rows % rows_) {
      // The last tile begins where a whole one fits: some rows are computed twice, to the same numbers.
      first_row_ = (first_row_ < rows - rows_).where(first_row_, UOp::constant(rows - rows_));
    }

    const int64_t columns = size_of(f_.column);
    UOp blocks = over_.is_const() ? UOp::constant(ceil_div(size_of(f_.over), block_)) : ceil_div(over_, block_);
    UOp open = open_blocks(blocks);
    block_range_ = UOp::range(open ? open : blocks, RangeArg{{fresh_++}, AxisType::kLoop});
    scores_ = scratch(rows_ * block_), acc_ = scratch(rows_ * columns);
    for (UOp* each : {&top_, &total_, &factor_}) *each = scratch(ceil_div(rows_, lanes_) * lanes_);

    UOp filled = fill_scores(), updated = update_rows(filled), sums = update_sums(updated);
    UOp done = sums.end(UOps{block_range_});

    // What is stored.
    UOps own;
    UOp column = lane_axis(columns, 4, own), row = rows_of_tile(1);
    own.push_back(row);
    UOp unscaled = at(acc_.after({done}), fold_add(fold_mul(row, columns), column));
    if (open) unscaled = unscaled + closed_sum(open, blocks, column);
    UOp mean = f_.total ? unscaled * UOp::alu(Ops::RECIPROCAL, {at(total_.after({done}), row)}) : unscaled;
    Map map = places(row, UOp(), column);
    map.push_back({f_.sum, mean});
    own.insert(own.begin(), outer_.begin(), outer_.end());
    UOps result{store.substitute(map).end(own)};
    return UOp::sink(result, sink_.arg());
  }

 private:
  UOp loop(int64_t n, AxisType type = AxisType::kLoop) { return UOp::range(n, fresh_++, type); }
  /// A range in a loop, `vectors` at most that lie side by side, and lanes.
  UOp lane_axis(int64_t n, int64_t vectors, UOps& own, AxisType outer = AxisType::kLoop, AxisType side = AxisType::kUpcast) {
    const int64_t wide = part(n, lanes_, vectors * lanes_);
    UOp i = UOp::constant(int64_t{0});
    auto add = [&](int64_t size, int64_t step, AxisType type) {
      if (size == 1) return;
      own.push_back(loop(size, type));
      i = fold_add(i, fold_mul(own.back(), step));
    };
    add(n / wide, wide, outer), add(wide / lanes_, lanes_, side), add(lanes_, 1, AxisType::kVector);
    return i;
  }
  /// The loop over groups of `side` rows of a tile.
  UOp rows_of_tile(int64_t side) {
    if (!tile_size_) return loop(rows_ / side);
    return UOp::range(side == 1 ? tile_size_ : ceil_div(tile_size_, side), RangeArg{{fresh_++}, AxisType::kLoop});
  }
  /// Rows of a tile in a loop, several side by side.
  UOp row_axis(int64_t side, UOps& own) {
    own.push_back(rows_of_tile(side)), own.push_back(loop(side, AxisType::kUpcast));
    return fold_add(fold_mul(own[own.size() - 2], side), own.back());
  }
  UOp scratch(int64_t n) {
    return UOp::make(Ops::BUFFER, dtypes::float32, {UOp::shape_stack(std::vector<int64_t>{n})},
                     Arg(ParamArg{kFirstSlot + slots_++, AddrSpace::kLocal, "", "", 0, 0}));
  }
  static UOp at(UOp buffer, UOp index) { return buffer.index({index}).load(); }
  /// A scratch buffer as the iterations of the loop over blocks find it: `start` before the first.
  UOp carried(UOp buffer, double start) {
    UOps deps{buffer}, own;
    deps.insert(deps.end(), outer_.begin(), outer_.end());
    UOp i = lane_axis(size_of(buffer.src(0)), 8, own);
    UOp init = UOp::make(Ops::AFTER, buffer.dtype(), deps).index({i}).store(UOp::constant(start, buffer.dtype())).end(own);
    return UOp::make(Ops::AFTER, buffer.dtype(), {buffer, init, block_range_});
  }
  /// What the ranges of the kernel are at these places of the tile and the block.
  Map places(UOp row, UOp over, UOp column) const {
    Map map = around_;
    if (row) {
      UOp place = fold_add(first_row_, row);
      // Rows side by side beyond a variable end are the last one again.
      map.push_back({f_.row, tile_size_ ? (place < all_rows_).where(place, all_rows_ + ConstValue(-1)) : place});
    }
    if (over) map.push_back({f_.over, fold_add(fold_mul(block_range_, block_), over)});
    if (column) map.push_back({f_.column, column});
    return map;
  }
  /// A place in the mean's range is one of the last block that lies beyond the end; empty: none does.
  UOp within(UOp over) const { return tail_ ? over < over_ : UOp(); }
  /// `value` at these places; what lies beyond the end is not read.
  UOp placed(UOp value, const Map& map, UOp gate) const {
    if (!gate) return value.substitute(map);
    Map gated = map;
    for (UOp u : value.toposort())
      if (u.is(Ops::INDEX) && depends_on(u, f_.over)) {
        UOps src{u.src(0).substitute(map)};
        for (UOp i : u.srcs().subspan(1)) src.push_back(i.substitute(map).valid(gate));
        gated.push_back({u, UOp::make(Ops::INDEX, u.dtype(), src, u.arg())});
      }
    return value.substitute(gated);
  }
  bool inside(UOp r) const { return r != block_range_ && std::find(outer_.begin(), outer_.end(), r) == outer_.end(); }

  UOp fill_scores() {
    UOps own;
    UOp over = lane_axis(block_, kVectors, own);
    const size_t columns = own.size();
    UOp row = row_axis(tile_rows_, own);
    const Map map = places(row, over, UOp());
    UOp gate = within(fold_add(fold_mul(block_range_, block_), over)), value = placed(f_.score, map, gate);
    // Operands of the product that all rows share.
    Map panels;
    for (UOp u : value.toposort()) {
      if (!u.is(Ops::REDUCE) || !u.src(0).is(Ops::MUL)) continue;
      for (UOp operand : u.src(0).srcs()) {
        UOps open;
        for (UOp r : ranges_of(operand))
          if (inside(r)) open.push_back(r);
        const bool of_block =
            std::any_of(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(columns), [&](UOp r) { return depends_on(operand, r); });
        const bool of_rows =
            std::any_of(own.begin() + static_cast<std::ptrdiff_t>(columns), own.end(), [&](UOp r) { return depends_on(operand, r); });
        if (of_block && !of_rows && !operand.dtype().is_weak() && plain(operand))
          panels.push_back({operand, stage(operand, open, panels_++, lanes_)});
      }
    }
    value = value.substitute(panels);
    if (gate) value = gate.where(value, UOp::constant(-INFINITY, value.dtype()));
    return scores_.index({fold_add(fold_mul(row, block_), over)}).store(value).end(own);
  }
  static bool plain(UOp u) {
    const UOps order = u.toposort();
    return std::none_of(order.begin(), order.end(), [](UOp v) { return v.in(Ops::REDUCE | Ops::AFTER); });
  }

  UOp update_rows(UOp filled) {
    UOps own, least, summed;
    UOp row = row_axis(8, own), first = fold_mul(row, block_), scores = scores_.after({filled});
    auto reduced = [&](UOps& over) { return fold_add(first, lane_axis(block_, 1, over, AxisType::kReduce, AxisType::kUnroll)); };
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

  UOp update_sums(UOp rows) {
    const int64_t columns = size_of(f_.column);
    UOps own;
    // The last block ends with the range: weights beyond it would be 0 times nothing.
    UOp column = lane_axis(columns, kVectors, own), row = row_axis(tile_rows_, own), over = loop(block_, AxisType::kReduce);
    if (tail_) {
      UOp left = over_ + fold_mul(block_range_, -block_);
      over = UOp::range((left < block_).where(left, UOp::constant(block_)), over.arg<RangeArg>());
    }
    UOp place = fold_add(fold_mul(row, columns), column);
    UOp p = at(scores_.after({rows}), fold_add(fold_mul(row, block_), over));
    UOp product = p * f_.weight.substitute(places(UOp(), over, column));
    UOp value = at(carried(acc_, 0), place) * at(factor_.after({rows}), row) + product.reduce(Ops::ADD, UOps{over});
    return acc_.index({place}).store(value).end(own);
  }

  /// The sum of 0 * w over the blocks that are left away.
  UOp closed_sum(UOp open, UOp blocks, UOp column) {
    UOp left = UOp::range(blocks + open * ConstValue(-1), RangeArg{{fresh_++}, AxisType::kReduce}), i = loop(block_, AxisType::kReduce);
    UOp over = (open + left) * ConstValue(block_) + i;
    Map map = around_;
    map.push_back({f_.over, over}), map.push_back({f_.column, column});
    return (placed(f_.weight, map, within(over)) * UOp::constant(0, dtypes::float32)).reduce(Ops::ADD, UOps{left, i});
  }

  /// The number of blocks in which the mask lets anything through for a row of the tile, where that is a question of row and column; empty: all.
  UOp open_blocks(UOp blocks) const {
    UOp s = simplify(f_.score);
    if (!s.is(Ops::WHERE) || !s.src(0).is(Ops::CMPLT) || !s.src(2).is_const() || s.src(2).is_invalid() || s.src(2).const_float() != -INFINITY)
      return {};
    // row * a + over * b + c < 0
    int64_t a = 0, b = 0;
    UOp c = UOp::constant(int64_t{0});
    std::vector<std::pair<UOp, int64_t>> stack{{s.src(0).src(0), 1}, {s.src(0).src(1), -1}};
    while (!stack.empty()) {
      auto [u, k] = stack.back();
      stack.pop_back();
      if (u == f_.row) a += k;
      else if (u == f_.over) b += k;
      else if (u.is_const() && !u.is_invalid() && u.dtype().is_int()) c = fold_add(c, UOp::constant(k * static_cast<int64_t>(u.const_int())));
      else if (u.is(Ops::ADD)) stack.push_back({u.src(0), k}), stack.push_back({u.src(1), k});
      else if (u.is(Ops::CAST) && u.src(0).dtype().is_int() && u.dtype().is_int() && u.dtype().itemsize() >= 4) stack.push_back({u.src(0), k});
      else if (u.is(Ops::PARAM)) c = fold_add(c, fold_mul(u, k));
      else return {};
    }
    if (b != 1 || a > 0 || a < -1) return {};
    // The last row of the tile is the one that sees the most.
    UOp most = fold_add(fold_mul(c, -1), UOp::constant(block_ - 1));
    if (a) most = fold_add(fold_add(first_row_, UOp::constant(rows_ - 1)), most);
    UOp n = UOp::alu(Ops::FLOORDIV, {most, UOp::constant(block_)});
    n = (n < blocks).where(n, blocks);
    return UOp::alu(Ops::MAX, {n, UOp::constant(int64_t{0})});
  }

  UOp sink_;
  OnlineForm f_;
  int64_t lanes_, tile_rows_, rows_, block_;
  UOp all_rows_;       // their number
  UOp tile_size_;      // rows of a tile when their number is variable
  UOp over_;           // the size of the mean's range
  bool tail_ = false;  // it may end within a block
  UOps outer_;
  Map around_;
  UOp first_row_, block_range_, scores_, top_, total_, factor_, acc_;
  int32_t fresh_ = kFirstRange, slots_ = 0, panels_ = 0;
};
}  // namespace

UOp online_blocks(UOp sink, const OnlineForm& form, const Renderer& renderer) { return Blocks(sink, form, renderer).run(); }

}  // namespace tg
