/// \file How an index moves with the ranges: linear forms for the optimiser, the lane classification for renderers.
#pragma once
#include <utility>
#include <vector>

#include "tinygrad/uop/uop.h"

namespace tg {

/// An index as a sum: offset + coefficient * range + ... + anything else.
struct LinearForm {
  std::vector<std::pair<UOp, int64_t>>
      terms;  ///< ranges with a constant coefficient, each once, in order of first visit
  UOps rest;  ///< summands that are not a constant multiple of a range
  int64_t offset = 0;
  int64_t coefficient(UOp range) const {
    for (const auto& [r, c] : terms)
      if (r == range) return c;
    return 0;
  }
};
/// Splits an integer expression; WHERE(valid, i, Invalid) counts as i.
LinearForm linear_form(UOp index);

/// The form an INDEX takes across the lanes of the VECTOR range.
enum class Lanes : uint8_t { kBroadcast, kUnit, kStrided, kGather };
struct LaneAccess {
  Lanes kind = Lanes::kBroadcast;
  int64_t stride = 0;  ///< elements from lane to lane (kUnit: 1; kBroadcast: 0)
  UOp base;            ///< index of lane 0, a scalar node of the program; empty: 0. kGather: empty
};
/// Classifies an INDEX of a linear program. Codegen leaves every index that is linear in the lane as `base + lane`,
/// `base + lane * stride`, `lane` or `lane * stride`.
LaneAccess classify(UOp index);

/// The index written as classify() wants it: lane-linear indices as scalar base + lane * stride, others unchanged.
UOp canonical_lanes(UOp index);

/// The VECTOR range a value depends on; empty for a scalar.
UOp lane_of(UOp u);

}  // namespace tg
