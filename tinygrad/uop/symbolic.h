/// \file The algebra of the IR as rule tables, and the functions that index arithmetic needs. Integer rules on weakint
/// treat it as unbounded; on fixed-width integers they hold modulo 2^bits; float rules keep IEEE results.
#pragma once
#include <optional>
#include <utility>

#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/rewrite.h"

namespace tg {

/// Identities, literal folding, Invalid moving outward: rules that look at a node and its sources.
const PatternMatcher<UOp>& symbolic_simple();
/// + normal forms of weakint sums and products, comparisons, bounds, WHERE, casts, div and mod.
const PatternMatcher<UOp>& symbolic();
/// + validity and rules for whole kernels (ranges of size one, gates of stores, invariant factors of integer sums).
const PatternMatcher<UOp>& sym();

/// WHERE(valid, x, Invalid) moves outward through its users; an access at an Invalid index disappears (a load gives
/// 0).
const PatternMatcher<UOp>& pm_invalid();
/// FLOORDIV and FLOORMOD of weakint, and their recombination.
const PatternMatcher<UOp>& pm_divmod();
/// Gates simplify each other, and indices under the gate that guards them.
const PatternMatcher<UOp>& pm_simplify_valid();
/// The order of commutative weakint operands only, for comparing expressions.
const PatternMatcher<UOp>& canonical_order();

/// graph_rewrite with symbolic().
UOp simplify(UOp u);

// ---- integer structure ----
/// Returns the largest literal known to divide the value (0 for the literal 0).
int128 const_factor(UOp u);
/// Returns u / v without remainder, nullopt when that is not known to be exact.
std::optional<UOp> divides(UOp u, int128 v);
/// Divides by an expression: common factors cancel.
std::optional<UOp> divide_exact(UOp u, UOp v);
/// Returns the greatest common divisor of several expressions, symbolic factors included.
UOp symbolic_gcd(std::span<const UOp> us);
/// Splits `x op literal` into {x, literal}; {u, the op's identity} (ADD 0, MUL 1).
std::pair<UOp, int128> pop_const(UOp u, Ops op = Ops::ADD);

// ---- validity ----
/// Meaning of a clause: expr <= bound (upper) or expr >= bound; `exact` when it says no more than that. Nothing for
/// clauses of another form.
struct Clause {
  UOp expr;
  bool upper;
  int128 bound;
  bool exact;
};
std::optional<Clause> parse_clause(UOp clause);
/// Simplifies `u`, whose value matters only where `valid` holds.
UOp uop_given_valid(UOp valid, UOp u, bool try_simplex = true);
/// Returns bounds of `u` where `expr` is within `b`.
Bounds bounds_within(UOp u, UOp expr, Bounds b);
/// Returns the gate with clauses removed or simplified by the others; empty when nothing changes.
UOp simplify_valid(UOp valid);
/// Returns the gate of an index (true when it has none) and the index itself.
std::pair<UOp, UOp> split_gate(UOp index);

}  // namespace tg
