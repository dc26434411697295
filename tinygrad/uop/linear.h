/// \file Integer expressions as sums: coef * base + ... + constant. What the rules on index arithmetic compute with, so
/// that only final results become nodes.
#pragma once
#include <optional>
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
/// Interval arithmetic that saturates at kUnbounded.
Bounds add_bounds(Bounds a, Bounds b);
Bounds scale_bounds(Bounds a, int128 c);

/// coef * base; the base is no product with a literal.
struct Term {
  UOp base;
  int128 coef;
  bool operator==(const Term&) const = default;
};

/// A sum in normal form: bases in structural order, each once, no zero coefficient.
struct Linear {
  std::vector<Term> terms;
  int128 c = 0;

  Linear() = default;
  /// Reads a tree of ADDs (any integer type).
  explicit Linear(UOp u) {
    add(u, 1);
    normalize();
  }
  /// += k * u, not normalized yet.
  void add(UOp u, int128 k);
  void add(const Linear& o, int128 k);
  void normalize();
  bool is_const() const { return terms.empty(); }
  Bounds bounds() const;  ///< constant included
  /// The expression as nodes of type d: (t0 + t1) + ... + constant.
  UOp build(DType d = dtypes::weakint) const;
  bool operator==(const Linear&) const = default;
};

/// Splits x * literal: {x, literal}, or {x, 1}.
inline Term term_of(UOp u) {
  if (u.is(Ops::MUL) && u.src(1).is_const() && !u.src(1).is_invalid()) return {u.src(0), u.src(1).const_int()};
  return {u, 1};
}
UOp build_term(const Term& t, DType d);

}  // namespace tg
