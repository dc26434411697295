/// \file From operands to panels and windows: what they hold, and where they are read.
#include "tinygrad/codegen/opt/stage_operands.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/codegen/opt/final_ranges.h"
#include "tinygrad/codegen/ranges/shorten_reduces.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/fold.h"
#include "tinygrad/uop/rebuild.h"

namespace tg {
namespace {
/// True for a part of a staged operand's ranges that its memory has a dimension for: what lies inside of the loop it is
/// filled in.
bool is_inside(const FinalRanges& ranges, UOp part, int loop) {
  const int n = static_cast<int>(ranges.kernel().axes().size());
  for (int i = 0; i < n; i++)
    if (ranges.axis(i) == part) return !ranges.kernel().is_around(i, loop);
  return true;
}

UOp panel(UOp before, UOp value, int loop, const FinalRanges& ranges) {
  UOps over;
  for (UOp r : ranges_of(before))
    for (UOp part : ranges_of(ranges.at(r).value))
      if (is_inside(ranges, part, loop) && !contains(over, part)) over.push_back(part);
  const bool shared = ranges.kernel().renderer().has_locals();
  return stage(shared ? StageKind::kTile : StageKind::kPanel, value, over, over);
}

const KernelAxes::Origin& origin_of(const KernelAxes& kernel, UOp range) {
  return *std::find_if(kernel.origins().begin(), kernel.origins().end(),
                       [&](const KernelAxes::Origin& o) { return o.range == range; });
}

UOp window(UOp value, int loop, const FinalRanges& ranges) {
  UOps over, coordinates;
  for (const Slide& slide : slides(value)) {
    UOp sum;
    for (const auto& [r, k] : slide)
      for (const KernelAxes::Term& t : origin_of(ranges.kernel(), r).terms) {
        UOp part = ranges.axis(t.axis);
        if (ranges.kernel().axes()[static_cast<size_t>(t.axis)].size == 1 || ranges.kernel().is_around(t.axis, loop))
          continue;
        UOp term = fold_mul(part, k * t.coefficient);
        sum = sum ? fold_add(sum, term) : term;
        over.push_back(part);
      }
    if (sum) coordinates.push_back(sum);
  }
  return stage(StageKind::kWindow, value, over, coordinates);
}
}  // namespace

UOp stage_operands(UOp sink, const FinalRanges& ranges) {
  const std::vector<KernelAxes::Stage>& stages = ranges.kernel().stages();
  if (stages.empty()) return sink;
  std::vector<WindowOperand> windows;
  for (const KernelAxes::Stage& s : stages)
    windows.push_back(s.window ? window_operand(sink, s.value) : WindowOperand{s.value, {}});
  return translate(sink, [&](UOp u, const UOps& src) {
    for (size_t i = 0; i < stages.size(); i++) {
      // The zeros of the mask are in the window.
      if (u == windows[i].masked) return needed_where(src[0], src[1]);
      if (u != stages[i].value) continue;
      return stages[i].window ? window(windows[i].value, stages[i].axis, ranges)
                              : panel(u, same_or_with(u, src), stages[i].axis, ranges);
    }
    return same_or_with(u, src);
  });
}

UOp window_contents(UOp value, const FinalRanges& ranges) {
  std::vector<std::pair<UOp, UOp>> map;
  UOp gate;
  auto less = [](UOp a, int64_t b) { return fold2(Ops::CMPLT, a, UOp::constant(b)); };
  for (const Slide& slide : slides(value)) {
    UOp sum;
    int64_t lo = 0, hi = 0;
    bool padded = false;
    for (const auto& [r, k] : slide) {
      const KernelAxes::Origin& o = origin_of(ranges.kernel(), r);
      UOp unclamped = ranges.at(r).unclamped, term = fold_mul(unclamped, k);
      map.push_back({r, unclamped});
      padded |= o.padded;
      (k < 0 ? lo : hi) += k * (o.size - 1);
      sum = sum ? fold_add(sum, term) : term;
    }
    if (!padded) continue;
    UOp in = less(sum, hi + 1) & less(sum, lo).logical_not();
    gate = gate ? gate & in : in;
  }
  value = value.substitute(map);
  return gate ? gate_loads(value, gate) : value;
}

}  // namespace tg
