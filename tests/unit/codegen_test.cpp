/// \file Codegen: linear programs compute what their kernel ASTs mean.
#include "tinygrad/codegen/codegen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "kernel_eval.h"
#include "kernels.h"
#include "lane_access.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/codegen/scratch/window.h"
#include "tinygrad/uop/affine.h"
#include "tinygrad/uop/loop_ranges.h"

namespace tg {
namespace {
using namespace testing;

void check_all(const Renderer& r, bool noopt) {
  for (auto& [name, make] : all_kernels()) {
    SCOPED_TRACE(name);
    CodegenOptions o;
    o.noopt = noopt;
    check_kernel(make(), r, o);
  }
}
TEST(Codegen, NooptEqualsAst) { check_all(TestRenderer(), true); }
TEST(Codegen, HeuristicEqualsAst16) { check_all(TestRenderer(16), false); }
TEST(Codegen, HeuristicEqualsAst32) { check_all(TestRenderer(32), false); }
TEST(Codegen, HeuristicEqualsAst64) { check_all(TestRenderer(64), false); }
TEST(Codegen, GridEqualsAst) { check_all(TestRenderer(16, false, true), false); }
TEST(Codegen, NooptGridEqualsAst) { check_all(TestRenderer(16, false, true), true); }

std::shared_ptr<Program> with_opts(const KernelPtr& k, std::vector<Opt> opts, const Renderer& r = TestRenderer(16)) {
  CodegenOptions o;
  o.opts = std::move(opts);
  return check_kernel(k, r, o);
}
size_t count(const Program& p, Ops op) {
  return static_cast<size_t>(std::count_if(p.insts.begin(), p.insts.end(), [&](UOp u) { return u.is(op); }));
}

TEST(Codegen, OptsKeepTheMeaning) {
  const TestRenderer grid(16, false, true);
  with_opts(matmul(12, 20, 18), {{OptOp::kUpcast, 0, 4}, {OptOp::kVector, 1, 4}, {OptOp::kUnroll, 2, 3}});
  with_opts(matmul(12, 20, 18), {{OptOp::kUpcast, 0, 0}, {OptOp::kUnroll, 2, 0}});
  with_opts(matmul(13, 21, 19), {{OptOp::kPadTo, 0, 4},
                                 {OptOp::kUpcast, 0, 4},
                                 {OptOp::kPadTo, 1, 8},
                                 {OptOp::kVector, 1, 8},
                                 {OptOp::kPadTo, 2, 4},
                                 {OptOp::kUnroll, 2, 4}});
  with_opts(matmul(13, 21, 19, false, true), {{OptOp::kPadTo, 2, 8}, {OptOp::kVector, 2, 4}, {OptOp::kUnroll, 2, 2}});
  with_opts(matmul(12, 20, 18), {{OptOp::kSplit, 0, 3},
                                 {OptOp::kSplit, 1, 5},
                                 {OptOp::kSwap, 0, 1},
                                 {OptOp::kSwap, 3, 4},
                                 {OptOp::kThread, 1, 0}});
  with_opts(matmul(12, 20, 18), {{OptOp::kThread, 0, 3}, {OptOp::kSplit, 2, 6}});
  with_opts(matmul(12, 20, 18),
            {{OptOp::kLocal, 0, 4}, {OptOp::kLocal, 1, 5}, {OptOp::kGroup, 2, 3}, {OptOp::kUnroll, 2, 2}}, grid);
  with_opts(matmul(12, 20, 18), {{OptOp::kUpcast, 0, 3}, {OptOp::kGroupTop, 2, 6}}, grid);
  with_opts(conv(2, 3, 4, 9, 12, 3, 1), {{OptOp::kLocal, 3, 4}, {OptOp::kLocal, 2, 3}, {OptOp::kUpcast, 1, 2}}, grid);
  with_opts(softmax(6, 20), {{OptOp::kPadTo, 1, 8},
                             {OptOp::kVector, 1, 8},
                             {OptOp::kPadTo, 2, 8},
                             {OptOp::kVector, 2, 8},
                             {OptOp::kPadTo, 3, 8},
                             {OptOp::kVector, 3, 8},
                             {OptOp::kUpcast, 0, 2}});
  with_opts(matmul(12, 20, 18), {{OptOp::kGroupTop, 2, 6}, {OptOp::kThread, 0, 0}});
  with_opts(matmul(13, 20, 18), {{OptOp::kPadTo, 0, 4},
                                 {OptOp::kUpcast, 0, 4},
                                 {OptOp::kPadTo, 1, 8},
                                 {OptOp::kVector, 1, 8},
                                 {OptOp::kGroupTop, 2, 9}});
  with_opts(conv_weight_grad(4, 2, 3, 8, 20, 3),
            {{OptOp::kPadTo, 6, 16},
             {OptOp::kVector, 6, 16},
             {OptOp::kUnroll, 6, 2},
             {OptOp::kUpcast, 0, 3},
             {OptOp::kGroupTop, 4, 2}},
            TestRenderer(64));
  with_opts(reduce_all(37, Ops::MAX), {{OptOp::kPadTo, 0, 16}, {OptOp::kVector, 0, 4}, {OptOp::kUnroll, 0, 2}});
}

TEST(Codegen, StagedOperandsKeepTheMeaning) {
  const OptOp vector = OptOp::kVector, upcast = OptOp::kUpcast, swap = OptOp::kSwap, stage = OptOp::kStage,
              split = OptOp::kSplit, pad = OptOp::kPadTo;
  for (int t = 0; t < 4; t++) {
    const auto mm = [&](int64_t n, int64_t m, int64_t l) { return matmul(n, m, l, t & 1, t & 2); };
    with_opts(mm(12, 16, 18), {{stage, 0, 0}});
    with_opts(mm(12, 16, 18), {{stage, -1, 0}, {stage, 1, 1}});
    with_opts(mm(12, 16, 18), {{vector, 1, 4}, {upcast, 1, 2}, {upcast, 0, 3}, {swap, 0, 1}, {stage, 1, 1}});
    with_opts(
        mm(12, 32, 18),
        {{vector, 1, 4}, {upcast, 1, 2}, {upcast, 0, 3}, {split, 1, 2}, {swap, 0, 1}, {stage, 1, 1}, {stage, 0, 0}});
    with_opts(mm(12, 32, 32), {{vector, 1, 4},
                               {upcast, 0, 3},
                               {OptOp::kUnroll, 2, 4},
                               {split, 1, 2},
                               {swap, 0, 1},
                               {OptOp::kGroupTop, 2, 2},
                               {stage, 1, 1},
                               {stage, 0, 0}});
    with_opts(mm(12, 32, 32),
              {{vector, 1, 4}, {swap, 0, 1}, {OptOp::kGroupTop, 2, 2}, {OptOp::kThread, 1, 0}, {stage, 1, 1}});
    with_opts(mm(13, 21, 19),
              {{pad, 0, 4}, {upcast, 0, 4}, {pad, 1, 8}, {vector, 1, 8}, {swap, 0, 1}, {stage, 1, 1}, {stage, 0, 0}});
    with_opts(mm(13, 21, 19), {{pad, 2, 8}, {vector, 2, 4}, {OptOp::kUnroll, 2, 2}, {stage, 0, 0}, {stage, 0, 1}});
  }
  with_opts(conv(2, 2, 5, 7, 8, 3, 1), {{vector, 3, 8}, {swap, 1, 2}, {stage, 2, 0}, {stage, 1, 1}});
  with_opts(conv(2, 3, 4, 9, 20, 3, 1),
            {{pad, 3, 8}, {vector, 3, 8}, {upcast, 1, 2}, {swap, 1, 3}, {swap, 2, 3}, {stage, 3, 0}});
  with_opts(conv_weight_grad(4, 2, 3, 8, 20, 3), {{pad, 6, 16}, {vector, 6, 16}, {upcast, 0, 3}, {stage, 1, 0}},
            TestRenderer(64));
}

TEST(Codegen, StagedPanelsAreReadWithoutMasksAndInOneLoop) {
  // Taps and channels of a padded convolution: masks are evaluated where the panel is filled, and the three reduce
  // loops walk it as one.
  auto p = with_opts(conv(2, 3, 4, 9, 20, 3, 1),
                     {{OptOp::kPadTo, 3, 8},
                      {OptOp::kVector, 3, 8},
                      {OptOp::kUpcast, 1, 2},
                      {OptOp::kSwap, 1, 3},
                      {OptOp::kSwap, 2, 3},
                      {OptOp::kStage, 3, 0}},
                     TestRenderer(32));
  ArenaScope scope(*p->arena);
  size_t reduces = 0, panels = 0;
  for (UOp u : p->insts) {
    reduces += u.is(Ops::RANGE) && u.arg<RangeArg>().type == AxisType::kReduce;
    panels += u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal;
    UOp base = u.is(Ops::LOAD) ? u.src(0).src(0) : u;
    while (base.is(Ops::AFTER)) base = base.src(0);
    if (u.is(Ops::LOAD) && base.is(Ops::BUFFER) && base.arg<ParamArg>().addrspace == AddrSpace::kLocal) {
      EXPECT_EQ(u.nsrc(), 1u);
      EXPECT_EQ(lanes_of_access(u.src(0)), Lanes::kUnit);
    }
  }
  EXPECT_EQ(reduces, 1u);
  EXPECT_EQ(panels, 1u);
}

TEST(Codegen, PartsOfAPanelBeginAtDifferentSets) {
  // 16 parts of 64 x 16 floats, a page each: a line between them. A few, or parts of another length, need none.
  auto elements = [](const KernelPtr& k, int64_t parts) {
    auto p =
        with_opts(k, {{OptOp::kVector, 1, 16}, {OptOp::kSplit, 1, parts}, {OptOp::kSwap, 0, 1}, {OptOp::kStage, 1, 1}},
                  TestRenderer(64));
    ArenaScope scope(*p->arena);
    int64_t n = 0;
    for (UOp u : p->insts)
      if (u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal)
        n += static_cast<int64_t>(u.src(0).src(0).const_int());
    return n;
  };
  for (bool across : {false, true}) {
    EXPECT_EQ(elements(matmul(2, 512, 64, false, across), 16), 16 * (64 * 16 + 16));
    EXPECT_EQ(elements(matmul(2, 512, 64, false, across), 4), 4 * 64 * 16);
    EXPECT_EQ(elements(matmul(2, 512, 48, false, across), 16), 16 * 48 * 16);
  }
}

TEST(Codegen, LargeMatmulsPackTheirPanels) {
  auto staged = [](const Program& p) {
    return std::count_if(p.applied_opts.begin(), p.applied_opts.end(),
                         [](const Opt& o) { return o.op == OptOp::kStage; });
  };
  EXPECT_EQ(staged(*to_program(*matmul(1024, 1024, 1024), TestRenderer(64))), 1);
  EXPECT_EQ(staged(*to_program(*matmul(1024, 1024, 1024, true), TestRenderer(64))),
            2);  // both operands are walked across their rows
  EXPECT_EQ(staged(*to_program(*matmul(1024, 1, 1024), TestRenderer(64))), 0);  // nothing is used twice
  // A few rows times a matrix: a panel would take longer to fill from page to page than the matrix takes to pass by.
  for (int64_t rows : {1, 2, 3}) EXPECT_EQ(staged(*to_program(*matmul(rows, 4096, 4096), TestRenderer(64))), 0) << rows;
  EXPECT_EQ(staged(*to_program(*matmul(32, 4096, 4096), TestRenderer(64))), 1);
  // One thread packs both operands once: the columns of all tiles around the loops, rows in the loop over groups of
  // them.
  const auto alone = to_program(*matmul(1024, 1024, 1024, true), TestRenderer(64, true, false, 1))->applied_opts;
  for (const Opt& o : alone) {
    EXPECT_NE(o.op, OptOp::kThread);
    if (o.op == OptOp::kStage) EXPECT_EQ(o.axis, o.arg == 1 ? -1 : 0);
  }
}

TEST(Codegen, PanelsAcrossMemoryHoldWholeLines) {
  // The columns of a transposed matrix: eight of a tile are half a line, so the panel holds several tiles of them.
  auto split = [](const Program& p, int axis) {
    return std::count_if(p.applied_opts.begin(), p.applied_opts.end(),
                         [&](const Opt& o) { return o.op == OptOp::kSplit && o.axis == axis; });
  };
  EXPECT_EQ(split(*to_program(*matmul(2048, 2048, 2048, true), TestRenderer(64)), 0), 1);
  EXPECT_EQ(split(*to_program(*matmul(2048, 2048, 2048), TestRenderer(64)), 0), 0);
}

TEST(Codegen, TilesOfBranchesFitTheRegisters) {
  // Each masked load of lanes two elements apart is a branch: sums that do not fit into registers go through memory at
  // each of them.
  for (int64_t channels : {16, 32}) {
    double sums = 1;
    const auto p = to_program(*conv(8, 3, channels, 224, 224, 3, 1, 2), TestRenderer(64));
    for (const Opt& o : p->applied_opts)
      if (o.op == OptOp::kUpcast) sums *= static_cast<double>(o.arg);
    EXPECT_GE(sums, 8) << channels;
    EXPECT_LE(sums, 24) << channels;
  }
}

TEST(Codegen, StepsOfTwoReadBackAsSteps) {
  // (x - k + 1) / 2 with x = 2 a + b: a vector load along a, where dividing lanes would gather.
  auto p = to_program(*columns_to_image(2, 12, 64, 3, 2, 1), TestRenderer(64));
  ArenaScope scope(*p->arena);
  size_t loads = 0;
  for (UOp u : p->insts) {
    if (!u.is(Ops::LOAD) || !u.src(0).is(Ops::INDEX)) continue;
    const Lanes kind = lanes_of_access(u.src(0));
    loads += kind == Lanes::kUnit && u.nsrc() > 1;  // padding keeps its gate
    EXPECT_NE(kind, Lanes::kGather);
  }
  EXPECT_GT(loads, 0u);
}

TEST(Codegen, MaskedLanesOfGatedSumsNeedNoSecondMask) {
  // Lanes beyond the end read zeros, and so does padding: the sum chooses nothing.
  auto p = with_opts(conv(1, 2, 3, 5, 14, 3, 1), {{OptOp::kPadTo, 3, 16}, {OptOp::kVector, 3, 16}}, TestRenderer(64));
  EXPECT_EQ(count(*p, Ops::WHERE), 0u);
}

TEST(Codegen, MaskedLanesOfSumsWithABroadcastNumberNeedASecondMask) {
  // Lanes beyond the end read zeros, but the value that is added to all of them has only a gate that depends on the
  // lane.
  with_opts(sums_of_shifted(20, 17), {{OptOp::kPadTo, 1, 8}, {OptOp::kVector, 1, 8}}, TestRenderer(32));
  with_opts(sums_of_shifted(20, 17), {{OptOp::kPadTo, 1, 8}, {OptOp::kVector, 1, 8}, {OptOp::kUnroll, 1, 3}},
            TestRenderer(32));
}

TEST(Codegen, AReducedAxisSharesNoLanesWithItsResult) {
  // Even where the value does not depend on it: the lanes are summed.
  auto k = count_ones(4, 64);
  const TestRenderer r(32);
  ArenaScope scope(*k->arena);
  KernelAxes axes(k->sink, r);
  axes.apply({OptOp::kVector, 0, 4});
  EXPECT_THROW(axes.apply({OptOp::kVector, 1, 4}), KernelOptError);
}
TEST(Codegen, LanesThatBecomeEqualAreSummedAllTheSame) {
  // In the first row, five taps in two instances of four lanes are (t < 1 ? 0 : 1) + (t < 1 ? 1 : 0): one in every
  // lane, four in all.
  auto p = with_opts(count_taps(4, 3, 5), {{OptOp::kUpcast, 0, 4},
                                           {OptOp::kPadTo, 1, 4},
                                           {OptOp::kVector, 1, 4},
                                           {OptOp::kPadTo, 2, 8},
                                           {OptOp::kVector, 2, 4},
                                           {OptOp::kUnroll, 2, 2}});
  ArenaScope scope(*p->arena);
  for (UOp u : p->insts)
    if (u.is(Ops::REDUCE)) EXPECT_TRUE(lane_of(u.src(0)));
}
TEST(Codegen, RandomOptsKeepTheMeaning) {
  // Whatever fits is right: random lists of opts on every kernel.
  std::mt19937 rng(11);
  auto pick = [&](std::initializer_list<int64_t> v) { return *(v.begin() + rng() % v.size()); };
  int applied = 0;
  for (auto& [name, make] : all_kernels()) {
    auto k = make();
    const TestRenderer r(32);
    std::vector<Opt> opts;
    {
      ArenaScope scope(*k->arena);
      KernelAxes axes(k->sink, r);
      for (int i = 0; i < 12; i++) {
        const auto n = static_cast<int32_t>(axes.axes().size());
        if (n == 0) break;
        const OptOp op =
            static_cast<OptOp>(pick({int(OptOp::kUpcast), int(OptOp::kUnroll), int(OptOp::kVector), int(OptOp::kPadTo),
                                     int(OptOp::kThread), int(OptOp::kSplit), int(OptOp::kSwap), int(OptOp::kGroupTop),
                                     int(OptOp::kStage), int(OptOp::kStageWindow)}));
        const Opt opt{op, static_cast<int32_t>(rng() % static_cast<uint32_t>(n)),
                      op == OptOp::kStage || op == OptOp::kStageWindow ? static_cast<int64_t>(rng() % 2)
                      : op == OptOp::kSwap ? static_cast<int64_t>(rng() % static_cast<uint32_t>(n))
                                           : pick({0, 2, 3, 4, 4, 8})};
        try {
          axes.apply(opt);
        } catch (const KernelOptError&) { continue; }
        opts.push_back(opt);
        double instances = 1;
        for (const auto& a : axes.axes())
          if (a.type == AxisType::kUpcast || a.type == AxisType::kUnroll) instances *= static_cast<double>(a.size);
        if (instances > 32) {
          opts.pop_back();
          break;
        }
      }
    }
    CodegenOptions o;
    std::string list;
    for (const Opt& x : opts) list += str(x, ' ');
    SCOPED_TRACE(name + ": " + list);
    // simplify_ranges comes first in the pipeline, so some of the list may not fit any more.
    for (;; opts.pop_back()) {
      o.opts = opts;
      try {
        check_kernel(k, r, o);
        applied += static_cast<int>(opts.size());
        break;
      } catch (const KernelOptError&) {
        if (opts.empty()) throw;
      }
    }
  }
  EXPECT_GT(applied, 100);
}

TEST(Codegen, OptsThatDoNotFit) {
  auto fails = [](std::vector<Opt> opts) { EXPECT_THROW(with_opts(matmul(12, 20, 18), opts), KernelOptError); };
  fails({{OptOp::kStage, 0, 2}});                           // no such operand
  fails({{OptOp::kStage, 2, 0}});                           // a reduce axis
  fails({{OptOp::kStage, 0, 0}, {OptOp::kStage, 1, 0}});    // staged already
  fails({{OptOp::kStage, 0, 0}, {OptOp::kUpcast, 0, 4}});   // splits come first
  fails({{OptOp::kUpcast, 3, 4}});                          // no such axis
  fails({{OptOp::kUpcast, 0, 5}});                          // 12 % 5
  fails({{OptOp::kUpcast, 2, 2}});                          // a reduce axis
  fails({{OptOp::kUnroll, 0, 2}});                          // an output axis
  fails({{OptOp::kVector, 1, 5}});                          // not a power of two
  fails({{OptOp::kVector, 0, 4}, {OptOp::kVector, 1, 4}});  // a value depends on both
  fails({{OptOp::kVector, 0, 4}, {OptOp::kVector, 2, 2}});
  fails({{OptOp::kLocal, 0, 4}});  // no workgroups
  fails({{OptOp::kGroup, 2, 3}});
  fails({{OptOp::kGroupTop, 2, 3}, {OptOp::kGroupTop, 2, 3}});
  EXPECT_THROW(with_opts(softmax(4, 8), {{OptOp::kGroupTop, 2, 2}}), KernelOptError);  // what is stored is no reduce
  EXPECT_THROW(with_opts(reduce_rows(4, 8, Ops::ADD, dtypes::float16), {{OptOp::kGroupTop, 1, 2}}), KernelOptError);
  fails({{OptOp::kThread, 0, 0}, {OptOp::kThread, 1, 0}});
  fails({{OptOp::kThread, 2, 0}});
  fails({{OptOp::kSwap, 0, 2}});
  fails({{OptOp::kSplit, 0, 2}, {OptOp::kPadTo, 0, 4}});
  fails({{OptOp::kTc, 0, 0}});
  try {
    with_opts(matmul(12, 20, 18), {{OptOp::kUpcast, 0, 5}});
  } catch (const KernelOptError& e) {
    EXPECT_STREQ(e.what(), "[opt] UPCAST axis 0 arg 5: the size is not a multiple of the argument");
  }
}

TEST(Codegen, GridOfFiveAxes) {
  auto p = check_kernel(conv(2, 3, 4, 5, 6, 3, 0), TestRenderer(16, false, true), CodegenOptions());
  ArenaScope scope(*p->arena);
  int64_t threads = 1, dimensions = 0;
  for (const UOp size :
       {p->global_size[0], p->global_size[1], p->global_size[2], p->local_size[0], p->local_size[1], p->local_size[2]})
    if (size) {
      threads *= static_cast<int64_t>(size.const_int());
      dimensions++;
    }
  EXPECT_EQ(threads, 2 * 4 * 3 * 4) << "one for each result";
  EXPECT_GE(dimensions, 3);
  EXPECT_EQ(count(*p, Ops::RANGE), count(*p, Ops::END));
  auto q = check_kernel(matmul(8, 4, 64), TestRenderer(16, false, true), CodegenOptions());
  ArenaScope scope_q(*q->arena);
  EXPECT_EQ(count(*q, Ops::BARRIER), 1u);  // few outputs of a long reduce: shared by groups
}

TEST(Codegen, GroupsInALoopWaitBeforeTheyOverwrite) {
  // The maximum of each step of a sum, shared by a group: two barriers an iteration.
  auto p = with_opts(nested(4, 6, 16), {{OptOp::kGroup, 2, 4}}, TestRenderer(16, false, true));
  ArenaScope scope(*p->arena);
  EXPECT_EQ(count(*p, Ops::BARRIER), 2u);
  // Unrolled iterations have scratch memory of their own.
  with_opts(nested(4, 8, 16), {{OptOp::kUnroll, 1, 4}, {OptOp::kGroup, 2, 4}}, TestRenderer(16, false, true));
}

TEST(Codegen, MatmulInnerLoop) {
  auto k = matmul(256, 256, 256);
  auto p = to_program(*k, TestRenderer(64));
  ArenaScope scope(*p->arena);
  // The loop over k: one fused multiply-add per accumulator, every element of A and B read once, no mask.
  size_t begin = 0, end = 0;
  for (size_t i = 0; i < p->insts.size(); i++) {
    if (p->insts[i].is(Ops::RANGE) && p->insts[i].arg<RangeArg>().type == AxisType::kReduce) begin = i;
    if (p->insts[i].is(Ops::END) && p->insts[i].src(1) == p->insts[begin]) end = i;
  }
  ASSERT_LT(begin, end);
  size_t fma = 0, scalar = 0, vector = 0, accumulators = 0;
  for (size_t i = begin; i < end; i++) {
    UOp u = p->insts[i];
    fma += u.is(Ops::MULACC) && lanes_of(u) == 16;
    if (!u.is(Ops::LOAD)) continue;
    EXPECT_EQ(u.nsrc(), 1u);
    UOp base = u.src(0).src(0);
    while (base.is(Ops::AFTER)) base = base.src(0);
    if (base.is(Ops::BUFFER) && base.arg<ParamArg>().addrspace == AddrSpace::kReg) accumulators++;
    else (lanes_of_access(u.src(0)) == Lanes::kUnit ? vector : scalar)++;
  }
  EXPECT_EQ(fma, accumulators);
  EXPECT_EQ(fma, scalar * vector);
  EXPECT_GE(fma, 8u);
  EXPECT_LE(fma + vector + 1, 32u);
}

TEST(Codegen, SoftmaxUsesTheLanesInEveryPass) {
  auto p = check_kernel(softmax(2, 128), TestRenderer(64), CodegenOptions());
  ArenaScope scope(*p->arena);
  for (UOp u : p->insts) {
    if (!u.is(Ops::LOAD) || !u.src(0).src(0).is(Ops::PARAM)) continue;
    EXPECT_EQ(lanes_of_access(u.src(0)), Lanes::kUnit) << u;
  }
}

TEST(Codegen, ExpensiveValuesOfAReduceAreReused) {
  auto scratch = [](const Program& p) {
    size_t elements = 0;
    for (UOp u : p.insts)
      if (u.is(Ops::BUFFER) && u.arg<ParamArg>().addrspace == AddrSpace::kLocal)
        elements += static_cast<size_t>(u.src(0).src(0).const_int());
    return elements;
  };
  const std::vector<Opt> none{{OptOp::kSplit, 0, 2}};
  for (const KernelPtr& k : {softmax(6, 10), softmax_grad(6, 10)}) {
    auto p = with_opts(k, none);
    ArenaScope scope(*p->arena);
    EXPECT_EQ(count(*p, Ops::EXP2), 1u) << "in one of its passes";
    EXPECT_EQ(scratch(*p), 10u) << "a row";
  }
  EXPECT_EQ(scratch(*with_opts(variance(6, 20), none)), 0u) << "a difference is cheaper than memory";
  // Adjacent rows have scratch memory of their own, in lanes and in tiles; a row beyond the end of its lanes is masked.
  const OptOp vector = OptOp::kVector, upcast = OptOp::kUpcast, pad = OptOp::kPadTo, unroll = OptOp::kUnroll,
              thread = OptOp::kThread;
  for (auto make : {softmax, softmax_grad}) {
    EXPECT_EQ(scratch(*with_opts(make(8, 8), {{upcast, 0, 4}})), 32u);
    EXPECT_EQ(scratch(*with_opts(make(8, 8), {{vector, 0, 4}, {upcast, 0, 2}})), 64u);
    EXPECT_EQ(scratch(*with_opts(make(6, 8), {{pad, 0, 4}, {vector, 0, 4}})), 32u);
    with_opts(make(6, 8), {{pad, 0, 4}, {upcast, 0, 4}, {thread, 0, 0}});
    with_opts(make(6, 11), {{pad, 1, 8},
                            {vector, 1, 8},
                            {pad, 2, 8},
                            {vector, 2, 8},
                            {pad, 3, 16},
                            {vector, 3, 8},
                            {unroll, 3, 2},
                            {upcast, 0, 2}});
    with_opts(make(6, 11), {{pad, 1, 4}, {upcast, 1, 4}, {pad, 3, 8}, {vector, 3, 8}, {OptOp::kSwap, 0, 1}});
  }
}

TEST(Codegen, MaskedTilesAreSkipped) {
  // A product of matrices of which a mask leaves a part: the loop of the sum has an end that depends on the loops
  // around it.
  enum Mask { kLower, kUpper, kBand, kOther, kTwice };
  auto make = [](Mask mask, int64_t n, int64_t m, int64_t l) {
    KernelMaker k;
    UOp a = k.param(1, n * l), b = k.param(2, l * m), o = k.param(0, n * m), i = k.loop(n), j = k.loop(m), r = k.red(l);
    UOp sum = (a.index({i * l + r}).load() * b.index({r * m + j}).load()).reduce(Ops::ADD, UOps{r}),
        v = sum * ConstValue(0.5);
    UOp lower = j < i + 1, open = mask == kUpper   ? lower.logical_not()
                                  : mask == kBand  ? lower & (i < j + 5)
                                  : mask == kOther ? i * j < 40
                                                   : lower;
    UOp masked = open.where(v, v.const_like(-std::numeric_limits<double>::infinity()));
    return k.finish(o.index({i * m + j}).store(mask == kTwice ? masked + sum : masked).end(UOps{i, j}));
  };
  const OptOp vector = OptOp::kVector, upcast = OptOp::kUpcast, pad = OptOp::kPadTo, stage = OptOp::kStage,
              swap = OptOp::kSwap;
  const std::vector<std::vector<Opt>> lists{
      {{OptOp::kSplit, 0, 4}},
      {{upcast, 0, 4}, {vector, 1, 4}, {OptOp::kUnroll, 2, 2}},
      {{pad, 0, 8}, {upcast, 0, 8}, {pad, 1, 8}, {vector, 1, 4}, {upcast, 1, 2}, {swap, 0, 1}},
      {{upcast, 0, 2}, {vector, 1, 4}, {stage, 1, 1}, {OptOp::kThread, 0, 0}}};
  for (Mask mask : {kLower, kUpper, kBand, kOther, kTwice})
    for (const auto& opts : lists) {
      auto p = with_opts(make(mask, 12, 20, 32), opts);
      ArenaScope scope(*p->arena);
      const bool skips =
          std::any_of(p->insts.begin(), p->insts.end(), [](UOp u) { return u.is(Ops::RANGE) && !u.src(0).is_const(); });
      if (mask != kOther)
        EXPECT_EQ(skips, mask != kTwice) << mask;  // a product of loops is known, one of a tile's ranges is not
    }
  for (Mask mask : {kLower, kUpper, kBand}) check_kernel(make(mask, 40, 40, 24), TestRenderer(32), CodegenOptions());
}

TEST(Codegen, LongReducesRunInBlocks) {
  auto p = to_program(*matmul(2048, 2048, 2048), TestRenderer(64));
  EXPECT_TRUE(std::any_of(p->applied_opts.begin(), p->applied_opts.end(),
                          [](const Opt& o) { return o.op == OptOp::kGroupTop; }));
  EXPECT_TRUE(p->reads[0]);  // the output accumulates
}

TEST(Codegen, MaskedSumsAreOneLoop) {
  // A sum over taps of sums over channels: one multiply-add an accumulator in the innermost loop, weights read without
  // a mask.
  auto p = check_kernel(conv_input_grad(2, 8, 4, 8, 20, 3), TestRenderer(64), CodegenOptions());
  ArenaScope scope(*p->arena);
  for (UOp u : p->insts)
    if (u.is(Ops::LOAD) && u.src(0).src(0).is(Ops::PARAM) && u.src(0).src(0).arg<ParamArg>().slot == 2)
      EXPECT_EQ(u.nsrc(), 1u) << u;
}

TEST(Codegen, MergesRanges) {
  KernelMaker m;
  UOp a = m.param(1, 24 * 60), o = m.param(0, 24 * 60), i = m.loop(4), j = m.loop(6), l = m.loop(60),
      at = (i * 6 + j) * 60 + l;
  auto flat = m.finish(o.index({at}).store(a.index({at}).load() * ConstValue(2.0)).end(UOps{i, j, l}));
  CodegenOptions options;
  options.opts = std::vector<Opt>{};
  auto p = check_kernel(flat, TestRenderer(), options);
  EXPECT_EQ(p->name, "E_1440");
}

TEST(Codegen, KeepsRowsOfReducesWhole) {
  // A convolution along x stored by pairs: out[x % 2, x / 2]; two loops for x, or one.
  auto make = [](bool split) {
    KernelMaker k;
    UOp in = k.param(1, 34), w = k.param(2, 3), o = k.param(0, 32), x, hi, lo;
    if (split) {
      hi = k.loop(16);
      lo = k.loop(2);
      x = hi * 2 + lo;
    } else {
      x = k.loop(32);
      hi = x / 2;
      lo = x % 2;
    }
    UOp r = k.red(3), v = (in.index({x + r}).load() * w.index({r}).load()).reduce(Ops::ADD, UOps{r});
    return k.finish(o.index({lo * 16 + hi}).store(v).end(split ? UOps{hi, lo} : UOps{x}));
  };
  for (bool split : {false, true}) {
    auto p = check_kernel(make(split), TestRenderer(64), CodegenOptions());
    ArenaScope scope(*p->arena);
    for (UOp u : p->insts)
      if (u.is(Ops::LOAD) && lanes_of(u.src(0)) > 1 && !u.src(0).src(0).is(Ops::AFTER))
        EXPECT_EQ(lanes_of_access(u.src(0)), Lanes::kUnit) << u;
  }
}

TEST(Codegen, SplitsDigits) {
  CodegenOptions options;
  options.opts = std::vector<Opt>{};
  auto p = check_kernel(reshaped(3, 4, 5), TestRenderer(), options);
  ArenaScope scope(*p->arena);
  for (UOp u : p->insts) EXPECT_FALSE(u.in(Ops::FLOORDIV | Ops::FLOORMOD)) << u;
}

TEST(Codegen, QuantizedRows) {
  // The column is split into block, half and position in it; then a scale is read once a block and multiplied once.
  CodegenOptions options;
  options.opts = std::vector<Opt>{{OptOp::kUnroll, 2, 2}, {OptOp::kVector, 3, 16}};
  auto p = check_kernel(quantized(4, 8), TestRenderer(64), options);
  EXPECT_EQ(p->name, "r_4_8_2_16");
  EXPECT_EQ(count(*p, Ops::WHERE), 0u);
  EXPECT_EQ(count(*p, Ops::MULACC), 2u) << "the second half, the block";
  ArenaScope scope(*p->arena);
  auto products = [&] {
    return std::count_if(p->insts.begin(), p->insts.end(),
                         [](UOp u) { return u.is(Ops::MUL) && u.dtype() == dtypes::float32; });
  };
  EXPECT_EQ(products(), 1) << "the first half";
  // The heuristic finds these.
  p = check_kernel(quantized(64, 128), TestRenderer(64), CodegenOptions());
  EXPECT_EQ(count(*p, Ops::WHERE), 0u);
  EXPECT_EQ(count(*p, Ops::FLOORDIV) + count(*p, Ops::FLOORMOD), 0u);
}

TEST(Codegen, FactorsLeaveUnrolledSums) {
  // sum of a[k] b[k] c[k / 4]: only what does not depend on the unrolled range moves, and only where a product of
  // others remains.
  auto make = [](bool three) {
    KernelMaker m;
    UOp a = m.param(1, 96), b = m.param(2, 96), c = m.param(3, 24), o = m.param(0, 1), r = m.red(24), u = m.red(4),
        k = r * 4 + u;
    UOp v = three ? a.index({k}).load() * c.index({r}).load() * b.index({k}).load()
                  : a.index({k}).load() * c.index({r}).load();
    return m.finish(o.index({UOp::constant(int64_t{0})}).store(v.reduce(Ops::ADD, UOps{r, u})));
  };
  auto reduces = [](const KernelPtr& k, std::vector<Opt> opts) {
    CodegenOptions options;
    options.opts = std::move(opts);
    options.stop_after = "hoist factors";
    auto p = to_program(*k, TestRenderer(16), options);
    ArenaScope scope(*p->arena);
    size_t n = 0;
    for (UOp u : p->ast.toposort()) n += u.is(Ops::REDUCE);
    return n;
  };
  const std::vector<Opt> inner{{OptOp::kUnroll, 1, 4}}, outer{{OptOp::kUnroll, 0, 4}};
  EXPECT_EQ(reduces(make(true), inner), 2u);
  EXPECT_EQ(reduces(make(true), outer), 1u);
  EXPECT_EQ(reduces(make(false), inner), 1u);
  for (const auto& opts : {inner, outer}) {
    with_opts(make(true), opts);
    with_opts(make(false), opts);
  }
  with_opts(make(true), {{OptOp::kUnroll, 1, 2}, {OptOp::kUnroll, 0, 3}});
  with_opts(make(true), {{OptOp::kVector, 0, 4}, {OptOp::kUnroll, 1, 4}});
}

TEST(Codegen, DeterministicNamesAndOrder) {
  auto print = [](const Program& p) {
    ArenaScope scope(*p.arena);
    std::string s = p.name;
    for (UOp u : p.insts) s += str(u, '\n');
    return s;
  };
  auto a = to_program(*conv(2, 3, 4, 9, 20, 3, 1), TestRenderer(64)),
       b = to_program(*conv(2, 3, 4, 9, 20, 3, 1), TestRenderer(64));
  EXPECT_EQ(print(*a), print(*b));
}

TEST(Codegen, Parameters) {
  auto p = to_program(*in_place(100), TestRenderer());
  EXPECT_EQ(p->nbuffers, 2);
  EXPECT_EQ(p->reads, (std::vector<bool>{true, true}));
  EXPECT_EQ(p->writes, (std::vector<bool>{true, false}));
  EXPECT_EQ(p->estimates.mem, 800);
  EXPECT_EQ(p->estimates.ops, 200);
}

TEST(Codegen, StopsAfterAPass) {
  CodegenOptions o;
  o.stop_after = "apply opts";
  auto p = to_program(*matmul(64, 64, 64), TestRenderer(), o);
  EXPECT_TRUE(p->insts.empty());
  EXPECT_TRUE(p->ast.is(Ops::SINK));
  EXPECT_FALSE(p->ast.arg<KernelInfo>().applied_opts.empty());
}

TEST(Codegen, SymbolicSizes) {
  KernelMaker m;
  UOp n = UOp::variable("n", 1, 50), a = m.param(1, 50 * 8), o = m.param(0, 8), j = m.loop(8);
  UOp i = UOp::range(n, RangeArg{{m.ranges++}, AxisType::kReduce});
  auto k = m.finish(o.index({j}).store(a.index({i * 8 + j}).load().reduce(Ops::ADD, UOps{i})).end(UOps{j}));
  for (int64_t v : {1, 7, 50}) {
    auto p = check_kernel(k, TestRenderer(), CodegenOptions(), {{"n", v}});
    EXPECT_EQ(p->vars, std::vector<std::string>{"n"});
  }
}

}  // namespace
}  // namespace tg
