/// \file Tables of the costs of ops: rows of ops and a number.
#pragma once
#include <cstddef>

#include "tinygrad/uop/ops.h"

namespace tg {

template <class Cost> struct OpCost {
  OpSet ops;
  Cost cost;
};
/// All ops of a table: a table asserts that it has every op it must know, so that a new one does not get a cost by
/// oversight.
template <class Cost, size_t N> constexpr OpSet ops_of(const OpCost<Cost> (&table)[N]) {
  OpSet all;
  for (const OpCost<Cost>& row : table) all |= row.ops;
  return all;
}
/// Returns the cost of an op, `otherwise` when the table does not have it.
template <class Cost, size_t N> constexpr Cost cost_in(const OpCost<Cost> (&table)[N], Ops op, Cost otherwise) {
  for (const OpCost<Cost>& row : table)
    if (row.ops.has(op)) return row.cost;
  return otherwise;
}

}  // namespace tg
