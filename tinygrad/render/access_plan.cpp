/// \file The parts of a plan.
#include "tinygrad/render/access_plan.h"

#include <algorithm>

#include "tinygrad/base/contains.h"
#include "tinygrad/target/tensor_core.h"
#include "tinygrad/uop/facts.h"

namespace tg {

AccessPlan::AccessPlan(const ProgramView& view, const Target& target, RegisterOps ops)
    : hints(view, target), blocks(view), runs(view) {
  if (ops.transposes) blocks.find(kShuffledStride, ops.words);
  if (ops.run_bytes) runs.find_runs(ops.run_bytes);
  if (!ops.tables) return;
  for (const Inst& in : view.insts())
    if (in.lanes == 16 && in.need_value) tables.add(in.u);
}

bool reads_wide(const ProgramView& view, UOp load) {
  if (!load.is(Ops::LOAD)) return false;
  const MemAccess a = view.access(load.src(0));
  return a.base.is(Ops::PARAM) && (view.lanes(load) > 1 || a.base.dtype().itemsize() != load.dtype().itemsize());
}

UOps aligned_parameters(const ProgramView& view, const LaneBlocks& runs) {
  UOps out;
  for (const Inst& in : view.insts())
    if (reads_wide(view, in.u)) add_once(out, view.access(in.u.src(0)).base);
    else if (const LaneBlock* run = in.u.in(Ops::LOAD | Ops::STORE) ? runs.of(in.u) : nullptr; run && run->aligned)
      add_once(out, run->access.base);
  return out;
}

int64_t unrolled_iterations(const ProgramView& view, UOp loop, int64_t most) {
  if (axis_type(loop) != AxisType::kReduce) return 1;
  const int64_t trips = constant_size(loop);
  const bool products = std::any_of(view.insts().begin(), view.insts().end(), [&](const Inst& in) {
    return in.u.is(Ops::WMMA) && in.u.nsrc() > 3 && innermost_loop(in.u) == loop &&
           !find_tensor_core(in.u.arg<std::string>())->multiply_adds();
  });
  if (!products) return 1;
  for (int64_t n = most; n > 1; n /= 2)
    if (trips % n == 0) return n;
  return 1;
}

}  // namespace tg
