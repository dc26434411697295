/// \file Mutations of plans of grids: whatever can be applied computes what the kernel means.
#include "tinygrad/codegen/plan/grid_mutate.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels.h"
#include "tinygrad/codegen/plan/grid_plan.h"
#include "tinygrad/render/renderers.h"

namespace tg {
namespace {
using namespace testing;

Target grid_target() {
  Target t;
  t.device = "TEST";
  t.renderer = "OPENCL";
  t.features = {"fma", "workgroups"};
  t.vector_bytes = 4;
  t.group_threads = 256;
  t.shared_bytes = 32 << 10;
  return t;
}

/// Runs some of the mutations of the heuristic's plan; the OptOps that occur.
std::set<OptOp> check_mutations(const KernelPtr& k) {
  const auto renderer = make_renderer(grid_target());
  std::vector<Opts> all;
  std::set<OptOp> seen;
  {
    CodegenOptions ranges;
    ranges.stop_after = "plan";
    const auto ranged = to_program(*k, *renderer, ranges);
    ArenaScope scope(*ranged->arena);
    KernelAxes axes(ranged->ast, *renderer);
    const KernelAxes bare = axes;
    plan_workgroups(axes, {});
    for (Opts& o : grid_mutations(axes.applied(), bare)) {
      KernelAxes copy = bare;
      try {
        for (const Opt& opt : o) copy.apply(opt);
      } catch (const KernelOptError&) { continue; }
      EXPECT_NE(copy.applied(), axes.applied());
      all.push_back(std::move(o));
    }
  }
  for (size_t i = 0; i < all.size(); i += 1 + all.size() / 5) {
    SCOPED_TRACE(to_text(all[i]));
    CodegenOptions o;
    o.opts = all[i];
    check_kernel(k, *renderer, o);
    for (const Opt& opt : all[i]) seen.insert(opt.op);
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GE(all.size(), 4u);
  return seen;
}

TEST(GridMutate, ComputesTheSame) {
  const auto products = check_mutations(matmul(16, 24, 16));
  for (OptOp op : {OptOp::kLocal, OptOp::kUpcast, OptOp::kStage}) EXPECT_TRUE(products.contains(op)) << name_of(op);
  const auto sums = check_mutations(reduce_rows(2, 256));
  EXPECT_TRUE(sums.contains(OptOp::kGroup));
  check_mutations(elementwise(16, 96));
  check_mutations(softmax(2, 36));
  check_mutations(conv(1, 2, 8, 6, 6, 3, 1));
}

}  // namespace
}  // namespace tg
