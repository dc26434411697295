/// \file Prefetches: which loads have them, for which address, and that programs with them compute the same.

#include <algorithm>
#include <map>

#include "kernels.h"
#include "tinygrad/uop/affine.h"

namespace tg::testing {
namespace {
std::vector<int64_t> distances(const Program& p) {  // elements from the element of all-zero loop counters
  ArenaScope scope(*p.arena);
  std::vector<int64_t> out;
  for (UOp u : p.insts)
    if (u.is(Ops::CUSTOM)) out.push_back(AffineIndex(u.src(0).src(1)).offset);
  return out;
}
CodegenOptions with(std::vector<Opt> opts) {
  CodegenOptions o;
  o.opts = std::move(opts);
  return o;
}

TEST(Prefetch, MaskedStreamsAreAskedForAhead) {
  // 4 rows of 64 a step: the taps share one line for each row, half a step of rows or more away.
  auto p = check_kernel(depthwise(2, 3, 64, 64, 3, 1), TestRenderer(64),
                        with({{OptOp::kUpcast, 2, 4}, {OptOp::kVector, 3, 16}}));
  std::vector<int64_t> d = distances(*p);
  std::sort(d.begin(), d.end());
  ASSERT_EQ(d.size(), 4u);
  for (int64_t x : d) EXPECT_GE(x, 64) << "less than a row ahead";
  for (size_t i = 1; i < d.size(); i++) EXPECT_EQ(d[i] - d[i - 1], 64) << "rows of 64";
}
TEST(Prefetch, PlainLoadsAreLeftToTheProcessor) {
  auto p = check_kernel(depthwise(2, 3, 66, 66, 3, 0), TestRenderer(64),
                        with({{OptOp::kUpcast, 2, 4}, {OptOp::kVector, 3, 16}}));
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
  UOp a = k.param(1, 40 * 1000), o = k.param(0, 40 * 1000), i = k.loop(40), j = k.loop(1000),
      ok = j.ge(j.const_like(1));
  UOp v = ok.where(a.index({(i * 1000 + j - 1).valid(ok)}).load(), UOp::constant(0.0, dtypes::float32));
  auto p = check_kernel(k.finish(o.index({i * 1000 + j}).store(v).end(UOps{i, j})), TestRenderer(64),
                        with({{OptOp::kVector, 1, 8}}));
  const std::vector<int64_t> d = distances(*p);
  ASSERT_EQ(d.size(), 1u);
  EXPECT_GE(d[0], 64);
  EXPECT_EQ((d[0] + 1) % 8, 0) << "whole steps";
}

/// Offsets of the prefetches of a parameter, by the number of the loops that have begun before each.
std::multimap<size_t, int64_t> prefetched(const Program& p, int slot) {
  ArenaScope scope(*p.arena);
  std::multimap<size_t, int64_t> out;
  size_t loops = 0;
  for (UOp u : p.insts) {
    loops += u.is(Ops::RANGE) && u.arg<RangeArg>().type != AxisType::kVector;
    if (u.is(Ops::CUSTOM) && u.src(0).src(0).arg<ParamArg>().slot == slot)
      out.emplace(loops, AffineIndex(u.src(0).src(1)).offset);
  }
  return out;
}
const std::vector<Opt> kPanels{{OptOp::kUpcast, 0, 8}, {OptOp::kVector, 1, 16},  {OptOp::kUpcast, 1, 2},
                               {OptOp::kSplit, 1, 4},  {OptOp::kSplit, 0, 4},    {OptOp::kSwap, 0, 1},
                               {OptOp::kSwap, 7, 0},   {OptOp::kGroupTop, 2, 2}, {OptOp::kStage, 0, 0},
                               {OptOp::kStage, 1, 1}};

TEST(Prefetch, PartialSumsComeWhileTheNextOnesAreMade) {
  auto p = to_program(*matmul(512, 512, 512, true), TestRenderer(64), with(kPanels));
  const auto sums = prefetched(*p, 0);
  ASSERT_EQ(sums.size(), 16u) << "a tile of 8 rows, two lines each";
  size_t loops = 0;
  for (UOp u : p->insts) loops += u.is(Ops::RANGE) && u.arg<RangeArg>().type != AxisType::kVector;
  std::vector<int64_t> offsets;
  for (const auto& [at, offset] : sums) {
    EXPECT_EQ(at, loops - 1) << "before the loop of the sum";
    offsets.push_back(offset);
  }
  std::sort(offsets.begin(), offsets.end());
  for (size_t i = 0; i < offsets.size(); i++) EXPECT_EQ(offsets[i], static_cast<int64_t>(i / 2 * 512 + i % 2 * 16));
  // Nothing is read where there is one block; little is waited for where the results stay in the cache, and nothing
  // hides behind a short sum.
  std::vector<Opt> once;
  for (const Opt& o : kPanels)
    if (o.op != OptOp::kGroupTop) once.push_back(o);
  EXPECT_EQ(prefetched(*to_program(*matmul(512, 512, 128, true), TestRenderer(64), with(once)), 0).size(), 0u);
  EXPECT_EQ(prefetched(*to_program(*matmul(256, 256, 512, true), TestRenderer(64), with(kPanels)), 0).size(), 0u);
  EXPECT_EQ(prefetched(*to_program(*matmul(512, 512, 64, true), TestRenderer(64), with(kPanels)), 0).size(), 0u);
}
TEST(Prefetch, RowsBeginAhead) {
  // Eight rows of 1024 floats in parallel: the first line of each of the next eight, outside of the loop that walks
  // them.
  const std::vector<Opt> tile{
      {OptOp::kUpcast, 0, 8}, {OptOp::kVector, 1, 16}, {OptOp::kSwap, 0, 1}, {OptOp::kStage, 1, 1}};
  auto p = to_program(*matmul(128, 64, 1024), TestRenderer(64), with(tile));
  const auto rows = prefetched(*p, 1);
  ASSERT_EQ(rows.size(), 8u);
  size_t loops = 0;
  for (UOp u : p->insts) loops += u.is(Ops::RANGE) && u.arg<RangeArg>().type != AxisType::kVector;
  std::vector<int64_t> offsets;
  for (const auto& [at, offset] : rows) {
    EXPECT_EQ(at, loops - 1);
    offsets.push_back(offset);
  }
  std::sort(offsets.begin(), offsets.end());
  for (size_t i = 0; i < offsets.size(); i++) EXPECT_EQ(offsets[i], static_cast<int64_t>((8 + i) * 1024));
  // Columns are walked from row to row; short matrices are in the cache; one row is followed by the next.
  EXPECT_EQ(prefetched(*to_program(*matmul(128, 64, 1024, true), TestRenderer(64), with(tile)), 1).size(), 0u);
  EXPECT_EQ(prefetched(*to_program(*matmul(32, 64, 1024), TestRenderer(64), with(tile)), 1).size(), 0u);
  EXPECT_EQ(
      prefetched(*to_program(*reduce_rows(128, 1024), TestRenderer(64), with({{OptOp::kVector, 1, 16}})), 1).size(),
      0u);
  // A row in parts with gaps between them: all loops of the sum begin again.
  KernelMaker k;
  UOp a = k.param(1, 64 * 5 * 272), b = k.param(2, 5 * 256 * 8), o = k.param(0, 64 * 8);
  UOp i = k.loop(64), j = k.loop(8), r = k.red(5), q = k.red(256);
  UOp sum =
      (a.index({(i * 5 + r) * 272 + q}).load() * b.index({(r * 256 + q) * 8 + j}).load()).reduce(Ops::ADD, UOps{r, q});
  auto parts = check_kernel(k.finish(o.index({i * 8 + j}).store(sum).end(UOps{i, j})), TestRenderer(64),
                            with({{OptOp::kUpcast, 0, 4}, {OptOp::kVector, 1, 8}}));
  const auto d = prefetched(*parts, 1);
  ASSERT_EQ(d.size(), 4u);
  for (const auto& [at, offset] : d) {
    EXPECT_EQ(at, 1u);
    EXPECT_EQ(offset % (5 * 272), 0);
  }
}
}  // namespace
}  // namespace tg::testing
