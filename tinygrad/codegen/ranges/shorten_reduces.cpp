/// \file Bounds of reduce loops, solved from comparisons.
#include "tinygrad/codegen/ranges/shorten_reduces.h"

#include <cmath>
#include <unordered_map>

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
/// Gates of indices are of the type of indices.
bool is_mark(UOp u) { return u.is(Ops::WHERE) && u.src(2).is_invalid() && u.dtype() != dtypes::weakint; }

/// sum < bound, or its negation.
struct Comparison {
  AffineIndex sum;
  int64_t bound = 0;
  bool negated = false;
};

/// Returns the comparisons of sums of ranges with literals that all have to hold.
std::vector<Comparison> comparisons_of(UOp gate) {
  std::vector<Comparison> out;
  for (UOp u : split_terms(gate, Ops::AND)) {
    const bool negated = u.is(Ops::CMPNE) && u.src(1).is_const() && u.src(0).dtype().is_bool() && u.src(1).const_int();
    if (negated) u = u.src(0);
    if (!u.is(Ops::CMPLT) || !u.src(1).is_const() || !u.src(0).dtype().is_int()) continue;
    Comparison c{AffineIndex(u.src(0)), static_cast<int64_t>(u.src(1).const_int()), negated};
    if (c.sum.rest.empty()) out.push_back(std::move(c));
  }
  return out;
}

UOp literal(int64_t v) { return UOp::constant(v); }
UOp quotient(UOp a, int64_t b) { return fold2(Ops::FLOORDIV, a, literal(b)); }
UOp greater(UOp a, UOp b) { return fold2(Ops::MAX, a, b); }
UOp smaller(UOp a, UOp b) { return fold_mul(greater(fold_mul(a, -1), fold_mul(b, -1)), -1); }

/// The steps of a loop in which comparisons may hold.
class Steps {
 public:
  Steps(UOp reduce, UOp loop) : reduce_(reduce), loop_(loop), begin_(literal(0)), end_(loop.src(0)) {}

  /// Leaves out the steps in which a comparison holds for nothing. With k * loop + others < bound, or not below it:
  /// what counts is the least, or the greatest, value of the others.
  void restrict(const Comparison& c) {
    const int64_t k = c.sum.coefficient(loop_);
    if (k == 0) return;
    int64_t offset = c.sum.offset - c.bound;  // k * loop + others + offset < 0
    UOp others = literal(0);
    for (const auto& [r, factor] : c.sum.terms) {
      if (r == loop_) continue;
      if (is_loop(r) && !contains(listed_ranges(reduce_), r)) {
        others = fold_add(others, fold_mul(r, factor));
      } else if ((factor > 0) == c.negated) {
        if (!static_size(r)) return;
        offset += factor * (*static_size(r) - 1);
      }
    }
    others = fold_add(others, literal(offset));
    const int64_t size = std::abs(k);
    const UOp minus = fold_mul(others, -1);
    // The last step that may hold is below: k > 0, k * loop < -others; or k < 0, -k * loop <= others. Else the first.
    if (k > 0 && !c.negated) last(quotient(fold_add(minus, literal(-1)), size));
    else if (k < 0 && c.negated) last(quotient(others, size));
    else if (k > 0) first(quotient(fold_add(minus, literal(size - 1)), size));
    else first(fold_add(quotient(others, size), literal(1)));
  }

  bool all() const { return begin_ == literal(0) && end_ == loop_.src(0); }
  /// Returns the loop over these steps alone, and sets `step` to the step of the loop before that it is at.
  UOp shortened(UOp* step) const {
    const UOp count = fold_add(end_, fold_mul(begin_, -1));
    const UOp loop = UOp::make(Ops::RANGE, loop_.dtype(), {greater(count, literal(0))}, loop_.arg(), loop_.tag());
    *step = fold_add(loop, begin_);
    return loop;
  }

 private:
  void first(UOp step) { begin_ = greater(begin_, step); }
  void last(UOp step) { end_ = smaller(fold_add(step, literal(1)), end_); }

  UOp reduce_, loop_, begin_, end_;
};

/// Returns the loop of a sum that a gate bounds most coarsely; empty: it bounds none.
UOp loop_to_shorten(UOp reduce, const std::vector<Comparison>& gate) {
  UOp best;
  int64_t most = 0;
  for (UOp r : listed_ranges(reduce))
    for (const Comparison& c : gate)
      if (const int64_t k = std::abs(c.sum.coefficient(r)); is_loop(r) && constant_size(r) > 1 && k > most) {
        most = k;
        best = r;
      }
  return best;
}

/// Returns the sum over the steps of one loop in which the mark of its terms holds somewhere.
UOp shortened(UOp reduce, const std::unordered_map<UOp, int>& sums) {
  const UOp term = reduce.src(0).src(1);
  const std::vector<Comparison> gate = comparisons_of(reduce.src(0).src(0));
  const UOp loop = loop_to_shorten(reduce, gate);
  UOps srcs(reduce.srcs().begin(), reduce.srcs().end());
  srcs[0] = term;
  if (!loop || sums.at(loop) != 1) return reduce.with_srcs(srcs);
  Steps steps(reduce, loop);
  for (const Comparison& c : gate) steps.restrict(c);
  if (steps.all()) return reduce.with_srcs(srcs);
  UOp step;
  const UOp shorter = steps.shortened(&step);
  srcs[0] = term.substitute({{loop, step}});
  for (size_t i = 1; i < srcs.size(); i++)
    if (srcs[i] == loop) srcs[i] = shorter;
  return reduce.with_srcs(srcs);
}
}  // namespace

UOp needed_where(UOp gate, UOp term) { return term.valid(gate); }

UOp shorten_reduces(UOp sink) {
  bool marked = false;
  std::unordered_map<UOp, int> sums;  // of which a range is a loop
  for (UOp u : sink.toposort()) {
    marked |= is_mark(u);
    if (u.is(Ops::REDUCE))
      for (UOp r : listed_ranges(u)) sums[r]++;
  }
  if (!marked) return sink;
  sink = rebuild(sink, [&](UOp u) { return u.is(Ops::REDUCE) && is_mark(u.src(0)) ? shortened(u, sums) : u; });
  return rebuild(sink, [](UOp u) { return is_mark(u) ? u.src(1) : u; });
}

}  // namespace tg
