/// \file Factors hoisted out of the unrolled part of a sum.
#include "tinygrad/codegen/expand/factor.h"

#include "tinygrad/base/contains.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {
namespace {
using namespace upat;

UOp product(const UOps& factors) { return join_terms(Ops::MUL, factors, factors[0].dtype()); }

UOp factored(UOp reduce) {
  UOps unrolled, others;
  for (UOp r : listed_ranges(reduce)) (is_range(r, AxisType::kUnroll) ? unrolled : others).push_back(r);
  if (unrolled.empty() || others.empty()) return reduce;
  const UOps factors = split_terms(reduce.src(0), Ops::MUL);
  // The ranges of the inner sum: those that some factor does not depend on, as many as possible.
  UOps inner;
  for (UOp f : factors) {
    UOps without;
    for (UOp r : unrolled)
      if (!depends_on(f, r)) without.push_back(r);
    if (without.size() > inner.size()) inner = without;
  }
  if (inner.empty()) return reduce;
  UOps outside, inside;
  for (UOp f : factors) (depends_on_any(f, inner) ? inside : outside).push_back(f);
  if (outside.empty() || inside.size() < 2) return reduce;
  UOps sum{product(inside)};
  sum.insert(sum.end(), inner.begin(), inner.end());
  outside.push_back(UOp::make(Ops::REDUCE, reduce.dtype(), sum, reduce.arg()));
  UOps outer{product(outside)};
  for (UOp r : listed_ranges(reduce))
    if (!contains(inner, r)) outer.push_back(r);
  return UOp::make(Ops::REDUCE, reduce.dtype(), outer, reduce.arg(), reduce.tag());
}
bool is_float_sum(UOp u) { return u.dtype().is_float() && u.arg<ReduceArg>().op == Ops::ADD; }

/// A translation: the outer sum is not factored again.
const PatternMatcher<>& pm_factor_reduces() {
  static const PatternMatcher<> t{
      rule(when(u = op<Ops::REDUCE>(x * y, rest), [](UOp r) { return is_float_sum(r); }),
           [](Translation& t, U u) { return factored(t.over(u)); }),
  };
  return t;
}
}  // namespace

UOp factor_reduces(UOp sink) {
  Translation once;
  return translate(sink, pm_factor_reduces(), once);
}

}  // namespace tg
