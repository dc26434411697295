/// \file The parts of a plan.
#include "tinygrad/render/access_plan.h"

namespace tg {

AccessPlan::AccessPlan(const ProgramView& view, const Target& target, RegisterOps ops)
    : hints(view, target), blocks(view), runs(view) {
  if (ops.transposes) blocks.find(kShuffledStride, ops.words);
  if (ops.run_bytes) runs.find_runs(ops.run_bytes);
  if (!ops.tables) return;
  for (const Inst& in : view.insts())
    if (in.lanes == 16 && in.need_value) tables.add(in.u);
}

}  // namespace tg
