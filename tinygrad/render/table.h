/// \file Values that depend on four bits of an integer: sixteen of them, so that a register can hold all.
#pragma once
#include <array>
#include <optional>
#include <unordered_map>

#include "tinygrad/uop/uop.h"

namespace tg {

/// `values[source >> shift & 15]`. Values at places that never occur are arbitrary.
struct Table16 {
  UOp source;
  int shift = 0;
  std::array<ConstValue, 16> values;
  int ops = 0;  ///< operations it stands for
};

/// Finds tables bottom-up: ask in the order of a program, sources first.
class Tables {
 public:
  /// The table of an ALU op, CAST or BITCAST; null where it is none.
  const Table16* of(UOp u);

 private:
  std::optional<Table16> made_of(UOp u) const;
  static std::optional<Table16> taken(UOp u);
  std::unordered_map<uint32_t, Table16> known_;
};

}  // namespace tg
