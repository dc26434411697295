/// \file Poolings and their gradients: adjacent windows, elements that neighbouring lanes share.
#include "kernels.h"
#include "lane_access.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"
#include "tinygrad/uop/affine.h"

namespace tg::testing {
namespace {
TEST(Pooling, RangesOfWhatIsStoredStayWholeWhereLanesShareElements) {
  const KernelPtr k = pool_gradient(4, 20, 2);
  ArenaScope scope(*k->arena);
  UOp sink = simplify_ranges(k->sink);
  int whole = 0;
  for (UOp u : sink.toposort()) whole += u.is(Ops::RANGE) && u.src(0).is_const_int(20);
  EXPECT_EQ(whole, 1);  // columns; rows are apart
}

TEST(Pooling, GradientsKeepTheMeaning) {
  for (int bytes : {16, 32, 64})
    for (int64_t f : {2, 3, 4})
      for (int64_t h : {12, 24, 36}) {
        check_kernel(pool_gradient(3, h, f), TestRenderer(bytes), {});
        check_kernel(pool_ties(3, h, f, f), TestRenderer(bytes), {});
        check_kernel(pool_ties(3, h + 1, f, 2), TestRenderer(bytes), {});
      }
}

TEST(Pooling, PhasesOfAStrideAreRangesOfTheirOwn) {
  for (auto [h, f, step, pad] : {std::array<int64_t, 4>{56, 3, 2, 1}, {48, 5, 3, 2}, {112, 7, 2, 3}}) {
    const KernelPtr k = taps_to_image(8, h, h, f, step, pad);
    ArenaScope scope(*k->arena);
    int64_t phases = 0, whole = 0;
    for (UOp u : simplify_ranges(k->sink).toposort()) {
      if (!u.is(Ops::RANGE) || u.arg<RangeArg>().type != AxisType::kLoop) continue;
      phases += u.src(0).is_const_int(step);
      whole += u.src(0).is_const_int(h);
    }
    EXPECT_EQ(phases, 2) << h;
    EXPECT_EQ(whole, 0) << h;
  }
  for (int bytes : {16, 64})
    for (int64_t pad : {0, 1, 2}) {
      check_kernel(taps_to_image(2, 12, 36, 3, 2, pad), TestRenderer(bytes), {});
      check_kernel(taps_to_image(2, 13, 21, 4, 3, pad), TestRenderer(bytes), {});
      check_kernel(taps_to_image(2, 11, 35, 3, 2, pad), TestRenderer(bytes), {});  // ends within a step
    }
}

TEST(Pooling, WindowsAreUnrolledAndStoredAlongMemory) {
  const TestRenderer r(64);
  for (auto [h, f, step] : {std::array<int64_t, 3>{20, 2, 2}, {113, 3, 2}}) {
    const auto p = to_program(*pool_ties(512, h, f, step), r);
    EXPECT_GE(std::count_if(p->applied_opts.begin(), p->applied_opts.end(),
                            [](const Opt& o) { return o.op == OptOp::kUnroll; }),
              1)
        << h;
  }
  const auto p = to_program(*pool_gradient(512, 20, 2), r);
  ArenaScope scope(*p->arena);
  for (UOp u : p->insts)
    if (u.is(Ops::STORE)) { EXPECT_EQ(lanes_of_access(u.src(0)), Lanes::kUnit); }
}
}  // namespace
}  // namespace tg::testing
