/// \file Lanes of indices.
#include "tinygrad/codegen/expand/access.h"

#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {

UOp canonical_lanes(UOp index) {
  if (!lane_of(index)) return index;
  const DType d = index.dtype();
  auto is_lane_value = [](UOp u) { return is_lane(u) || (u.is(Ops::CAST) && is_lane(u.src(0))); };
  UOp base, lane;  // base: the sum of the scalar summands
  int64_t stride = 0, offset = 0;
  bool affine = true;
  for_each_summand(
      index, 1,
      [&](UOp u, int128 k) {
        const auto factor = static_cast<int64_t>(k);
        if (u.is_const()) {
          offset += factor * static_cast<int64_t>(u.const_int());
        } else if (!lane_of(u)) {
          const UOp term = fold_mul(u, factor);
          base = base ? fold_add(base, term) : term;
        } else if (is_lane_value(u)) {
          stride += factor;
          lane = u;
        } else {
          affine = false;
        }
      },
      [&](UOp u) { return !lane_of(u) || is_lane_value(u); });
  if (!affine) return index;
  if (offset) base = base ? fold_add(base, UOp::constant(offset, d)) : UOp::constant(offset, d);
  if (!stride) return base ? base : UOp::constant(0, d);
  const UOp step = fold_mul(lane.dtype() == d ? lane : lane.cast(d), stride);
  // Built as renderers look for it: the folding constructors would pull the offset out of the base.
  return base ? UOp::alu(Ops::ADD, {base, step}) : step;
}

}  // namespace tg
