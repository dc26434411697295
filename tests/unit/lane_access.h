/// \file How the INDEX of an access goes along the lanes, for tests of codegen.
#pragma once
#include "tinygrad/uop/loop_ranges.h"

namespace tg::testing {

enum class Lanes : uint8_t { kBroadcast, kUnit, kStrided, kGather };
/// Classifies an index that canonical_lanes has seen: `base + lane`, `base + lane * stride`, `lane` or `lane * stride`.
inline Lanes lanes_of_access(UOp index) {
  const UOp i = index.src(1);
  if (!lane_of(i)) return Lanes::kBroadcast;
  auto is_lane_value = [](UOp u) { return is_lane(u) || (u.is(Ops::CAST) && is_lane(u.src(0))); };
  auto classify = [&](UOp u) {
    if (is_lane_value(u)) return Lanes::kUnit;
    const bool scaled = u.is(Ops::MUL) && is_lane_value(u.src(0)) && u.src(1).is_const();
    if (!scaled) return Lanes::kGather;
    return u.src(1).is_const_int(1) ? Lanes::kUnit : Lanes::kStrided;
  };
  if (Lanes l = classify(i); l != Lanes::kGather || !i.is(Ops::ADD)) return l;
  for (size_t s = 0; s < 2; s++)
    if (Lanes l = classify(i.src(s)); l != Lanes::kGather && !lane_of(i.src(1 - s))) return l;
  return Lanes::kGather;
}

}  // namespace tg::testing
