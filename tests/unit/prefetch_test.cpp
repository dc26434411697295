/// \file Prefetches: which loads have them, for which place, and that programs with them mean the same.
#include "tinygrad/codegen/prefetch.h"

#include <algorithm>

#include "kernels.h"
#include "tinygrad/codegen/access.h"

namespace tg::testing {
namespace {
std::vector<int64_t> distances(const Program& p) {  // elements from the element of all-zero loop counters
  ArenaScope scope(*p.arena);
  std::vector<int64_t> out;
  for (UOp u : p.linear)
    if (is_prefetch(u)) out.push_back(linear_form(u.src(0).src(1)).offset);
  return out;
}
CodegenOptions with(std::vector<Opt> opts) {
  CodegenOptions o;
  o.opts = std::move(opts);
  return o;
}

TEST(Prefetch, MaskedStreamsAreAskedForAhead) {
  // 4 rows of 64 a step: the taps share one line for each row, half a step of rows or more away.
  auto p = check_kernel(depthwise(2, 3, 64, 64, 3, 1), TestRenderer(64), with({{OptOp::kUpcast, 2, 4}, {OptOp::kVector, 3, 16}}));
  std::vector<int64_t> d = distances(*p);
  std::sort(d.begin(), d.end());
  ASSERT_EQ(d.size(), 4u);
  for (int64_t x : d) EXPECT_GE(x, 64) << "less than a row ahead";
  for (size_t i = 1; i < d.size(); i++) EXPECT_EQ(d[i] - d[i - 1], 64) << "rows of 64";
}
TEST(Prefetch, PlainLoadsAreLeftToTheProcessor) {
  auto p = check_kernel(depthwise(2, 3, 66, 66, 3, 0), TestRenderer(64), with({{OptOp::kUpcast, 2, 4}, {OptOp::kVector, 3, 16}}));
  EXPECT_EQ(distances(*p).size(), 0u);
}
TEST(Prefetch, SmallTensorsAreInTheCache) {
  auto p = check_kernel(depthwise(2, 3, 16, 16, 3, 1), TestRenderer(64), with({{OptOp::kVector, 3, 16}}));
  EXPECT_EQ(distances(*p).size(), 0u);
}
TEST(Prefetch, WhatIsReadOftenWaitsOnce) {
  // 9 taps for each of 8 output channels.
  auto p = check_kernel(conv(2, 8, 8, 32, 32, 3, 1), TestRenderer(64), with({{OptOp::kVector, 3, 16}}));
  EXPECT_EQ(distances(*p).size(), 0u);
}
TEST(Prefetch, ScalarMasksHaveNone) {
  auto p = check_kernel(depthwise(2, 3, 64, 64, 3, 1), TestRenderer(64), with({{OptOp::kUpcast, 2, 4}}));
  EXPECT_EQ(distances(*p).size(), 0u);
}
TEST(Prefetch, EveryIterationBeforeTheLastHasItsOwn) {
  // No reduce: rows shifted by one, ahead within the row.
  KernelMaker k;
  UOp a = k.param(1, 40 * 1000), o = k.param(0, 40 * 1000), i = k.loop(40), j = k.loop(1000), ok = j.ge(j.const_like(1));
  UOp v = ok.where(a.index({(i * 1000 + j - 1).valid(ok)}).load(), UOp::constant(0.0, dtypes::float32));
  auto p = check_kernel(k.finish(o.index({i * 1000 + j}).store(v).end(UOps{i, j})), TestRenderer(64), with({{OptOp::kVector, 1, 8}}));
  const std::vector<int64_t> d = distances(*p);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_GE(d[0], 64);
  EXPECT_EQ((d[0] + 1) % 8, 0) << "whole steps";
}
}  // namespace
}  // namespace tg::testing
