/// \file Copies in boxes: which operands a GPU's copy engine can bring to the memory of a group, and the copies of one.
#pragma once
#include <optional>

#include "tinygrad/target/target.h"
#include "tinygrad/target/tensor_map.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/uop.h"

namespace tg {

/// A load as a place in rows of a parameter.
struct RowsOfParam {
  UOp param;
  TensorMap map;            ///< without the size of a box
  AffineIndex column, row;  ///< of an element
};
/// Returns the element that `load` reads as one of rows that begin `step` elements behind each other; empty where it
/// is none, where it may be one of two rows, or where rows do not begin at multiples of 16 bytes.
std::optional<RowsOfParam> rows_of_param(UOp load, int64_t step);

/// Groups of a cluster: processors of NVIDIA's GPUs come in pairs, so that no part of them stays without one.
constexpr int64_t kClusterGroups = 2;

/// Returns a load that repeats the last row or column for all beyond the end as one that goes on: what a box has there
/// is 0, or of another row, and no result is stored.
UOp without_ends(UOp load);

/// Whether a target copies boxes, and has clusters.
bool copies_boxes(const Target& target);

/// A panel of matrices (target/shared_matrix.h) whose rows lie in blocks that are rows of a parameter. Each block, and
/// in it each part of 128 bytes, is some boxes, one below the other.
class BoxedPanel {
 public:
  /// Returns the panel that holds `value` for all of `rows` and `columns`; empty where boxes cannot fill it. `shared`:
  /// divides each column of boxes among the groups of a cluster, which have the same panel; empty: it is this group's.
  static std::optional<BoxedPanel> of(UOp value, const UOps& rows, const UOps& columns, UOp shared);

  /// Appends the copies. `memory` is filled from element `offset` on; `barriers` are those of which number `number` is
  /// told of each box; `map`: values for ranges. `gate`: nothing happens where it is off; empty: it never is.
  struct Target {
    UOp memory, offset, barriers, number, gate{};
    std::vector<std::pair<UOp, UOp>> map{};
  };
  void copy(const Target& to, UOps* copies) const;

 private:
  RowsOfParam from_;
  UOp shared_;
  std::vector<int64_t> blocks_;      // where each begins, rows of the parameter
  int64_t rows_ = 0, of_block_ = 0;  // of the panel, of a block
  int64_t columns_ = 0, each_ = 0;   // elements of a row, of 128 bytes
};

}  // namespace tg
