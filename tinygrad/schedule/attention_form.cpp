/// \file Recognising softmax-weighted means, their normalizers, and the products of their gradients.
#include "tinygrad/schedule/attention_form.h"

#include <algorithm>

#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
bool is_number(UOp u) { return u.is_const() && !u.is_invalid(); }
bool sized(UOp range, int64_t multiple) { return range.src(0).is_const() && range.src(0).const_int() % multiple == 0; }
/// Returns true where blocks of the range fit, or the last one, which is smaller, is a small part of all.
bool long_enough(UOp range, int64_t multiple, int64_t least) {
  return sized(range, multiple) || vmax(range.src(0)) >= least;
}
bool one_range(UOp reduce, Ops op) {
  return reduce.is(Ops::REDUCE) && reduce.arg<ReduceArg>().op == op && reduce.nsrc() == 2;
}
/// Returns true when `reduce` reduces over its own range what `value` is over `range`.
bool reduces(UOp reduce, UOp value, UOp range) {
  UOp other = reduce.src(1);
  if (other.src(0) != range.src(0)) return false;
  UOp renamed = value.substitute({{range, other}});
  return renamed == reduce.src(0) ||
         simplify(renamed) == simplify(reduce.src(0));  // sums of index terms are ordered by their ranges
}
bool has_reduce(UOp u) {
  const UOps order = u.toposort();
  return std::any_of(order.begin(), order.end(), [](UOp v) { return v.is(Ops::REDUCE); });
}

/// Returns a reduce from below a number that bounds it.
UOp unbounded(UOp u) { return u.is(Ops::MAX) && is_number(u.src(1)) ? u.src(0) : u; }

/// Matches EXP2((score - REDUCE(MAX, score)) * k), the maximum perhaps bounded.
bool match_power(UOp power, AttentionForm& f) {
  if (!power.is(Ops::EXP2) || !power.src(0).is(Ops::MUL) || !is_number(power.src(0).src(1)) ||
      !(power.src(0).src(1).const_float() > 0))
    return false;
  UOp difference = power.src(0).src(0);
  if (!difference.is(Ops::ADD)) return false;
  for (uint32_t i = 0; i < 2; i++) {
    UOp negative = difference.src(i), score = difference.src(1 - i);
    if (!negative.is(Ops::MUL) || !is_number(negative.src(1)) || negative.src(1).const_float() != -1) continue;
    const UOp top = unbounded(negative.src(0));
    if (!one_range(top, Ops::MAX) || !reduces(top, score, f.over)) continue;
    f.power = power;
    f.top = negative.src(0);
    f.bounded = top != f.top;
    f.score = score;
    return score.dtype() == dtypes::float32;
  }
  return false;
}

bool match_sum(UOp sum, AttentionForm& f) {
  f = {};
  if (!one_range(sum, Ops::ADD) || !sum.src(0).is(Ops::MUL)) return false;
  f.sum = sum;
  f.over = sum.src(1);
  UOps rest;
  for (UOp u : factors_of(sum.src(0)))
    if (f.power || !match_power(u, f)) rest.push_back(u);
  if (!f.power) return false;
  for (UOp u : rest) {
    const UOp total = u.is(Ops::RECIPROCAL) ? unbounded(u.src(0)) : UOp();
    if (!f.total && total && one_range(total, Ops::ADD) && reduces(total, f.power, f.over)) {
      f.total = total;
      f.divisor = u.src(0);
    } else f.weight = f.weight ? f.weight * u : u;
  }
  return f.weight && f.weight.dtype() == dtypes::float32 && !has_reduce(f.weight) && has_reduce(f.score);
}

bool without(UOp value, const UOps& parts) {
  std::vector<std::pair<UOp, UOp>> map;
  for (UOp u : parts) map.push_back({u, UOp::constant(0, u.dtype())});
  return !has_reduce(value.substitute(map));
}
bool has_sizes(const AttentionForm& f, bool by_groups) {
  if (by_groups) return f.kind == AttentionForm::kTotal || sized(f.column, 8);
  return long_enough(f.over, 64, 128) && long_enough(f.row, 32, 64) &&
         (f.kind == AttentionForm::kTotal || sized(f.column, 16));
}

/// Matches the mean that `value` contains.
std::optional<AttentionForm> mean_form(UOp value, std::span<const UOp> ranges, bool by_groups) {
  AttentionForm f;
  for (UOp u : value.toposort()) {
    if (!u.is(Ops::REDUCE) || !match_sum(u, f) || !without(value, {u})) continue;
    int columns = 0;
    for (UOp r : ranges) {
      const bool scored = depends_on(f.score, r), weighted = depends_on(f.weight, r);
      // Rows may be a variable number; then there is no other axis like them.
      if (!r.src(0).is_const() && (!scored || weighted || (f.row && !f.row.src(0).is_const()))) return {};
      if (scored && !weighted &&
          (!f.row || !r.src(0).is_const() ||
           (f.row.src(0).is_const() && r.src(0).const_int() > f.row.src(0).const_int())))
        f.row = r;
      if (!scored) {
        f.column = r;
        columns += weighted ? 1 : 2;
      }
    }
    if ((f.row || by_groups) && columns == 1 && has_sizes(f, by_groups)) return f;
  }
  return {};
}

/// Returns the largest range that `value` depends on and `other`, where given, does not; empty where there is none, or
/// not all ranges have constant sizes.
UOp largest(std::span<const UOp> ranges, UOp value, UOp other) {
  UOp out;
  for (UOp r : ranges) {
    if (!r.src(0).is_const()) return {};
    if (depends_on(value, r) && !(other && depends_on(other, r)) &&
        (!out || r.src(0).const_int() > out.src(0).const_int()))
      out = r;
  }
  return out;
}

/// Returns the operands along `over` of the products that are summed in a score: rows that share keys share these.
UOp keys_of(UOp score, UOp over) {
  UOp out;
  for (UOp u : score.toposort()) {
    if (!is_sum_of_products(u)) continue;
    for (UOp x : u.src(0).srcs())
      if (depends_on(x, over)) out = out ? out * x : x;
  }
  return out;
}

/// Matches f(max s, sum exp((s - max s) k)).
std::optional<AttentionForm> total_form(UOp value, std::span<const UOp> ranges, bool by_groups) {
  for (UOp u : value.toposort()) {
    if (!one_range(u, Ops::ADD) || !u.src(1).src(0).is_const()) continue;
    AttentionForm f;
    f.kind = AttentionForm::kTotal;
    f.over = u.src(1);
    f.total = u;
    if (!match_power(u.src(0), f) || !has_reduce(f.score)) continue;
    // Outside of the powers the maximum has a range of its own.
    UOps parts{u};
    for (UOp m : value.toposort())
      if (one_range(m, Ops::MAX) && reduces(m, f.score, f.over)) parts.push_back(m);
    if (!without(value, parts)) continue;
    f.row = largest(ranges, f.score, keys_of(f.score, f.over));
    for (UOp r : ranges)
      if (!depends_on(f.score, r)) return {};
    if (f.row && has_sizes(f, by_groups)) return f;
  }
  return {};
}

/// Finds the reduces in f.factor, all of which must be sums of products, and the range of f.sum that is split into
/// blocks: the largest they depend on.
bool find_sums(AttentionForm& f) {
  for (UOp u : f.factor.toposort()) {
    if (!u.is(Ops::REDUCE)) continue;
    if (!is_sum_of_products(u) || has_reduce(u.src(0)) || u.dtype() != dtypes::float32) return false;
    f.sums.push_back(u);
  }
  for (UOp r : f.sum.srcs().subspan(1)) {
    const bool scored =
        !f.sums.empty() && std::all_of(f.sums.begin(), f.sums.end(), [&](UOp u) { return depends_on(u, r); });
    if (!r.src(0).is_const()) return false;
    if (scored && (!f.over || r.src(0).const_int() > f.over.src(0).const_int())) f.over = r;
  }
  for (UOp r : f.sum.srcs().subspan(1))
    if (r != f.over) f.more.push_back(r);
  return bool(f.over);
}

/// Matches sum_j f w_j, where f contains sums of products that depend on j and on rows.
std::optional<AttentionForm> product_form(UOp value, std::span<const UOp> ranges, bool by_groups) {
  for (UOp u : value.toposort()) {
    if (!is_sum_of_products(u) || u.dtype() != dtypes::float32 || !without(value, {u})) continue;
    AttentionForm f;
    f.kind = AttentionForm::kProduct;
    f.sum = u;
    const UOps factors = factors_of(u.src(0));
    for (UOp r : ranges) {
      bool scored = false;
      for (UOp x : factors) scored |= has_reduce(x) && depends_on(x, r);
      if (scored) continue;
      if (f.column) return {};
      f.column = r;
    }
    if (!f.column) continue;
    for (UOp x : factors) {
      UOp& part = depends_on(x, f.column) ? f.weight : f.factor;
      part = part ? part * x : x;
    }
    if (!f.factor || !f.weight || has_reduce(f.weight) || f.factor.dtype() != dtypes::float32) continue;
    if (!find_sums(f)) continue;
    f.row = largest(ranges, f.factor, f.weight);
    if (f.row && has_sizes(f, by_groups)) return f;
  }
  return {};
}
}  // namespace

UOps factors_of(UOp product) {
  UOps out, stack{product};
  while (!stack.empty()) {
    UOp u = stack.back();
    stack.pop_back();
    if (u.is(Ops::MUL)) {
      stack.push_back(u.src(1));
      stack.push_back(u.src(0));
    } else if (u.is(Ops::FDIV) && unbounded(u.src(1)).is(Ops::REDUCE)) {
      stack.push_back(UOp::alu(Ops::RECIPROCAL, {u.src(1)}));
      stack.push_back(u.src(0));
    } else out.push_back(u);
  }
  return out;
}

UOp divisor_of(const AttentionForm& form, UOp total) { return form.divisor.substitute({{form.total, total}}); }

bool is_sum_of_products(UOp u) {
  return u.is(Ops::REDUCE) && u.arg<ReduceArg>().op == Ops::ADD && u.src(0).is(Ops::MUL);
}

std::optional<AttentionForm> match_attention(UOp value, std::span<const UOp> ranges, bool by_groups) {
  if (auto f = mean_form(value, ranges, by_groups)) return f;
  if (auto f = product_form(value, ranges, by_groups)) return f;
  return total_form(value, ranges, by_groups);
}

std::optional<AttentionForm> match_attention(UOp sink, bool by_groups) {
  if (sink.nsrc() != 1 || !sink.src(0).is(Ops::END)) return {};
  UOp end = sink.src(0), store = end.src(0);
  if (!store.is(Ops::STORE) || store.nsrc() != 2) return {};
  return match_attention(store.src(1), end.srcs().subspan(1), by_groups);
}

}  // namespace tg
