/// \file Long sums of products are stored as they are, and what is computed of a sum becomes a kernel of its own.
///
/// Where a sum is all that a kernel stores, codegen accumulates partial sums in memory, one block of the reduction
/// after another, so that panels of both operands stay in the cache (docs/kernels.md). A sum that is rounded to a
/// narrower type, or that something is added to, cannot be stored in parts. When it is long, one more pass over the
/// results takes a few percent of the time that panels beyond the cache would cost.
#include "tinygrad/schedule/long_sums.h"

#include <algorithm>

#include "tinygrad/target/device_traits.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
constexpr double kUses = 32;  // of each element of an operand: with fewer, the operands stream through the cache

/// Returns the one reduce of a value, when it is a long sum of products, over one range, whose factors are reused.
/// Long are more than `terms`. (Panels of convolutions are windows, which seldom fill a cache.)
UOp long_sum(const KernelStep& s, double terms) {
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
  if (reduced.size() != 1 || volume_of(reduced) <= terms) return {};
  for (UOp r : s.loops)
    if (!r.src(0).is_const() || !depends_on(sum, r)) return {};
  for (UOp factor : product.srcs()) {
    double uses = 1;
    for (UOp r : s.loops)
      if (!depends_on(factor, r)) uses *= static_cast<double>(r.src(0).const_int());
    if (uses < kUses) return {};
  }
  return sum;
}
}  // namespace

void store_long_sums(StepGraph& g, const ScheduleOptions& options) {
  // Panels of that many terms, 32 columns or more of floats, fill much of the second level cache.
  const double terms = options.row_in_cache() / (32 * 4);
  for (StepId i = 0, n = g.steps(); i < n; i++) {
    const KernelStep* k = g.kernel(i);
    if (!k || k->sequential_loops || k->attention || g.step(i).buffer < 0) continue;
    if (device_traits(g.device_of_step(i)).busy_threads) continue;  // registers hold sums of any length
    UOp sum = long_sum(*k, terms);
    if (!sum) continue;
    UOp stored = g.materialize(sum, k->loops, g.device_of_step(i), "parts of a long sum", g.step(i).metadata);
    g.edit_kernel(i).value = k->value.substitute({{sum, stored}});
  }
}

}  // namespace tg
