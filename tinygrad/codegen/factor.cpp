/// \file Factors taken out of the unrolled part of a sum.
#include "tinygrad/codegen/factor.h"

#include <algorithm>

#include "tinygrad/codegen/rebuild.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
bool is_unrolled(UOp r) { return r.is(Ops::RANGE) && r.arg<RangeArg>().type == AxisType::kUnroll; }
void factors(UOp u, UOps* out) {
  UOps stack{u};
  while (!stack.empty()) {
    UOp v = stack.back();
    stack.pop_back();
    if (v.is(Ops::MUL)) {
      stack.push_back(v.src(1));
      stack.push_back(v.src(0));
    } else out->push_back(v);
  }
}
UOp product(const UOps& f) {
  UOp p = f[0];
  for (size_t i = 1; i < f.size(); i++) p = UOp::alu(Ops::MUL, {p, f[i]});
  return p;
}

UOp factored(UOp reduce) {
  UOps unrolled, rest, all;
  for (uint32_t i = 1; i < reduce.nsrc(); i++) (is_unrolled(reduce.src(i)) ? unrolled : rest).push_back(reduce.src(i));
  if (unrolled.empty() || rest.empty()) return reduce;
  factors(reduce.src(0), &all);
  // The ranges of the inner sum: those that some factor does without, as many as possible.
  UOps inner;
  for (UOp f : all) {
    UOps without;
    for (UOp r : unrolled)
      if (!depends_on(f, r)) without.push_back(r);
    if (without.size() > inner.size()) inner = without;
  }
  if (inner.empty()) return reduce;
  UOps outside, inside;
  for (UOp f : all) {
    const bool moves = std::none_of(inner.begin(), inner.end(), [&](UOp r) { return depends_on(f, r); });
    (moves ? outside : inside).push_back(f);
  }
  if (outside.empty() || inside.size() < 2) return reduce;
  UOps sum{product(inside)}, outer;
  sum.insert(sum.end(), inner.begin(), inner.end());
  outside.push_back(UOp::make(Ops::REDUCE, reduce.dtype(), sum, reduce.arg()));
  outer.push_back(product(outside));
  for (uint32_t i = 1; i < reduce.nsrc(); i++)
    if (std::find(inner.begin(), inner.end(), reduce.src(i)) == inner.end()) outer.push_back(reduce.src(i));
  return UOp::make(Ops::REDUCE, reduce.dtype(), outer, reduce.arg(), reduce.tag());
}
}  // namespace

UOp factor_reduces(UOp sink) {
  return rebuild(sink, [](UOp u) {
    return u.is(Ops::REDUCE) && u.dtype().is_float() && u.arg<ReduceArg>().op == Ops::ADD && u.src(0).is(Ops::MUL)
               ? factored(u)
               : u;
  });
}

}  // namespace tg
