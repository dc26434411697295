/// \file Output rows of a window kernel as one range: what has the form, and the kernel in the new range.
#include "tinygrad/codegen/plan/flatten_rows.h"

#include <algorithm>
#include <optional>

#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {

/// A sum of ranges and where the mask is open along it.
struct Line {
  Slide slide;
  UOp range;  // the output range, of coefficient 1
  int64_t first = 0, last = 0, lo = 0, hi = 0, memory = 0;
};

/// Takes lo and hi of the line from a clause of the mask; false when it is no bound of this line.
bool bound(UOp clause, Line* line) {
  const bool negated = clause.is(Ops::CMPNE) && clause.src(1).is_const_int(1);
  UOp less = negated ? clause.src(0) : clause;
  if (!less.is(Ops::CMPLT)) return false;
  AffineIndex a(less.src(0)), b = AffineIndex(less.src(1));
  if (!a.rest.empty() || !b.rest.empty()) return false;
  // sign * sum + offset < 0
  const int64_t offset = a.offset - b.offset;
  int64_t sign = a.coefficient(line->range) - b.coefficient(line->range);
  if (sign != 1 && sign != -1) return false;
  size_t terms = 0;
  for (const auto& [r, k] : line->slide) {
    if (a.coefficient(r) - b.coefficient(r) != sign * k) return false;
    terms++;
  }
  if (a.terms.size() + b.terms.size() != terms) return false;
  if (sign == 1 && !negated) line->hi = std::min(line->hi, -offset);
  else if (sign == -1 && !negated) line->lo = std::max(line->lo, offset + 1);
  else if (sign == 1) line->lo = std::max(line->lo, -offset);
  else line->hi = std::min(line->hi, offset + 1);
  return true;
}
/// An operand that slides along rows and columns of the output.
struct Image {
  UOp load;           ///< the operand
  UOp gate;           ///< the mask of its index; empty: none
  UOp masked;         ///< the WHERE of its product that the mask replaces; empty: none
  AffineIndex index;  ///< where it reads
  Line row, column;
};

/// Returns the value that the kernel's one sum takes: a product, or one under a mask; empty when it has no such sum.
UOp summed_product(UOp sink) {
  UOp reduce;
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE)) continue;
    if (reduce) return {};
    reduce = u;
  }
  if (!reduce || reduce.arg<ReduceArg>().op != Ops::ADD || sink.nsrc() != 1 || !sink.src(0).is(Ops::END)) return {};
  const UOp value = reduce.src(0);
  return (value.is(Ops::WHERE) ? value.src(1) : value).is(Ops::MUL) ? value : UOp();
}

/// Returns a sum of two ranges, an output range of coefficient 1 and a tap, as a line; nullopt: it is none.
std::optional<Line> line_of(const Slide& slide, const AffineIndex& index) {
  Line l;
  l.slide = slide;
  size_t outputs = 0;
  for (const auto& [r, k] : slide)
    if (r.arg<RangeArg>().type == AxisType::kLoop) {
      l.range = r;
      outputs++;
    }
  const bool backwards =
      std::any_of(slide.begin(), slide.end(), [&](const auto& t) { return t.first == l.range && t.second < 0; });
  for (auto& [r, k] : l.slide) {
    if (backwards) k = -k;
    if (r == l.range && k == 1) l.memory = index.coefficient(r);
    (k < 0 ? l.first : l.last) += k * (constant_size(r) - 1);
  }
  l.lo = l.first;
  l.hi = l.last + 1;
  if (slide.size() != 2 || outputs != 1 || l.memory <= 0) return {};
  return l;
}

/// Narrows rows and columns to where the mask is open; false when it has other clauses.
bool bound_by(UOp gate, Line& row, Line& column) {
  UOps stack;
  if (gate) stack.push_back(gate);
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (u.is(Ops::AND)) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
    } else if (!bound(u, &row) && !bound(u, &column)) return false;
  }
  return true;
}

/// Finds the image among the two factors of a product.
std::optional<Image> find_image(UOp sink, UOp value, UOp factor, UOp other) {
  if (!factor.is(Ops::LOAD) || factor.nsrc() != 1 || !factor.src(0).is(Ops::INDEX)) return {};
  const WindowOperand w = window_operand(sink, factor);
  if (w.value != factor || (value.is(Ops::WHERE) && w.masked != value)) return {};
  const UOp index = factor.src(0).src(1);
  Image m{factor, index.is(Ops::WHERE) ? index.src(0) : UOp(), w.masked, AffineIndex(index), {}, {}};
  if (!m.index.rest.empty()) return {};
  std::vector<Line> lines;
  for (const Slide& s : slides(factor))
    if (std::optional<Line> l = line_of(s, m.index)) lines.push_back(std::move(*l));
  if (lines.size() != 2) return {};
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.memory > b.memory; });
  m.row = std::move(lines[0]);
  m.column = std::move(lines[1]);
  if (m.column.memory != 1 || depends_on(other, m.row.range) || depends_on(other, m.column.range)) return {};
  if (!bound_by(m.gate, m.row, m.column) || m.column.hi <= m.column.lo || m.row.hi <= m.row.lo) return {};
  return m;
}

/// Returns the index of the image at row `r` and column `c` of its open part.
UOp index_at(const Image& m, UOp r, UOp c) {
  UOp at = UOp::constant(m.index.offset + m.column.lo);
  for (const auto& [x, k] : m.index.terms) {
    auto has = [x = x](const Line& l) {
      return std::any_of(l.slide.begin(), l.slide.end(), [&](const auto& t) { return t.first == x; });
    };
    if (!has(m.row) && !has(m.column)) at = at + x * k;
  }
  return at + r * m.row.memory + c;
}

/// Replaces the loops in `end` that are now one: what stands for row and column becomes the range, once.
UOp end_of(UOp end, UOp row, UOp column, UOp range) {
  UOps src{end.src(0)};
  for (uint32_t k = 1; k < end.nsrc(); k++) {
    const UOp loop = end.src(k) == row || end.src(k) == column ? range : end.src(k);
    if (std::find(src.begin() + 1, src.end(), loop) == src.end()) src.push_back(loop);
  }
  return UOp::make(Ops::END, end.dtype(), src, end.arg(), end.tag());
}

UOp flattened(UOp sink, const Image& m) {
  const Line &row = m.row, &column = m.column;
  const int64_t width = constant_size(column.range), height = constant_size(row.range);
  const int64_t pitch = std::max({column.hi - column.first, column.last - column.lo + 1, width});
  // The place in the window, from 0: (row - first row) * pitch + column - lo.
  const bool cut = column.lo > column.first;
  const int64_t shift = -row.first * pitch + (cut ? pitch : 0) - column.lo, up = row.first - (cut ? 1 : 0);
  UOp flat = UOp::range(UOp::constant(height * pitch), row.range.arg<RangeArg>()), n = UOp::constant(pitch);
  // Stands for the place while the rest is simplified.
  UOp place = UOp::range(UOp::constant((row.last - row.first + 3) * pitch), column.range.arg<RangeArg>());
  UOp r = place / n + up, c = place % n;
  auto in = [](UOp x, int64_t lo, int64_t hi) { return x.ge(UOp::constant(lo)) & (x < UOp::constant(hi)); };
  const UOp open = in(r, row.lo, row.hi) & (c < UOp::constant(column.hi - column.lo));
  const UOp buffer = m.load.src(0).src(0);
  const UOp load = UOp::make(Ops::INDEX, m.load.dtype(), {buffer, index_at(m, r, c).valid(open)}).load();
  UOp y = flat / n, x = flat % n, stored = x < UOp::constant(width);
  UOp out = rebuild(sink.substitute({{m.load, load}}), [&](UOp u) {
    if (u == row.range) return y;
    if (u == column.range) return x;
    if (u.is(Ops::WHERE) && m.masked && u.src(1).is(Ops::MUL) && (u.src(1).src(0) == load || u.src(1).src(1) == load))
      return UOp::alu(Ops::WHERE, {open, u.src(1), u.src(2)});
    if (pitch > width && u.is(Ops::INDEX) && u.src(0).is(Ops::PARAM) && depends_on(u.src(1), flat))
      return UOp::make(Ops::INDEX, u.dtype(), {u.src(0), u.src(1).valid(stored)});
    return u.is(Ops::END) ? end_of(u, y, x, flat) : u;
  });
  out = graph_rewrite(out, sym(), {.name = "flatten output rows"});
  UOp sum = flat;
  for (const auto& [t, k] : row.slide)
    if (t != row.range) sum = sum + t * (k * pitch);
  for (const auto& [t, k] : column.slide)
    if (t != column.range) sum = sum + t * k;
  return out.substitute({{place, sum + shift}});
}
}  // namespace

UOp flatten_output_rows(UOp sink) {
  const UOp value = summed_product(sink);
  if (!value) return sink;
  const UOp product = value.is(Ops::WHERE) ? value.src(1) : value;
  for (uint32_t i = 0; i < 2; i++)
    if (const std::optional<Image> m = find_image(sink, value, product.src(i), product.src(1 - i)))
      return flattened(sink, *m);
  return sink;
}

}  // namespace tg
