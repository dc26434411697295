/// \file Plans of kernels: which variant takes which kernel, and that a plan is a value that is applied as it is.
#include "tinygrad/codegen/plan/plan.h"

#include <set>

#include "kernels.h"
#include "tinygrad/codegen/plan/variants.h"

namespace tg::testing {
namespace {
KernelPlan plan_of(const KernelPtr& k, const Renderer& r, const CodegenOptions& o = {}) {
  KernelContext names(k->sink);
  return plan_kernel(k->sink, r, o, names);
}

TEST(Plan, VariantsByKernel) {
  const KernelPtr k = matmul(64, 64, 64);
  ArenaScope scope(*k->arena);
  EXPECT_STREQ(plan_of(k, TestRenderer(64)).variant, "tiles");
  EXPECT_STREQ(plan_of(k, TestRenderer(16, false, true)).variant, "grid");
  CodegenOptions noopt;
  noopt.noopt = true;
  const KernelPlan plain = plan_of(k, TestRenderer(64), noopt);
  EXPECT_STREQ(plain.variant, "unoptimised");
  EXPECT_EQ(plain.ast, k->sink);
  EXPECT_FALSE(apply_plan(plain, TestRenderer(64)));
  CodegenOptions given;
  given.opts = {{OptOp::kUpcast, 0, 4}};
  const KernelPlan asked = plan_of(k, TestRenderer(64), given);
  EXPECT_STREQ(asked.variant, "given");
  EXPECT_EQ(asked.opts, *given.opts);
}

TEST(Plan, FormsByTheModel) {
  const KernelPtr k = conv_input_grad(64, 64, 64, 8, 8, 3);
  ArenaScope scope(*k->arena);
  EXPECT_STREQ(plan_of(k, TestRenderer(64)).form, "flat rows") << "rows of eight would waste lanes";
}

/// How many vectors of results a plan keeps at once.
int64_t tile_of(const KernelPlan& plan) {
  int64_t tile = 1;
  for (const Opt& o : plan.opts)
    if (o.op == OptOp::kUpcast) tile *= o.arg;
  return tile;
}
/// A product whose results a chain of operations follows, as many as an activation takes.
KernelPtr matmul_and_chain(int64_t n, int operations) {
  KernelMaker k;
  UOp a = k.param(1, n * n), b = k.param(2, n * n), o = k.param(0, n * n), i = k.loop(n), j = k.loop(n), r = k.red(n);
  UOp x = a.index({i * n + r}).load(), y = b.index({r * n + j}).load();
  UOp v = (x * y).reduce(Ops::ADD, UOps{r});
  for (int c = 0; c < operations; c++) v = v * v + v.const_like(0.5 + c);
  return k.finish(o.index({i * n + j}).store(v).end(UOps{i, j}));
}

TEST(Plan, WhatFollowsALoopLeavesItsTileAsLarge) {
  const TestRenderer r(64);
  const auto tile = [&](int operations) {
    const KernelPtr k = matmul_and_chain(768, operations);
    ArenaScope scope(*k->arena);
    return tile_of(plan_of(k, r));
  };
  EXPECT_GE(tile(0), 16);
  EXPECT_GE(tile(15), 16) << "as of gelu: it runs once for each tile";
  EXPECT_LT(tile(400), 8) << "too long to be repeated for a tile";
}

TEST(Plan, AMatrixThatStreamsIsReadRowByRow) {
  const auto lanes_are_terms = [](int64_t rows) {
    constexpr int64_t kTerms = 384;
    KernelMaker k;
    UOp a = k.param(1, rows * kTerms), x = k.param(2, kTerms), o = k.param(0, rows), i = k.loop(rows),
        r = k.red(kTerms);
    UOp product = a.index({i * kTerms + r}).load() * x.index({r}).load();
    const KernelPtr kernel = k.finish(o.index({i}).store(product.reduce(Ops::ADD, UOps{r})).end(UOps{i}));
    ArenaScope scope(*kernel->arena);
    for (const Opt& opt : plan_of(kernel, TestRenderer(64)).opts)
      if (opt.op == OptOp::kVector) return opt.axis == 1;
    return false;
  };
  EXPECT_TRUE(lanes_are_terms(51864)) << "80 MB: blocks of rows, transposed in registers, take half as long again";
}

TEST(Plan, IsAppliedAsItIs) {
  const TestRenderer r(32);
  for (auto& [name, make] : all_kernels()) {
    SCOPED_TRACE(name);
    const KernelPtr k = make();
    const auto p = to_program(*k, r);
    CodegenOptions ranges;
    ranges.stop_after = "plan";
    const auto ranged = to_program(*k, r, ranges);
    ArenaScope scope(*ranged->arena);
    KernelPlan plan{.ast = ranged->ast, .opts = p->applied_opts};
    if (const auto kernel = apply_plan(plan, r)) EXPECT_EQ(kernel->applied(), p->applied_opts);
    else EXPECT_TRUE(p->applied_opts.empty());
  }
}

TEST(Plan, IsAValue) {
  const KernelPtr k = matmul(32, 32, 32);
  ArenaScope scope(*k->arena);
  const KernelPlan a = plan_of(k, TestRenderer(64)), b = plan_of(k, TestRenderer(64));
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_GT(a.cycles, 0);
  KernelPlan c = a;
  c.opts.pop_back();
  EXPECT_FALSE(a == c);
  EXPECT_NE(a.hash(), c.hash());
  EXPECT_NE(str(a).find("VECTOR"), std::string::npos) << a;
}

TEST(Plan, RowsOfTheTableHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Variant& v : variants()) EXPECT_TRUE(names.insert(v.name).second) << v.name;
}
}  // namespace
}  // namespace tg::testing
