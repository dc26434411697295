/// \file Values that depend on four bits of an integer: sixteen of them, so that a register can hold all.
#pragma once
#include <array>
#include <optional>
#include <unordered_map>

#include "tinygrad/uop/uop.h"

namespace tg {

/// `values[source >> shift & 15]`. Values at indices that never occur are arbitrary.
struct Table16 {
  UOp source;
  int shift = 0;
  std::array<ConstValue, 16> values;
  int ops = 0;  ///< operations it replaces
};

/// The tables of a program, found bottom-up.
class Tables {
 public:
  /// Looks for the table of an ALU op, CAST or BITCAST. Sources come before their users.
  const Table16* add(UOp u);
  /// Returns the table of a node that was added; null where it has none.
  const Table16* of(UOp u) const {
    auto it = known_.find(u.id());
    return it == known_.end() ? nullptr : &it->second;
  }

 private:
  std::optional<Table16> made_of(UOp u) const;
  static std::optional<Table16> extracted(UOp u);
  std::unordered_map<uint32_t, Table16> known_;
};

}  // namespace tg
