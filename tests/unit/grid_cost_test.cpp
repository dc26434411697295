/// \file The model of grids: what it chooses for kernels that are no products, on GPUs large and small.
#include "tinygrad/codegen/plan/grid_cost.h"

#include <gtest/gtest.h>

#include "kernels.h"
#include "tinygrad/render/renderers.h"

namespace tg {
namespace {
using namespace testing;

Target gpu(const std::string& renderer, const std::string& arch, std::vector<std::string> features) {
  Target t;
  t.device = "TEST";
  t.renderer = renderer;
  t.arch = arch;
  t.features = std::move(features);
  t.vector_bytes = 4;
  return t;
}
Target h100() { return gpu("CUDA", "sm_90", {"copy16", "fma", "fp16", "shuffles"}); }
Target a100() { return gpu("CUDA", "sm_80", {"copy16", "fma", "fp16", "shuffles"}); }
Target mi300() { return gpu("HIP", "gfx942", {"copy16", "fma", "shuffles"}); }
Target small() { return gpu("OPENCL", "adreno", {"fma", "workgroups"}); }

struct Shape {
  int64_t groups = 1, threads = 1;
};
Shape planned(const KernelPtr& k, const Target& t) {
  const auto p = to_program(*k, *make_renderer(t), {});
  ArenaScope scope(*p->arena);
  Shape s;
  for (int i = 0; i < 3; i++) {
    if (p->global_size[i]) s.groups *= static_cast<int64_t>(p->global_size[i].const_int());
    if (p->local_size[i]) s.threads *= static_cast<int64_t>(p->local_size[i].const_int());
  }
  return s;
}

/// Registers, memory of a group and warps of a unit each limit how many groups it has.
TEST(GridCost, GroupsAtOnce) {
  const GpuFigures& f = gpu_figures(h100());
  GridLoad l{.groups = 10000, .threads = 256, .registers = 32, .bytes = 1e9, .in_flight = 16};
  EXPECT_EQ(grid_cost(l, f).groups_at_once, 8);  // 64 warps
  EXPECT_EQ(grid_cost(l, f).occupancy, 1);
  l.registers = 64;
  EXPECT_EQ(grid_cost(l, f).groups_at_once, 4);  // 64 K registers
  EXPECT_EQ(grid_cost(l, f).occupancy, 0.5);
  l.shared_bytes = 100 << 10;
  EXPECT_EQ(grid_cost(l, f).groups_at_once, 2);
  l.registers = 256;
  EXPECT_EQ(grid_cost(l, f).groups_at_once, 0) << "more than a thread may have";
  l.registers = 32;
  l.shared_bytes = 229 << 10;
  EXPECT_EQ(grid_cost(l, f).groups_at_once, 0);
}

/// Memory is busy where enough bytes are under way, and takes as long as these do where they are not.
TEST(GridCost, BytesUnderWay) {
  for (const Target& t : {h100(), a100(), mi300(), small()}) {
    SCOPED_TRACE(t.arch);
    const GpuFigures& f = gpu_figures(t);
    GridLoad l{.groups = f.units * 64, .threads = 256, .registers = 32, .bytes = 1e9, .in_flight = 16};
    EXPECT_NEAR(grid_cost(l, f).memory, 1e9 / f.memory * f.clock, 1);
    l.groups = 1;
    l.in_flight = 4;
    EXPECT_GT(grid_cost(l, f).memory, 2e9 / f.memory * f.clock) << "one group does not keep all memory busy";
  }
}

TEST(GridCost, LargeKernelsFillEveryUnit) {
  for (const Target& t : {h100(), a100(), mi300(), small()}) {
    SCOPED_TRACE(t.arch);
    const Shape s = planned(elementwise(1, 1 << 22), t);
    EXPECT_GE(s.threads, 64);
    EXPECT_LE(s.threads, 256);
    EXPECT_GE(s.groups, 8 * gpu_figures(t).units);
    EXPECT_EQ((1 << 22) / (s.groups * s.threads), 4) << "elements of a thread";
  }
}

/// All bytes of a small kernel are under way at once, be they of few threads or of many: the model leaves runs alone.
TEST(GridCost, SmallKernelsKeepRuns) {
  for (const Target& t : {h100(), a100(), mi300(), small()}) {
    SCOPED_TRACE(t.arch);
    const Shape s = planned(elementwise(1, 1 << 13), t);
    EXPECT_GE(s.groups, gpu_figures(t).units > 64 ? 16 : gpu_figures(t).units);
    const GpuFigures& f = gpu_figures(t);
    const GridLoad few{.groups = 16, .threads = 128, .bytes = 1 << 16, .in_flight = 32},
        many{.groups = 64, .threads = 128, .bytes = 1 << 16, .in_flight = 8};
    if (f.units > 64) {
      EXPECT_NEAR(grid_cost(few, f).clocks, grid_cost(many, f).clocks, 0.02 * grid_cost(few, f).clocks);
    }
  }
}

/// One long sum has many threads, thousands of them a warp each.
TEST(GridCost, TeamsOfSums) {
  for (const Target& t : {h100(), a100(), mi300()}) {
    SCOPED_TRACE(t.arch);
    const int warp = gpu_figures(t).warp;
    EXPECT_EQ(planned(reduce_rows(4, 1 << 16), t).threads, 1024);  // four groups: as many as there may be
    const Shape many = planned(reduce_rows(1 << 15, 512), t);
    EXPECT_GE(many.groups * many.threads, int64_t{1 << 15} * warp / 2);
    EXPECT_LE(many.groups * many.threads, int64_t{1 << 15} * warp * 2);
  }
}

}  // namespace
}  // namespace tg
