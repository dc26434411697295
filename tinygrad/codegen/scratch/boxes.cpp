/// \file Copies in boxes.
#include "tinygrad/codegen/scratch/boxes.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/target/shared_matrix.h"
#include "tinygrad/uop/barriers.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
/// Returns the values of a sum of ranges as an expression, with some ranges left out.
UOp expression(const AffineIndex& sum, const UOps& without) {
  UOp all = UOp::constant(sum.offset);
  for (const auto& [r, k] : sum.terms)
    if (!contains(without, r)) all = fold_add(fold_mul(r, k), all);
  return all;
}

/// Returns how many of the last ranges walk the parameter with one step, row after row.
size_t even_rows(const AffineIndex& row, const UOps& rows) {
  int64_t step = 1;
  size_t n = 0;
  for (; n < rows.size(); n++) {
    const UOp r = rows[rows.size() - 1 - n];
    if (constant_size(r) > 1 && row.coefficient(r) != step) break;
    step *= constant_size(r);
  }
  return n;
}
}  // namespace

UOp without_ends(UOp load) {
  if (!load.is(Ops::LOAD) || load.nsrc() != 1 || !load.src(0).is(Ops::INDEX)) return load;
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp u : load.src(0).src(1).toposort()) {
    if (!u.is(Ops::WHERE) || !u.src(0).is(Ops::CMPLT) || u.src(0).src(0) != u.src(1)) continue;
    const UOp end = u.src(0).src(1), last = u.src(2);
    if (end.is_const() && last.is_const() && !last.is_invalid() && last.const_int() == end.const_int() - 1)
      map.push_back({u, u.src(1)});
  }
  if (map.empty()) return load;
  const UOp index = load.src(0);
  return UOp::make(Ops::INDEX, index.dtype(), {index.src(0), index.src(1).substitute(map)}).load();
}

bool copies_boxes(const Target& target) { return target.has("tensor_maps"); }

std::optional<RowsOfParam> rows_of_param(UOp load, int64_t step) {
  if (!load.is(Ops::LOAD) || load.nsrc() != 1 || !load.src(0).is(Ops::INDEX) || step <= 0) return {};
  const UOp param = load.src(0).src(0);
  if (!param.is(Ops::PARAM) || param.src(0).nsrc() != 1 || !param.src(0).src(0).is_const()) return {};
  const AffineIndex index(load.src(0).src(1));
  const int itemsize = load.dtype().itemsize();
  if (!index.rest.empty() || index.offset < 0 || step * itemsize % kTensorAlignment) return {};
  RowsOfParam out{param, {}, {}, {}};
  out.column.offset = index.offset % step;
  out.row.offset = index.offset / step;
  int64_t last = out.column.offset;
  for (const auto& [r, k] : index.terms) {
    if (k < 0 || !r.src(0).is_const()) return {};
    if (k % step == 0) {
      out.row.add(r, k / step);
      continue;
    }
    out.column.add(r, k);
    last += k * (static_cast<int64_t>(r.src(0).const_int()) - 1);
    if (last >= step) return {};
  }
  const int64_t bytes = static_cast<int64_t>(param.src(0).src(0).const_int()) * param.dtype().itemsize();
  out.map = {static_cast<int>(param.arg<ParamArg>().slot), itemsize, step, (bytes / itemsize + step - 1) / step};
  return out;
}

std::optional<BoxedPanel> BoxedPanel::of(UOp value, const UOps& rows, const UOps& columns, UOp shared) {
  if (!value.is(Ops::LOAD) || rows.empty() || columns.empty()) return {};
  const AffineIndex index(value.src(0).src(1));
  const auto long_one = std::find_if(rows.rbegin(), rows.rend(), [](UOp r) { return constant_size(r) > 1; });
  if (long_one == rows.rend()) return {};
  auto from = rows_of_param(value, index.coefficient(*long_one));
  if (!from) return {};
  BoxedPanel p;
  p.from_ = std::move(*from);
  p.shared_ = shared;
  p.each_ = kMatrixRow / value.dtype().itemsize();
  p.columns_ = p.rows_ = p.of_block_ = 1;
  for (size_t i = columns.size(); i-- > 0; p.columns_ *= constant_size(columns[i]))
    if (constant_size(columns[i]) > 1 && p.from_.column.coefficient(columns[i]) != p.columns_) return {};
  const size_t even = even_rows(p.from_.row, rows);
  p.blocks_ = {0};
  for (size_t i = 0; i < rows.size(); i++) {
    const int64_t n = constant_size(rows[i]);
    p.rows_ *= n;
    if (i + even >= rows.size()) {
      p.of_block_ *= n;
      continue;
    }
    std::vector<int64_t> all;
    for (int64_t begin : p.blocks_)
      for (int64_t k = 0; k < n; k++) all.push_back(begin + k * p.from_.row.coefficient(rows[i]));
    p.blocks_ = std::move(all);
  }
  if (!std::all_of(rows.begin(), rows.end(), [&](UOp r) { return p.from_.column.coefficient(r) == 0; })) return {};
  const int64_t parts = shared ? constant_size(shared) : 1;
  int64_t& height = p.from_.map.box_height;
  p.from_.map.box_width = p.each_;
  for (height = std::min(p.of_block_ / parts, kMostBoxRows); height > 0 && p.of_block_ / parts % height;) height--;
  if (p.columns_ % p.each_ || p.of_block_ % parts || height % kMatrixRows || !is_possible(p.from_.map)) return {};
  UOps inside = rows;
  inside.insert(inside.end(), columns.begin(), columns.end());
  for (AffineIndex* sum : {&p.from_.column, &p.from_.row})
    std::erase_if(sum->terms, [&](const auto& t) { return contains(inside, t.first); });
  return p;
}

void BoxedPanel::copy(const Target& to, UOps* copies) const {
  const int64_t parts = shared_ ? constant_size(shared_) : 1, own = of_block_ / parts, height = from_.map.box_height;
  const UOp column = expression(from_.column, {}).substitute(to.map),
            row = expression(from_.row, {}).substitute(to.map),
            slice = shared_ ? fold_mul(shared_, own) : UOp::constant(int64_t{0});
  const Arg arg(str("box ", parts, " ", from_.map.text()));
  for (size_t b = 0; b < blocks_.size(); b++)
    for (int64_t c = 0; c < columns_ / each_; c++)
      for (int64_t r = 0; r < own; r += height) {
        const UOp below = fold_add(slice, UOp::constant(r)),
                  line = fold_add(below, UOp::constant(c * rows_ + static_cast<int64_t>(b) * of_block_)),
                  at = fold_add(fold_mul(line, each_), to.offset);
        UOps src{to.memory.index({at}),
                 to.barriers,
                 to.number,
                 from_.param,
                 fold_add(column, UOp::constant(c * each_)),
                 fold_add(fold_add(row, below), UOp::constant(blocks_[b]))};
        if (to.gate) src.push_back(to.gate);
        copies->push_back(UOp::make(Ops::CUSTOM, dtypes::void_, src, arg));
      }
}

}  // namespace tg
