/// \file The table of variants, the forms of a kernel, and the variants that ask no model.
#include "tinygrad/codegen/plan/variants.h"

#include <algorithm>
#include <cmath>

#include "tinygrad/codegen/cost/cost_model.h"
#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/codegen/opt/tensor_core_product.h"
#include "tinygrad/codegen/plan/attention_blocks.h"
#include "tinygrad/codegen/plan/attention_groups.h"
#include "tinygrad/codegen/plan/flatten_rows.h"
#include "tinygrad/codegen/plan/grid_plan.h"
#include "tinygrad/codegen/plan/heuristic.h"
#include "tinygrad/codegen/plan/packed4_plan.h"
#include "tinygrad/codegen/plan/prefix.h"
#include "tinygrad/codegen/scratch/lower_stage.h"
#include "tinygrad/uop/affine.h"

namespace tg {

PlanRequest::PlanRequest(UOp ast, const Renderer& r, const CodegenOptions& o, KernelContext& n)
    : renderer(r), options(o), names(n), plan{.ast = ast} {
  if (o.no_locals && r.has_locals()) plan.opts.push_back({OptOp::kNoLocals, 0, 0});
}

KernelAxes& PlanRequest::axes() {
  if (!axes_) {
    axes_.emplace(plan.ast, renderer);
    for (const Opt& o : plan.opts) axes_->apply(o);
  }
  return *axes_;
}

void PlanRequest::take(KernelAxes axes, std::vector<Candidate> best) {
  if (axes.applied() == plan.opts) plan.ast = axes.sink();
  asked_ = !best.empty();
  best_ = std::move(best);
  axes_ = std::move(axes);
}

const Candidate* PlanRequest::best() {
  if (!asked_) best_ = candidates(axes(), axes().sink(), renderer, 1);
  asked_ = true;
  return best_.empty() ? nullptr : &best_[0];
}

double PlanRequest::cycles() {
  const Candidate* c = best();
  return c ? c->cycles : INFINITY;
}

const Opts* PlanRequest::given() const {
  const KernelInfo& info = plan.ast.arg<KernelInfo>();
  return info.opts_to_apply ? &*info.opts_to_apply : options.opts ? &*options.opts : nullptr;
}

KernelPlan PlanRequest::finish() && {
  if (axes_) plan.opts = axes_->applied();
  if (asked_ && !best_.empty()) plan.cycles = best_[0].cycles;
  return std::move(plan);
}

void choose_form(PlanRequest& r, const KernelForm& form) {
  for (KernelAxes& k : form.alternatives(r)) {
    std::vector<Candidate> best = candidates(k, k.sink(), r.renderer, 1);
    if (best.empty() || best[0].cycles >= r.cycles()) continue;
    r.take(std::move(k), std::move(best));
    r.plan.form = form.name;
  }
}

namespace {
const KernelAxes::Axis& axis_of(const KernelAxes& kernel, int a) { return kernel.axes()[static_cast<size_t>(a)]; }
int axis_count(const KernelAxes& kernel) { return static_cast<int>(kernel.axes().size()); }
bool always(PlanRequest&) { return true; }
bool plan_nothing(PlanRequest&) { return true; }

bool is_attention(PlanRequest& r) { return r.plan.ast.arg<KernelInfo>().attention; }
bool plan_attention(PlanRequest& r) {
  const std::optional<AttentionForm> form = match_attention(r.plan.ast, r.renderer.has_locals());
  TG_ASSERT(form, "a kernel marked as attention stores another value: ", r.plan.ast);
  const Target& target = r.renderer.target();
  const UOp blocks = r.renderer.has_locals() ? attention_groups(r.plan.ast, *form, r.renderer, r.options, r.names)
                                             : attention_blocks(r.plan.ast, *form, r.renderer, r.names);
  r.plan.ast = lower_stages(blocks, r.names, target);
  r.plan.final = true;
  return true;
}

bool is_unoptimised(PlanRequest& r) { return r.options.noopt && !r.given(); }

/// Integers in two words stay scalars: there is no sum of such lanes.
bool has_long_pairs(PlanRequest& r) {
  return !r.renderer.has_locals() && emulates_longs(r.plan.ast, r.renderer, r.options.emulated);
}

bool has_given_opts(PlanRequest& r) { return r.given() != nullptr; }
bool plan_given(PlanRequest& r) {
  for (const Opt& o : *r.given()) r.axes().apply(o);
  return true;
}

bool plan_packed4(PlanRequest& r) { return choose_packed4(r.axes(), r.renderer); }

bool is_sequential(PlanRequest& r) {
  const auto& axes = r.axes().axes();
  return std::any_of(axes.begin(), axes.end(), [](const KernelAxes::Axis& a) { return a.ordered; });
}
/// Puts lanes along what is stored contiguously inside of a sequential loop.
void apply_sequential_lanes(KernelAxes& kernel, const Renderer& renderer) {
  UOp store;
  for (UOp u : kernel.sink().toposort())
    if (u.is(Ops::STORE)) store = u;
  const AffineIndex form(store.src(0).src(1));
  const int64_t lanes = lanes_of_items(renderer, store.src(1).dtype().itemsize());
  for (int a = 0; a < axis_count(kernel) && lanes > 1; a++) {
    const KernelAxes::Axis axis = axis_of(kernel, a);
    if (axis.ordered || axis.reduce || axis.size < lanes || form.coefficient(kernel.range(a)) != 1) continue;
    if (axis.size % lanes) kernel.apply({OptOp::kPadTo, a, lanes});
    kernel.apply({OptOp::kVector, a, lanes});
    const int64_t vectors = axis_of(kernel, a).size;
    for (int64_t n : {4, 2})
      if (axis_of(kernel, a).type == AxisType::kLoop && vectors % n == 0 && vectors > n)
        return kernel.apply({OptOp::kUpcast, a, n});
    return;
  }
}
/// Puts lanes along memory, threads along the longest loop that is left, inside of a loop that stays in order. A grid
/// leaves such kernels as they are.
bool plan_sequential(PlanRequest& r) {
  if (r.renderer.has_locals()) return true;
  KernelAxes& kernel = r.axes();
  double points = 1;
  for (const KernelAxes::Axis& a : kernel.axes()) points *= a.size ? static_cast<double>(a.size) : CostModel::kSymbolic;
  const int n = axis_count(kernel);  // what is split off gets no threads
  apply_sequential_lanes(kernel, r.renderer);
  if (!r.renderer.has_threads() || points < machine_rates(r.renderer.target()).thread_points()) return true;
  int longest = -1;
  for (int a = 0; a < n; a++) {
    const KernelAxes::Axis& x = axis_of(kernel, a);
    if (x.ordered || x.reduce || x.type != AxisType::kLoop || x.size < 2) continue;
    if (longest < 0 || x.size > axis_of(kernel, longest).size) longest = a;
  }
  if (longest >= 0) kernel.apply({OptOp::kThread, longest, 0});
  return true;
}

bool has_grid(PlanRequest& r) { return r.renderer.has_locals(); }
bool plan_grid(PlanRequest& r) {
  plan_workgroups(r.axes(), r.options);
  return true;
}

bool is_scan(PlanRequest& r) { return prefix_axes(r.axes(), r.renderer).has_value(); }
bool plan_scan(PlanRequest& r) {
  apply_prefix(r.axes(), *prefix_axes(r.axes(), r.renderer), r.renderer);
  return true;
}

bool plan_tiles(PlanRequest& r) {
  const Candidate* c = r.best();
  if (!c) return true;
  if (r.options.account) r.plan.account = CostModel(r.axes(), r.axes().sink(), r.renderer).account(*c);
  apply_candidate(r.axes(), *c, r.renderer);
  return true;
}

constexpr Variant kVariants[] = {
    {PlanPhase::kScheduled, "attention", is_attention, plan_attention},
    {PlanPhase::kWritten, "unoptimised", is_unoptimised, plan_nothing},
    {PlanPhase::kRanged, "64-bit pairs", has_long_pairs, plan_nothing},
    {PlanPhase::kRanged, "given", has_given_opts, plan_given},
    {PlanPhase::kFormed, "packed 4-bit", always, plan_packed4},
    {PlanPhase::kFormed, "sequential", is_sequential, plan_sequential},
    {PlanPhase::kFormed, "grid", has_grid, plan_grid},
    {PlanPhase::kFormed, "scan", is_scan, plan_scan},
    {PlanPhase::kFormed, "tiles", always, plan_tiles},
};

std::vector<KernelAxes> flat_rows(PlanRequest& r) {
  const UOp flat = flatten_output_rows(r.plan.ast);
  if (flat == r.plan.ast) return {};
  return {KernelAxes(flat, r.renderer)};
}

std::vector<KernelAxes> tensor_cores(PlanRequest& r) {
  if (r.options.tensor_cores <= 0 || r.renderer.has_locals()) return {};  // a grid chooses with its tiles
  std::vector<KernelAxes> out;
  const auto choices = tensor_core_choices(r.axes().sink(), r.renderer, r.options.tensor_cores, r.options.tensor_core);
  for (const auto& [range, number] : choices) {
    KernelAxes& k = out.emplace_back(r.axes());
    int axis = 0;
    while (k.range(axis) != range) axis++;
    k.apply({OptOp::kTc, axis, number});
  }
  return out;
}
}  // namespace

const KernelForm kFlatRows{"flat rows", flat_rows}, kTensorCores{"tensor core", tensor_cores};
std::span<const Variant> variants() { return kVariants; }

}  // namespace tg
