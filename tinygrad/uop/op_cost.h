/// \file What operations cost: the one table of it.
#pragma once
#include "tinygrad/uop/ops.h"

namespace tg {

/// The costs of a row answer different questions, so they differ:
///
///   instructions  of one element or vector, once types, literals and lanes are known. The cost model of codegen adds
///                 them up to cycles, and adjusts them (CostModel::cost_of): masks, divisions by literals.
///   recompute     what the scheduler takes it for when it decides between computing a value again and storing it, in
///                 units of an addition. Nothing is known of the code yet: a choice and a comparison bring their
///                 condition along, divisions are mostly by literals, long polynomials are cut off at what memory
///                 costs (kCostLimit of schedule/rangeify.cpp), so their order does not matter there.
///   size          how many operations it becomes in a kernel, for the limit on the size of one: functions are
///                 polynomials.
struct OpCost {
  OpSet ops;
  double instructions;
  int recompute;
  int size = 1;
};

namespace op_costs {
using enum Ops;
inline constexpr OpCost kTable[] = {
    {ADD | SUB | MUL | MULACC | NEG | TRUNC | SHL | SHR | XOR | OR | AND | CAST | BITCAST, 1, 1},
    {MAX | WHERE | CMPLT | CMPNE | CMPEQ, 1, 2},
    {PAD | INDEX, 0, 2},
    {SQRT | RECIPROCAL | FDIV, 6, 8},
    {CDIV | CMOD | FLOORDIV | FLOORMOD, 20, 8},
    {EXP2 | LOG2, 14, 16, 12},
    {SIN, 25, 16, 25},
    {POW, 40, 16, 40},
    {THREEFRY, 90, 40},
};
constexpr OpSet priced() {
  OpSet all;
  for (const OpCost& row : kTable) all |= row.ops;
  return all;
}
static_assert(groups::kElementwise.subset_of(priced()), "an op has no cost: give it a row");
}  // namespace op_costs

/// Returns the costs of an op; null: it has none.
constexpr const OpCost* costs_of(Ops op) {
  for (const OpCost& row : op_costs::kTable)
    if (row.ops.has(op)) return &row;
  return nullptr;
}

}  // namespace tg
