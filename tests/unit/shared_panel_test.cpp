/// \file STAGE on targets with workgroups: panels in memory that the threads of a group share.
#include <gtest/gtest.h>

#include "kernels.h"
#include "tinygrad/base/context.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
using namespace testing;
constexpr OptOp kLocal = OptOp::kLocal, kTile = OptOp::kUpcast, kUnroll = OptOp::kUnroll, kSplit = OptOp::kSplit,
                kPad = OptOp::kPadTo, kStage = OptOp::kStage, kGroup = OptOp::kGroup;

const TestRenderer& grid() {
  static const TestRenderer r(16, false, true);
  return r;
}
std::shared_ptr<Program> with_opts(const KernelPtr& k, std::vector<Opt> opts) {
  CodegenOptions o;
  o.opts = std::move(opts);
  return check_kernel(k, grid(), o);
}
bool is_shared(UOp pointer) {
  while (!pointer.in(groups::kDefines)) pointer = pointer.src(0);
  return pointer.is(Ops::BUFFER) && pointer.arg<ParamArg>().addrspace == AddrSpace::kLocal;
}
struct Counts {
  int global = 0, shared = 0, barriers = 0, depth = 0;  // depth: of loops around the loads of global memory
};
Counts counts_of(const Program& p) {
  ArenaScope scope(*p.arena);
  Counts c;
  int depth = 0;
  for (UOp u : p.insts) {
    depth += u.is(Ops::RANGE) - u.is(Ops::END);
    c.barriers += u.is(Ops::BARRIER);
    if (!u.is(Ops::LOAD) || !u.src(0).is(Ops::INDEX)) continue;
    if (is_shared(u.src(0))) c.shared++;
    else if (const UOp base = u.src(0).src(0); base.is(Ops::PARAM)) {
      c.global++;
      c.depth = std::max(c.depth, depth);
    }
  }
  return c;
}
KernelPtr mm(int64_t n, int64_t m, int64_t l, int transposed) {
  return matmul(n, m, l, transposed & 1, transposed & 2);
}

TEST(SharedPanels, OfAProductAreLoadedOnceForAGroup) {
  for (int t = 0; t < 4; t++) {
    SCOPED_TRACE(t);
    // Groups of 4 x 8 threads, tiles of 2 x 2, 8 steps of the sum at a time: panels of 64 and of 128 elements.
    const std::vector<Opt> tile{{kLocal, 0, 4}, {kLocal, 1, 8}, {kTile, 0, 2}, {kTile, 1, 2}, {kSplit, 2, 8}};
    std::vector<Opt> staged = tile;
    staged.push_back({kStage, 2, 0});
    staged.push_back({kStage, 2, 1});
    const Counts plain = counts_of(*with_opts(mm(16, 32, 48, t), tile)),
                 c = counts_of(*with_opts(mm(16, 32, 48, t), staged));
    EXPECT_EQ(plain.global, 4);
    EXPECT_EQ(plain.barriers, 0);
    EXPECT_EQ(plain.depth, 2);
    EXPECT_EQ(c.global, 64 / 32 + 128 / 32);
    EXPECT_EQ(c.depth, 1);  // not in the loop that uses them
    EXPECT_EQ(c.shared, 4);
    EXPECT_EQ(c.barriers, 2);  // before and behind both fills
  }
}

TEST(Grids, WithoutWorkgroups) {
  // Sizes at which the heuristic wants groups for the outputs, and for the sum.
  for (const auto& [n, m, l] : {std::tuple{64, 64, 64}, std::tuple{8, 8, 256}}) {
    const auto groups = [&] {
      const auto p = check_kernel(mm(n, m, l, 0), grid(), CodegenOptions::from_env());
      ArenaScope scope(*p->arena);
      return std::count_if(p->insts.begin(), p->insts.end(),
                           [](UOp u) { return u.is(Ops::SPECIAL) && u.arg<std::string>().starts_with("l"); });
    };
    EXPECT_GT(groups(), 0);
    const Context none{{"NOLOCALS", 1}};
    EXPECT_EQ(groups(), 0);
  }
}

TEST(SharedPanels, NeighboursReadNeighbours) {
  // Threads 0 and 1 of a group fill elements that are adjacent in memory, whatever the operand's layout.
  for (int t = 0; t < 4; t++) {
    const auto p =
        with_opts(mm(16, 16, 16, t),
                  {{kLocal, 0, 4}, {kLocal, 1, 4}, {kTile, 0, 4}, {kTile, 1, 4}, {kStage, -1, 0}, {kStage, -1, 1}});
    ArenaScope scope(*p->arena);
    for (UOp u : p->insts) {
      if (!u.is(Ops::LOAD) || !u.src(0).is(Ops::INDEX) || !u.src(0).src(0).is(Ops::PARAM)) continue;
      auto address = [&](int64_t thread) {
        std::vector<std::pair<UOp, UOp>> at;
        for (UOp s : u.toposort()) {
          if (s.is(Ops::RANGE)) at.push_back({s, UOp::constant(int64_t{0}, s.dtype())});
          if (s.is(Ops::SPECIAL)) {
            const std::string& name = s.arg<std::string>();
            const int64_t v = name == "lidx0" ? thread % 4 : name == "lidx1" ? thread / 4 : 0;
            at.push_back({s, UOp::constant(v, s.dtype())});
          }
        }
        const UOp index = simplify(u.src(0).src(1).substitute(at));
        EXPECT_TRUE(index.is_const());
        return index.is_const() ? static_cast<int64_t>(index.const_int()) : -1;
      };
      for (int64_t i = 1; i < 16; i++) EXPECT_EQ(address(i), address(0) + i);
    }
  }
}

TEST(SharedPanels, SizesThatDoNotDivide) {
  for (int t = 0; t < 4; t++) {
    SCOPED_TRACE(t);
    with_opts(mm(15, 21, 18, t), {{kLocal, 0, 5}, {kLocal, 1, 7}, {kSplit, 2, 6}, {kStage, 2, 0}, {kStage, 2, 1}});
    with_opts(mm(15, 21, 18, t), {{kLocal, 0, 3}, {kTile, 1, 7}, {kSplit, 2, 9}, {kUnroll, 5, 3}, {kStage, 2, 1}});
    with_opts(mm(13, 19, 17, t), {{kPad, 0, 4},
                                  {kPad, 1, 4},
                                  {kPad, 2, 8},
                                  {kLocal, 0, 4},
                                  {kLocal, 1, 4},
                                  {kTile, 1, 5},
                                  {kSplit, 2, 8},
                                  {kStage, 2, 0},
                                  {kStage, 2, 1}});
    // 128 turns of a group of two: a loop.
    with_opts(mm(2, 64, 48, t), {{kLocal, 0, 2}, {kTile, 1, 4}, {kSplit, 2, 8}, {kStage, 2, 1}});
  }
}

TEST(SharedPanels, AroundTheWholeSumAndWithGroupsThatShareIt) {
  const Counts c =
      counts_of(*with_opts(mm(8, 12, 20, 0), {{kLocal, 0, 4}, {kLocal, 1, 4}, {kStage, -1, 0}, {kStage, -1, 1}}));
  EXPECT_EQ(c.barriers, 1);
  EXPECT_EQ(c.depth, 0);
  for (int t = 0; t < 4; t++) {
    with_opts(mm(4, 12, 64, t), {{kLocal, 1, 4}, {kGroup, 2, 4}, {kSplit, 2, 4}, {kStage, 2, 0}, {kStage, 2, 1}});
    with_opts(mm(4, 12, 64, t), {{kGroup, 2, 8}, {kStage, -1, 1}});
  }
}

TEST(SharedPanels, Convolutions) {
  with_opts(conv(2, 4, 4, 6, 8, 3, 1),
            {{kLocal, 1, 4}, {kLocal, 3, 8}, {kTile, 2, 2}, {kStage, -1, 0}, {kStage, -1, 1}});
  with_opts(conv(2, 4, 4, 6, 8, 3, 1), {{kLocal, 1, 2}, {kLocal, 3, 4}, {kStage, 4, 0}, {kStage, 4, 1}});
  with_opts(conv_weight_grad(4, 2, 3, 8, 20, 3), {{kLocal, 0, 3}, {kLocal, 1, 2}, {kStage, 4, 0}, {kStage, 4, 1}});
}

TEST(SharedPanels, WhatDoesNotFit) {
  auto error = [](const KernelPtr& k, const std::vector<Opt>& opts) -> std::string {
    ArenaScope scope(*k->arena);
    KernelAxes axes(k->sink, grid());
    try {
      for (const Opt& o : opts) axes.apply(o);
    } catch (const KernelOptError& e) { return e.what(); }
    return "";
  };
  EXPECT_EQ(error(matmul(64, 64, 64), {{kStage, 0, 0}}), "[opt] STAGE axis 0 arg 0: not a reduce loop");
  EXPECT_EQ(error(matmul(64, 64, 64), {{OptOp::kStageWindow, 2, 0}}),
            "[opt] STAGEWINDOW axis 2 arg 0: windows are for targets without workgroups");
  EXPECT_EQ(error(matmul(64, 64, 1024), {{kLocal, 0, 64}, {kStage, -1, 0}}),
            "[opt] STAGE axis -1 arg 0: the panels don't fit in the memory of a group");
  EXPECT_EQ(error(matmul(64, 64, 1024), {{kLocal, 0, 64}, {kSplit, 2, 16}, {kStage, 2, 0}}), "");
}

TEST(SharedPanels, RandomOptsKeepTheMeaning) {
  std::mt19937 rng(5);
  auto pick = [&](std::initializer_list<int64_t> v) { return *(v.begin() + rng() % v.size()); };
  int staged = 0;
  for (int round = 0; round < 2; round++)
    for (auto& [name, make] : all_kernels()) {
      auto k = make();
      if (ArenaScope scope(*k->arena); stageable(k->sink).empty()) continue;
      std::vector<Opt> opts;
      {
        ArenaScope scope(*k->arena);
        KernelAxes axes(k->sink, grid());
        double instances = 1;
        for (int i = 0; i < 14 && instances < 32; i++) {
          const auto n = static_cast<uint32_t>(axes.axes().size());
          if (n == 0) break;
          const auto op = static_cast<OptOp>(pick(
              {int(kLocal), int(kLocal), int(kTile), int(kUnroll), int(kSplit), int(kPad), int(kGroup), int(kStage)}));
          const Opt opt{op, op == kStage ? static_cast<int32_t>(rng() % (n + 1)) - 1 : static_cast<int32_t>(rng() % n),
                        op == kStage ? static_cast<int64_t>(rng() % 2) : pick({2, 3, 4, 4, 8})};
          try {
            axes.apply(opt);
          } catch (const KernelOptError&) { continue; }
          opts.push_back(opt);
          staged += op == kStage;
          instances = 1;
          for (const auto& a : axes.axes())
            if (a.type == AxisType::kUpcast || a.type == AxisType::kUnroll) instances *= static_cast<double>(a.size);
        }
      }
      std::string list;
      for (const Opt& x : opts) list += str(x, ' ');
      SCOPED_TRACE(name + ": " + list);
      // Other passes come before, so some of the list may not fit any more.
      for (;; opts.pop_back()) try {
          with_opts(k, opts);
          break;
        } catch (const KernelOptError&) {
        } catch (const std::exception& e) { FAIL() << e.what(); }
    }
  EXPECT_GT(staged, 20);
}

}  // namespace
}  // namespace tg
