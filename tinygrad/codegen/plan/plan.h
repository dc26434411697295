/// \file KernelPlan: everything that is chosen for a kernel, as one value. It is chosen once and then applied blindly.
#pragma once
#include <iosfwd>
#include <optional>
#include <vector>

#include "tinygrad/codegen/codegen.h"
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg {

struct KernelPlan {
  UOp ast{};                      ///< the kernel that `opts` are for: its ranges are chosen, reused values spilled
  Opts opts{};                    ///< all of them, in the order they are applied
  bool final = false;             ///< its loops are those of the program already: nothing is applied
  double cycles = 0;              ///< predicted, one core; 0: the cost model was not asked
  const char* variant = "none";   ///< the row of the table (codegen/plan/variants.h) that chose the opts
  const char* form = "as it is";  ///< the form of the kernel that the model takes to be the fastest
  CostAccount account{};          ///< of `cycles`, where CodegenOptions::account asks for it

  bool operator==(const KernelPlan& o) const { return ast == o.ast && opts == o.opts; }
  /// Hashes what decides the code: the kernel and the opts.
  Hash128 hash() const;
};
std::ostream& operator<<(std::ostream& os, const KernelPlan& plan);

/// Plans a kernel that has to be recognised before anything is simplified; nullopt: it is none of those.
std::optional<KernelPlan> plan_scheduled(UOp ast, const Renderer& renderer, const CodegenOptions& options,
                                         KernelContext& names);
/// Plans any other kernel, after algebra. Throws KernelOptError when nothing fits.
KernelPlan plan_kernel(UOp ast, const Renderer& renderer, const CodegenOptions& options, KernelContext& names);
/// Returns the plan's kernel with its opts applied; nullopt: it stays as it is. Throws KernelOptError when an opt does
/// not fit.
std::optional<KernelAxes> apply_plan(const KernelPlan& plan, const Renderer& renderer);

}  // namespace tg
