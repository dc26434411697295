/// \file Long sums of products are stored as they are, and what is computed of a sum becomes a kernel of its own.
///
/// Where a sum is all that a kernel stores, codegen adds up partial sums in memory, one block of the reduction after
/// another, so that panels of both operands stay in the cache (docs/kernels.md). A sum that is rounded to a narrower
/// type, or that something is added to, cannot be stored in parts. When it is long, one more pass over the results
/// takes a few percent of the time that panels beyond the cache would cost.
#include <algorithm>

#include "tinygrad/schedule/indexing.h"
#include "tinygrad/schedule/passes.h"
#include "tinygrad/uop/facts.h"
#include "tinygrad/uop/graph.h"

namespace tg {
namespace {
constexpr double kLong =
    2048;  // terms of a sum from which panels, 32 columns or more of floats, fill much of the second level cache
constexpr double kUses = 32;  // of each number of an operand: fewer, and the operands stream by

/// The one reduce of a value, when it is a long sum of products, over one range, whose factors are used again and
/// again. (Panels of convolutions are windows, which seldom fill a cache.)
UOp long_sum(const Step& s) {
  UOp sum;
  for (UOp u : s.value.toposort()) {
    if (!u.is(Ops::REDUCE)) continue;
    if (sum) return {};
    sum = u;
  }
  if (!sum || sum == s.value || sum.arg<ReduceArg>().op != Ops::ADD || sum.dtype().itemsize() < 4) return {};
  UOp product = sum.src(0);
  if (product.is(Ops::WHERE)) product = product.src(1);
  const std::span<const UOp> reduced = sum.srcs().subspan(1);
  if (!product.is(Ops::MUL) || !std::all_of(reduced.begin(), reduced.end(), [](UOp r) { return r.src(0).is_const(); }))
    return {};
  if (reduced.size() != 1 || volume_of(reduced) <= kLong) return {};
  for (UOp r : s.ranges)
    if (!r.src(0).is_const() || !depends_on(sum, r)) return {};
  for (UOp factor : product.srcs()) {
    double uses = 1;
    for (UOp r : s.ranges)
      if (!depends_on(factor, r)) uses *= static_cast<double>(r.src(0).const_int());
    if (uses < kUses) return {};
  }
  return sum;
}
}  // namespace

void store_long_sums(Lowered& l, std::vector<ScheduleBuffer>& buffers) {
  for (size_t i = 0, n = l.steps.size(); i < n; i++) {
    const Step s = l.steps[i];
    if (!s.value || s.copy || s.given || s.in_order || s.online || s.buffer < 0) continue;
    UOp sum = long_sum(s);
    if (!sum) continue;
    Shape shape;
    for (UOp r : s.ranges) shape.push_back(SInt(r.src(0)));
    UOp at = flat_index(UOp::stack(s.ranges), shape);
    const int32_t state =
        add_internal(l, buffers, sum.dtype(), static_cast<int64_t>(volume_of(s.ranges)), nth(buffers, s.buffer).device);
    Step& first = l.steps.back();
    first.index = at;
    first.value = sum;
    first.ranges = s.ranges;
    first.metadata = s.metadata;
    const int32_t buffer = nth(l.states, state).buffer;
    UOp param = buffer_param(nth(buffers, buffer), buffer, state);
    UOp stored = UOp::make(Ops::INDEX, param.dtype(), {param, at}).load();
    l.steps[i].value = s.value.substitute({{sum, stored}});
  }
}

}  // namespace tg
