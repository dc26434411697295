/// \file Rows of a padded operand one after the other: two output ranges become one long range for the lanes.
///
/// A window holds the rows of an image with zeros between them. Where the zeros behind one row serve as the zeros
/// before the next, taps move along the whole image as if it were one row: row * pitch + column + tap, for any number
/// of columns. Columns beyond the width are computed and not stored.
#include <algorithm>

#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/fold.h"
#include "tinygrad/codegen/opt.h"
#include "tinygrad/codegen/window.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
int64_t size_of(UOp r) { return static_cast<int64_t>(r.src(0).const_int()); }

/// A sum of ranges and where the mask is open along it.
struct Line {
  Slide slide;
  UOp range;  // the output range, of coefficient 1
  int64_t first = 0, last = 0, lo = 0, hi = 0, memory = 0;
};

/// lo and hi of the line from a clause of the mask; false when it is no bound of this line.
bool bound(UOp clause, Line* line) {
  const bool negated = clause.is(Ops::CMPNE) && clause.src(1).is_const_int(1);
  UOp less = negated ? clause.src(0) : clause;
  if (!less.is(Ops::CMPLT)) return false;
  LinearForm a = linear_form(less.src(0)), b = linear_form(less.src(1));
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
}  // namespace

UOp merge_rows(UOp sink) {
  UOps order = sink.toposort();
  UOp reduce;
  for (UOp u : order) {
    if (!u.is(Ops::REDUCE)) continue;
    if (reduce) return sink;
    reduce = u;
  }
  if (!reduce || reduce.arg<ReduceArg>().op != Ops::ADD || sink.nsrc() != 1 || !sink.src(0).is(Ops::END)) return sink;
  UOp whole = reduce.src(0), product = whole.is(Ops::WHERE) ? whole.src(1) : whole;
  if (!product.is(Ops::MUL)) return sink;
  for (uint32_t i = 0; i < 2; i++) {
    UOp value = product.src(i), other = product.src(1 - i);
    if (!value.is(Ops::LOAD) || value.nsrc() != 1 || !value.src(0).is(Ops::INDEX)) continue;
    const WindowOperand w = window_operand(sink, value);
    if (w.value != value || (whole.is(Ops::WHERE) && w.masked != whole)) continue;
    UOp index = value.src(0).src(1), gate;
    if (index.is(Ops::WHERE)) gate = index.src(0);
    const LinearForm address = linear_form(index);
    if (!address.rest.empty()) continue;
    // Rows and columns: each an output range and a tap.
    std::vector<Line> lines;
    for (const Slide& s : slides(value)) {
      Line l;
      l.slide = s;
      size_t outputs = 0;
      for (const auto& [r, k] : s)
        if (r.arg<RangeArg>().type == AxisType::kLoop) {
          l.range = r;
          outputs++;
        }
      for (auto& [r, k] : l.slide)
        if (r == l.range && k < 0) {
          for (auto& t : l.slide) t.second = -t.second;
          break;
        }
      for (const auto& [r, k] : l.slide) {
        if (r == l.range && k == 1) l.memory = address.coefficient(r);
        (k < 0 ? l.first : l.last) += k * (size_of(r) - 1);
      }
      l.lo = l.first;
      l.hi = l.last + 1;
      if (s.size() == 2 && outputs == 1 && l.memory > 0) lines.push_back(std::move(l));
    }
    if (lines.size() != 2) continue;
    std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.memory > b.memory; });
    Line &row = lines[0], &column = lines[1];
    if (column.memory != 1 || depends_on(other, row.range) || depends_on(other, column.range)) continue;
    bool known = true;
    UOps stack;
    if (gate) stack.push_back(gate);
    while (!stack.empty() && known) {
      UOp u = stack.back();
      stack.pop_back();
      if (u.is(Ops::AND)) {
        stack.push_back(u.src(0));
        stack.push_back(u.src(1));
      } else known = bound(u, &row) || bound(u, &column);
    }
    const int64_t width = size_of(column.range), height = size_of(row.range);
    if (!known || column.hi <= column.lo || row.hi <= row.lo) continue;
    const int64_t pitch = std::max({column.hi - column.first, column.last - column.lo + 1, width});
    // The place in the window, from 0: (row - first row) * pitch + column - lo.
    const int64_t shift = -row.first * pitch + (column.lo > column.first ? pitch : 0) - column.lo,
                  up = row.first - (column.lo > column.first ? 1 : 0);
    UOp m = UOp::range(UOp::constant(height * pitch), row.range.arg<RangeArg>()), n = UOp::constant(pitch);
    RangeArg other_arg = column.range.arg<RangeArg>();
    UOp place = UOp::range(UOp::constant((row.last - row.first + 3) * pitch),
                           other_arg);  // stands for it while the rest is simplified
    UOp r = place / n + up, c = place % n;
    auto in = [](UOp x, int64_t lo, int64_t hi) { return x.ge(UOp::constant(lo)) & (x < UOp::constant(hi)); };
    UOp open = in(r, row.lo, row.hi) & (c < UOp::constant(column.hi - column.lo));
    UOp at = UOp::constant(address.offset + column.lo);
    for (const auto& [x, k] : address.terms) {
      const bool moved = std::any_of(lines.begin(), lines.end(), [&, x = x](const Line& l) {
        return std::any_of(l.slide.begin(), l.slide.end(), [&](const auto& t) { return t.first == x; });
      });
      if (!moved) at = at + x * k;
    }
    at = at + r * row.memory + c;
    UOp load = UOp::make(Ops::INDEX, value.dtype(), {value.src(0).src(0), at.valid(open)}).load();
    UOp y = m / n, x = m % n, stored = x < UOp::constant(width);
    UOp out = rebuild(sink.substitute({{value, load}}), [&](UOp u) {
      if (u == row.range) return y;
      if (u == column.range) return x;
      if (u.is(Ops::WHERE) && w.masked && u.src(1).is(Ops::MUL) && (u.src(1).src(0) == load || u.src(1).src(1) == load))
        return UOp::alu(Ops::WHERE, {open, u.src(1), u.src(2)});
      if (pitch > width && u.is(Ops::INDEX) && u.src(0).is(Ops::PARAM) && depends_on(u.src(1), m))
        return UOp::make(Ops::INDEX, u.dtype(), {u.src(0), u.src(1).valid(stored)});
      if (!u.is(Ops::END)) return u;
      UOps s{u.src(0)};
      for (uint32_t k = 1; k < u.nsrc(); k++) {
        UOp loop = u.src(k) == y || u.src(k) == x ? m : u.src(k);
        if (std::find(s.begin() + 1, s.end(), loop) == s.end()) s.push_back(loop);
      }
      return UOp::make(Ops::END, u.dtype(), s, u.arg(), u.tag());
    });
    out = graph_rewrite(out, sym(), {.name = "merge rows"});
    UOp sum = m;
    for (const auto& [t, k] : row.slide)
      if (t != row.range) sum = sum + t * (k * pitch);
    for (const auto& [t, k] : column.slide)
      if (t != column.range) sum = sum + t * k;
    return out.substitute({{place, sum + shift}});
  }
  return sink;
}

}  // namespace tg
