/// \file The nesting of ranges.
#include "tinygrad/uop/loop_ranges.h"

#include <algorithm>

namespace tg {

bool nests_before(UOp a, UOp b) {
  auto rank = [](UOp r) {
    switch (axis_type(r)) {
      case AxisType::kDevice: return 0;
      case AxisType::kThread: return 1;
      case AxisType::kGlobal: return 2;
      case AxisType::kLoop: return 3;
      default: return 4 + static_cast<int>(axis_type(r));
    }
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  const RangeArg &x = a.arg<RangeArg>(), &y = b.arg<RangeArg>();
  if (x.id != y.id) return x.id < y.id;
  return a != b && structural_less(a, b);
}

UOps loops_among(std::span<const UOp> ranges) {
  UOps loops;
  for (UOp r : ranges)
    if (is_loop(r)) loops.push_back(r);
  std::sort(loops.begin(), loops.end(), nests_before);
  return loops;
}

UOp innermost_loop(UOp u) {
  UOp inner;
  for (UOp r : ranges_of(u))
    if (is_loop(r) && (!inner || nests_before(inner, r))) inner = r;
  return inner;
}

UOp lane_of(UOp u) {
  const UOps& r = ranges_of(u);
  return r.empty() || !is_lane(r.back()) ? UOp() : r.back();
}

}  // namespace tg
