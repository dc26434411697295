/// \file What the heuristic chooses for workgroups: every plan is run thread by thread and compared with the kernel.
#include <gtest/gtest.h>

#include "kernels.h"
#include "tinygrad/base/context.h"
#include "tinygrad/render/renderers.h"

namespace tg {
namespace {
using namespace testing;

Target small_target(int64_t group_threads = 256) {
  Target t;
  t.device = "TEST";
  t.renderer = "OPENCL";
  t.features = {"fma", "workgroups"};
  t.vector_bytes = 4;
  t.group_threads = group_threads;
  t.shared_bytes = 32 << 10;
  return t;
}
struct Grid {
  int64_t groups = 1, threads = 1;
  int barriers = 0;
};
Grid planned(const KernelPtr& k, const Target& t = small_target()) {
  const auto p = check_kernel(k, *make_renderer(t), CodegenOptions::from_env());
  ArenaScope scope(*p->arena);
  Grid g;
  for (int i = 0; i < 3; i++) {
    if (p->global_size[i]) g.groups *= static_cast<int64_t>(p->global_size[i].const_int());
    if (p->local_size[i]) g.threads *= static_cast<int64_t>(p->local_size[i].const_int());
  }
  for (UOp u : p->insts) g.barriers += u.is(Ops::BARRIER);
  return g;
}

TEST(GridPlan, ProductsAreTiledInTheGroupsMemory) {
  const Grid g = planned(matmul(64, 64, 32));
  EXPECT_EQ(g.threads, 16 * 16);
  EXPECT_EQ(g.groups, 1);
  EXPECT_EQ(g.barriers, 2);
  for (int t = 1; t < 4; t++) EXPECT_EQ(planned(matmul(64, 64, 32, t & 1, t & 2)).barriers, 2);
}

TEST(GridPlan, ProductsOfAnySize) {
  for (const auto& [n, m, l] :
       {std::tuple{9, 70, 12}, std::tuple{33, 17, 7}, std::tuple{8, 8, 64}, std::tuple{65, 66, 67}})
    planned(matmul(n, m, l));
  EXPECT_EQ(planned(conv(1, 8, 16, 12, 12, 3, 1)).barriers, 2);
  planned(conv(2, 3, 9, 10, 11, 3, 0));
}

/// An axis that no dimension is long enough for has two, and where its length has no divisor to fit, threads beyond the
/// end store nothing.
TEST(GridPlan, LongAxesHaveTwoDimensions) {
  for (int64_t n : {1024, 1000, 1021}) {
    Target t = small_target(4);
    for (int64_t& limit : t.grid_limit) limit = 32;
    const Grid g = planned(elementwise(1, n), t);
    EXPECT_GE(g.groups * g.threads, n);
    EXPECT_LE(g.groups * g.threads, 32 * 32 * 4);
  }
  Target t = small_target(1);
  for (int64_t& limit : t.grid_limit) limit = 4;
  EXPECT_THROW(planned(elementwise(1, 1021), t), ShapeError);
}

TEST(GridPlan, FewSumsAreSharedByGroups) {
  EXPECT_GE(planned(reduce_all(4096)).threads, 32);
  const Grid rows = planned(reduce_rows(8, 1000));
  EXPECT_GE(rows.threads, 16);
  EXPECT_EQ(rows.groups, 8);
  EXPECT_GE(planned(reduce_columns(512, 64)).threads, 64);  // neighbours along a row
  EXPECT_GE(planned(reduce_all(4099)).threads, 32);         // a prime number of elements
  planned(reduce_rows(3, 17));
  planned(reduce_all(97, Ops::MAX));
}

/// The softmax of each column.
KernelPtr column_softmax(int64_t rows, int64_t columns) {
  KernelMaker k;
  UOp a = k.param(1, rows * columns), o = k.param(0, rows * columns), i = k.loop(columns), j = k.loop(rows),
      m = k.red(rows), s = k.red(rows);
  const UOp most = a.index({m * columns + i}).load().reduce(Ops::MAX, UOps{m});
  const auto power = [&](UOp r) { return UOp::alu(Ops::EXP2, {a.index({r * columns + i}).load() - most}); };
  const UOp sum = power(s).reduce(Ops::ADD, UOps{s});
  return k.finish(o.index({j * columns + i}).store(power(j) / sum).end(UOps{i, j}));
}

TEST(GridPlan, TeamsShareRows) {
  for (const auto& [rows, columns] : {std::pair{3, 36}, {1, 66}}) {
    SCOPED_TRACE(columns);
    EXPECT_LE(planned(softmax(rows, columns)).groups, rows);
  }
  const Grid columns = planned(column_softmax(33, 16));
  EXPECT_GE(columns.threads, 16 * 8);
  EXPECT_EQ(columns.groups, 1);
}

/// An element of a row that registers hold is loaded once, whoever reads it.
TEST(GridPlan, TeamsLoadTheirRowOnce) {
  const auto p = to_program(*softmax(2, 1024), *make_renderer(small_target()), CodegenOptions::from_env());
  ArenaScope scope(*p->arena);
  int loads = 0, powers = 0, threads = 1;
  for (const UOp& n : p->local_size)
    if (n) threads *= static_cast<int>(n.const_int());
  for (UOp u : p->insts) {
    loads += u.is(Ops::LOAD) && u.src(0).src(0).is(Ops::PARAM);
    powers += u.is(Ops::EXP2);
  }
  EXPECT_EQ(loads * threads, 2 * 1024);
  EXPECT_LE(powers * threads, 2 * 1024);  // none where the language has no EXP2
}

TEST(GridPlan, ThreadsHaveAdjacentElements) {
  for (int64_t n : {1 << 13, (1 << 13) + 4, (1 << 13) + 3}) {
    const auto p = check_kernel(elementwise(1, n), *make_renderer(small_target()), CodegenOptions::from_env());
    EXPECT_NE(p->source.find("vload4"), std::string::npos) << p->source;
    EXPECT_NE(p->source.find("vstore4"), std::string::npos) << p->source;
  }
  const auto few = check_kernel(elementwise(1, 512), *make_renderer(small_target()), CodegenOptions::from_env());
  EXPECT_EQ(few->source.find("vload4"), std::string::npos) << few->source;  // processors would have no threads
}

TEST(GridPlan, NeighboursAreAdjacentInMemory) {
  EXPECT_EQ(planned(elementwise(64, 64)).threads, 256);
  EXPECT_EQ(planned(elementwise(7, 13)).threads, 7 * 13);
  EXPECT_GE(planned(elementwise(37, 41)).threads, 32);
  EXPECT_EQ(planned(elementwise(1, 257)).threads, 32);  // the last ones compute what others do, too
  planned(transpose(40, 24));
}

TEST(GridPlan, GroupsHaveNoMoreThreadsThanTheTarget) {
  for (int64_t most : {1, 16, 64}) {
    for (const KernelPtr& k : {matmul(64, 64, 32), reduce_all(4096), elementwise(64, 64)})
      EXPECT_LE(planned(k, small_target(most)).threads, most);
  }
}

TEST(GridPlan, DimensionsKeepWithinTheLimits) {
  Target t = small_target();
  t.grid_limit[0] = 64;
  t.grid_limit[1] = 3;
  t.grid_limit[2] = 3;
  t.group_limit[1] = 4;
  t.group_limit[2] = 2;
  for (const KernelPtr& k : {elementwise(64, 64), transpose(40, 24), conv(2, 8, 16, 12, 12, 3, 1)}) {
    const auto p = check_kernel(k, *make_renderer(t), CodegenOptions::from_env());
    ArenaScope scope(*p->arena);
    for (int i = 0; i < 3; i++) {
      if (p->global_size[i]) EXPECT_LE(p->global_size[i].const_int(), t.grid_limit[i]);
      if (p->local_size[i]) EXPECT_LE(p->local_size[i].const_int(), t.group_limit[i]);
    }
  }
  t.grid_limit[0] = 1;
  EXPECT_THROW(planned(elementwise(640, 640), t), ShapeError);
}

TEST(GridPlan, WithoutGroups) {
  Context ctx{{"NOLOCALS", 1}};
  for (const KernelPtr& k : {matmul(64, 64, 32), reduce_all(64), elementwise(64, 64)}) EXPECT_EQ(planned(k).threads, 1);
}
}  // namespace
}  // namespace tg
