/// \file The ways to optimise a kernel: one row of a table each, with the kernels it is for and what it does to them.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "tinygrad/codegen/cost/candidate.h"
#include "tinygrad/codegen/plan/plan.h"

namespace tg {

/// A kernel while its plan is made: the plan so far, and what the model has said about it.
class PlanRequest {
 public:
  PlanRequest(UOp ast, const Renderer& renderer, const CodegenOptions& options, KernelContext& names);
  const Renderer& renderer;
  const CodegenOptions& options;
  KernelContext& names;
  KernelPlan plan;

  /// Returns the axes of the plan's kernel, with its opts applied.
  KernelAxes& axes();
  /// Takes another kernel of the same meaning, or other opts for it; `best` is known of it, or empty.
  void take(KernelAxes axes, std::vector<Candidate> best = {});
  /// Returns the best candidate, null where there is none. The model is asked once.
  const Candidate* best();
  /// Returns the predicted cycles of the best candidate, infinite where there is none.
  double cycles();
  /// Returns the opts that the kernel or the options ask for; null: they ask for none.
  const Opts* given() const;
  /// Returns the plan with the opts that were applied to axes().
  KernelPlan finish() &&;

 private:
  std::optional<KernelAxes> axes_;
  std::vector<Candidate> best_;
  bool asked_ = false;
};

/// What has happened to a kernel when a row looks at it.
enum class PlanPhase : uint8_t {
  kScheduled,  ///< nothing: it is as the scheduler wrote it
  kWritten,    ///< algebra
  kRanged,     ///< its ranges are chosen, reused values of reductions spilled
  kFormed      ///< its instructions are chosen
};
/// The first row of a phase that matches and does not decline is the kernel's variant.
struct Variant {
  PlanPhase phase;
  const char* name;
  bool (*matches)(PlanRequest& r);
  bool (*plan)(PlanRequest& r);  ///< adds opts; false: it does not pay, and nothing is done
};
std::span<const Variant> variants();

/// A form is the same kernel in other ranges or instructions. The model decides between it and the form so far.
struct KernelForm {
  const char* name;
  std::vector<KernelAxes> (*alternatives)(PlanRequest& r);
};
extern const KernelForm kFlatRows, kTensorCores;
/// Takes the alternative that the model predicts the least cycles for, if any takes less than the form so far.
void choose_form(PlanRequest& r, const KernelForm& form);

}  // namespace tg
