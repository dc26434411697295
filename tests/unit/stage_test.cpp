/// \file STAGE nodes between the pass that makes them and the one that lowers them, and numbers nobody else has.

#include <map>

#include "kernels.h"
#include "tinygrad/base/context.h"
#include "tinygrad/codegen/kernel_context.h"
#include "tinygrad/codegen/opt/kernel_axes.h"

namespace tg::testing {
namespace {
std::map<StageKind, int> stages_after(const char* pass, const KernelPtr& k, std::vector<Opt> opts,
                                      const Renderer& renderer) {
  const Context spec{{"SPEC", 1}};
  CodegenOptions o;
  o.opts = std::move(opts);
  o.stop_after = pass;
  const auto p = to_program(*k, renderer, o);
  ArenaScope scope(*p->arena);
  std::map<StageKind, int> kinds;
  for (UOp u : p->ast.toposort())
    if (u.is(Ops::STAGE)) kinds[u.arg<StageArg>().use]++;
  return kinds;
}

TEST(Stage, IsANodeUntilItIsLowered) {
  using Kinds = std::map<StageKind, int>;
  const TestRenderer cpu(16), grid(16, false, true);
  const std::vector<Opt> panels{{OptOp::kVector, 1, 4}, {OptOp::kStage, -1, 1}, {OptOp::kStage, 0, 0}};
  const std::vector<Opt> window{{OptOp::kStageWindow, 0, 0}, {OptOp::kStage, 1, 1}};
  const std::vector<Opt> tiles{{OptOp::kLocal, 0, 4}, {OptOp::kSplit, 2, 8}, {OptOp::kStage, 2, 0}};
  const auto product = [] { return matmul(16, 16, 16); };
  const auto image = [] { return conv_input_grad(2, 3, 4, 8, 20, 3); };
  EXPECT_EQ(stages_after("apply opts", product(), panels, cpu), Kinds{});
  EXPECT_EQ(stages_after("stage operands", product(), panels, cpu), (Kinds{{StageKind::kPanel, 2}}));
  EXPECT_EQ(stages_after("substitute ranges", product(), panels, cpu), (Kinds{{StageKind::kPanel, 2}}));
  EXPECT_EQ(stages_after("lower stages", product(), panels, cpu), Kinds{});
  EXPECT_EQ(stages_after("substitute ranges", image(), window, cpu),
            (Kinds{{StageKind::kPanel, 1}, {StageKind::kWindow, 1}}));
  EXPECT_EQ(stages_after("lower stages", image(), window, cpu), Kinds{});
  EXPECT_EQ(stages_after("substitute ranges", product(), tiles, grid), (Kinds{{StageKind::kTile, 1}}));
  EXPECT_EQ(stages_after("lower stages", product(), tiles, grid), Kinds{});
}

TEST(KernelContext, NumbersLieBeyondThoseOfTheKernel) {
  const KernelPtr k = matmul(4, 5, 6);
  ArenaScope scope(*k->arena);
  KernelContext names(k->sink);
  const UOps order = k->sink.toposort();
  UOp a = names.range(3, AxisType::kLoop), b = names.range(3, AxisType::kLoop);
  EXPECT_NE(a, b);
  for (UOp u : order)
    if (u.is(Ops::RANGE)) EXPECT_LT(u.arg<RangeArg>().id[0], a.arg<RangeArg>().id[0]);
  const int32_t first = names.reserve_ranges(5);
  EXPECT_EQ(names.reserve_ranges(), first + 5);
  EXPECT_NE(names.scratch(dtypes::float32, 8), names.scratch(dtypes::float32, 8));
}

}  // namespace
}  // namespace tg::testing
