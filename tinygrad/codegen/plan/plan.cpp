/// \file How a plan is made from the table of variants, and how it is applied.
#include "tinygrad/codegen/plan/plan.h"

#include <ostream>

#include "tinygrad/codegen/plan/reuse_values.h"
#include "tinygrad/codegen/plan/variants.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"

namespace tg {
namespace {
/// Lets the rows of a phase have the kernel, in order; false: none of them takes it.
bool plan_phase(PlanRequest& r, PlanPhase phase) {
  for (const Variant& v : variants())
    if (v.phase == phase && v.matches(r) && v.plan(r)) {
      r.plan.variant = v.name;
      return true;
    }
  return false;
}

/// Chooses the ranges of a kernel, and which values of its reductions are spilled instead of computed again.
void choose_ranges(PlanRequest& r) {
  r.plan.ast = simplify_ranges(r.plan.ast);
  if (!r.renderer.has_locals()) choose_form(r, kFlatRows);
  if (const UOp reused = reuse_reduce_values(r.plan.ast, r.renderer, r.names); reused != r.plan.ast)
    r.take(KernelAxes(reused, r.renderer));
}
}  // namespace

Hash128 KernelPlan::hash() const {
  Hash128 h = ast.key();
  add_to_hash(h, opts);
  return h;
}

std::ostream& operator<<(std::ostream& os, const KernelPlan& plan) {
  os << plan.variant << ", " << plan.form;
  if (plan.cycles > 0) os << ", " << plan.cycles << " cycles";
  return os << ": " << to_text(plan.opts);
}

std::optional<KernelPlan> plan_scheduled(UOp ast, const Renderer& renderer, const CodegenOptions& options,
                                         KernelContext& names) {
  PlanRequest r(ast, renderer, options, names);
  if (!plan_phase(r, PlanPhase::kScheduled)) return {};
  return std::move(r).finish();
}

KernelPlan plan_kernel(UOp ast, const Renderer& renderer, const CodegenOptions& options, KernelContext& names) {
  PlanRequest r(ast, renderer, options, names);
  if (plan_phase(r, PlanPhase::kWritten)) return std::move(r).finish();
  choose_ranges(r);
  if (plan_phase(r, PlanPhase::kRanged)) return std::move(r).finish();
  choose_form(r, kTensorCores);
  plan_phase(r, PlanPhase::kFormed);
  return std::move(r).finish();
}

std::optional<KernelAxes> apply_plan(const KernelPlan& plan, const Renderer& renderer) {
  if (plan.final || (plan.opts.empty() && !renderer.has_locals() && !has_reused_values(plan.ast))) return {};
  KernelAxes kernel(plan.ast, renderer);
  for (const Opt& o : plan.opts) kernel.apply(o);
  return kernel;
}

}  // namespace tg
