/// \file Integer expressions as sums of coefficient * base. One parser; two results: AffineSum is the normal form that
/// rules on index arithmetic compute with, so that only final results become nodes; AffineIndex tells how an index
/// moves with the ranges.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "tinygrad/base/math.h"
#include "tinygrad/uop/facts.h"

namespace tg {

constexpr int128 gcd128(int128 a, int128 b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b) {
    int128 t = a % b;
    a = b;
    b = t;
  }
  return a;
}

/// Operations that the parser looks through on its way to the summands, in addition to ADD.
struct SumOptions {
  bool products = true;  ///< literal factors are distributed: MUL, SHL and MULACC by a literal
  bool casts = false;    ///< CASTs between integers
  bool gates = false;    ///< WHERE(valid, i, Invalid), which counts as i
};
struct NothingWhole {
  constexpr bool operator()(UOp) const { return false; }
};
/// Calls `visit(u, k)` for the summands u * k of `sum` * `factor`, left to right. Literals are summands too, and so are
/// the parts that `whole` holds of.
template <SumOptions options = SumOptions{}, class Visit, class Whole = NothingWhole>
void for_each_summand(UOp sum, int128 factor, Visit&& visit, Whole whole = {}) {
  auto is_literal = [](UOp u) { return u.is_const() && !u.is_invalid(); };
  std::vector<std::pair<UOp, int128>> stack;
  auto enter = [&](UOp u, int128 k) {  // false: u is a summand
    if (whole(u)) return false;
    if (u.is(Ops::ADD)) {
      stack.push_back({u.src(1), k});
      stack.push_back({u.src(0), k});
      return true;
    }
    if constexpr (options.products) {
      if (u.in(Ops::MUL | Ops::MULACC) && is_literal(u.src(1))) {
        if (u.is(Ops::MULACC)) stack.push_back({u.src(2), k});
        stack.push_back({u.src(0), k * u.src(1).const_int()});
        return true;
      }
      if (u.is(Ops::MUL) && is_literal(u.src(0))) {
        stack.push_back({u.src(1), k * u.src(0).const_int()});
        return true;
      }
      if (u.is(Ops::SHL) && is_literal(u.src(1))) {
        stack.push_back({u.src(0), k << static_cast<int>(u.src(1).const_int())});
        return true;
      }
    }
    if (options.casts && u.is(Ops::CAST) && u.dtype().is_int() && u.src(0).dtype().is_int()) {
      stack.push_back({u.src(0), k});
      return true;
    }
    if (options.gates && u.is(Ops::WHERE) && u.src(2).is_invalid()) {
      stack.push_back({u.src(1), k});
      return true;
    }
    return false;
  };
  if (!enter(sum, factor)) return visit(sum, factor);
  while (!stack.empty()) {
    const auto [u, k] = stack.back();
    stack.pop_back();
    if (!enter(u, k)) visit(u, k);
  }
}

/// coef * base; the base is no product with a literal.
struct Term {
  UOp base;
  int128 coef;
  bool operator==(const Term&) const = default;
};

/// A sum in normal form: bases in structural order, each once, no zero coefficient.
struct AffineSum {
  std::vector<Term> terms;
  int128 c = 0;

  AffineSum() = default;
  /// Reads a tree of ADDs (any integer type).
  explicit AffineSum(UOp u) {
    add(u, 1);
    normalize();
  }
  /// Adds k * u; the result is not normalized yet.
  void add(UOp u, int128 k);
  void add(const AffineSum& o, int128 k);
  void normalize();
  bool is_const() const { return terms.empty(); }
  Bounds bounds() const;  ///< constant included
  /// The expression as nodes of type d: (t0 + t1) + ... + constant.
  UOp build(DType d = dtypes::weakint) const;
  bool operator==(const AffineSum&) const = default;
};

/// Splits x * literal: {x, literal}, or {x, 1}.
inline Term term_of(UOp u) {
  if (u.is(Ops::MUL) && u.src(1).is_const() && !u.src(1).is_invalid()) return {u.src(0), u.src(1).const_int()};
  return {u, 1};
}
UOp build_term(const Term& t, DType d);

/// An index as a sum: offset + coefficient * range + ... + anything else. The gate of the index is not looked at.
struct AffineIndex {
  std::vector<std::pair<UOp, int64_t>> terms;  ///< ranges with their coefficients, each once, in order of first visit
  UOps rest;                                   ///< summands that are not a literal multiple of a range
  int64_t offset = 0;

  AffineIndex() = default;
  explicit AffineIndex(UOp index);
  /// Returns the coefficient of a range, its stride in elements; 0 when the index does not depend on it.
  int64_t coefficient(UOp range) const {
    for (const auto& [r, c] : terms)
      if (r == range) return c;
    return 0;
  }
  /// Adds coefficient * range.
  void add(UOp range, int64_t coefficient);
};

// ---- trees of one associative op ----
/// Returns the operands of a tree of `op`, left to right: a + (b + c) -> {a, b, c}.
UOps split_terms(UOp u, Ops op);
inline UOps split_add_terms(UOp u) { return split_terms(u, Ops::ADD); }
/// Joins `us` by `op`; returns the identity element's literal of type d for an empty list.
UOp join_terms(Ops op, std::span<const UOp> us, DType d);

}  // namespace tg
