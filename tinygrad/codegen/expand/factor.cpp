/// \file Factors hoisted out of the unrolled part of a sum.
#include "tinygrad/codegen/expand/factor.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/decomp/exact_product.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {
namespace {
using namespace upat;

UOp product(const UOps& factors) { return join_terms(Ops::MUL, factors, factors[0].dtype()); }

/// A sum over ranges, of which the unrolled ones may become a sum of their own.
struct Sum {
  UOp reduce;
  UOps unrolled, factors;

  UOps independent(UOp u) const {
    UOps out;
    for (UOp r : unrolled)
      if (!depends_on(u, r)) out.push_back(r);
    return out;
  }
  UOp over(const UOps& inner, const UOps& of) const {
    UOps sum{product(of)};
    sum.insert(sum.end(), inner.begin(), inner.end());
    return UOp::make(Ops::REDUCE, reduce.dtype(), sum, reduce.arg());
  }
  /// The whole sum, when `value` is what remains of it after the sum over `inner`.
  UOp outer(UOp value, const UOps& inner) const {
    UOps src{value};
    for (UOp r : listed_ranges(reduce))
      if (!contains(inner, r)) src.push_back(r);
    return UOp::make(Ops::REDUCE, reduce.dtype(), src, reduce.arg(), reduce.tag());
  }
};

/// Returns how many unrolled results use one value of `part`: those that the rest of the product tells apart.
int64_t users(const Sum& s, UOp part) {
  int64_t n = 1;
  for (UOp r : ranges_of(s.reduce))
    if (is_range(r, AxisType::kUpcast) && !depends_on(part, r)) n *= constant_size(r);
  return n;
}
/// From how many users on a product that they share costs less than a factor of each one's sum.
constexpr int64_t kManyUsers = 4;

/// Returns true where some of `outside` and of `inside` are multiplied once for many results.
bool is_shared_product(const Sum& s, const UOps& outside, const UOps& inside) {
  for (UOp part : s.reduce.src(0).srcs()) {
    const UOps terms = split_terms(part, Ops::MUL);
    const auto has = [&](const UOps& of) {
      return std::any_of(of.begin(), of.end(), [&](UOp f) { return contains(terms, f); });
    };
    if (has(outside) && has(inside) && users(s, part) >= kManyUsers) return true;
  }
  return false;
}

UOp with_factors_outside(const Sum& s) {
  // The ranges of the inner sum: those that some factor does not depend on, as many as possible.
  UOps inner;
  for (UOp f : s.factors) {
    const UOps without = s.independent(f);
    if (without.size() > inner.size()) inner = without;
  }
  if (inner.empty()) return {};
  UOps outside, inside;
  for (UOp f : s.factors) (depends_on_any(f, inner) ? inside : outside).push_back(f);
  if (outside.empty() || inside.size() < 2 || is_shared_product(s, outside, inside)) return {};
  outside.push_back(s.over(inner, inside));
  return s.outer(product(outside), inner);
}

/// where(gate, q * scale + offset, 0), q being a small integer; the gate may be missing.
struct AffineFactor {
  UOp q, scale, offset, gate;
};
/// Reads a factor; an empty q: it has another form.
AffineFactor affine_factor(const Sum& s, UOp f) {
  AffineFactor a;
  if (f.is(Ops::WHERE) && f.src(2).is_const() && f.src(2).const_float() == 0) {
    a.gate = f.src(0);
    f = f.src(1);
  }
  UOps scale, offset;
  for (UOp term : split_add_terms(f)) {
    UOp q;
    UOps rest;
    for (UOp factor : split_terms(term, Ops::MUL)) {
      const bool is_q = !q && s.independent(factor).size() < s.unrolled.size() && is_small_integer(factor);
      if (is_q) q = factor;
      else rest.push_back(factor);
    }
    if (q && (a.q || rest.empty())) return {};
    if (q) {
      a.q = q;
      a.scale = product(rest);
    } else {
      offset.push_back(term);
    }
  }
  if (!a.q || offset.empty()) return {};
  a.offset = join_terms(Ops::ADD, offset, offset[0].dtype());
  return a;
}
UOp with_scale_and_offset_outside(const Sum& s) {
  for (UOp f : s.factors) {
    const AffineFactor a = affine_factor(s, f);
    if (!a.q || users(s, f) >= kManyUsers) continue;
    UOps inner;
    for (UOp r : s.independent(a.scale))
      if (!depends_on(a.offset, r) && !(a.gate && depends_on(a.gate, r))) inner.push_back(r);
    UOps others;
    for (UOp o : s.factors)
      if (o != f) others.push_back(o);
    if (inner.empty() || others.empty() || !depends_on_any(a.q, inner)) return {};
    UOps with_q = others;
    with_q.push_back(a.q);
    const auto gated = [&](UOp v) { return a.gate ? a.gate.where(v, v.const_like(0)) : v; };
    const UOp of_q = gated(a.scale * s.over(inner, with_q)), of_offset = gated(a.offset * s.over(inner, others));
    return s.outer(of_q + of_offset, inner);
  }
  return {};
}

UOp factored(UOp reduce) {
  Sum s{reduce, {}, split_terms(reduce.src(0), Ops::MUL)};
  bool loops = false;
  for (UOp r : listed_ranges(reduce)) {
    if (is_range(r, AxisType::kUnroll)) s.unrolled.push_back(r);
    else loops = true;
  }
  if (s.unrolled.empty() || !loops) return reduce;
  if (UOp r = with_factors_outside(s)) return r;
  if (UOp r = with_scale_and_offset_outside(s)) return r;
  return reduce;
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
