/// \file Mutations of candidates: whatever can be applied computes what the kernel means.
#include "tinygrad/codegen/plan/mutate.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels.h"
#include "tinygrad/codegen/plan/heuristic.h"

namespace tg {
namespace {
using namespace testing;

struct Base {
  std::shared_ptr<Program> program;
  std::unique_ptr<ArenaScope> scope;
  std::unique_ptr<KernelAxes> axes;
  Base(const Kernel& k, const Renderer& r) {
    CodegenOptions o;
    o.stop_after = "plan";
    program = to_program(k, r, o);
    scope = std::make_unique<ArenaScope>(*program->arena);
    axes = std::make_unique<KernelAxes>(program->ast, r);
  }
  std::optional<std::vector<Opt>> apply(const Candidate& c, const Renderer& r) const {
    KernelAxes k(*axes);
    try {
      apply_candidate(k, c, r);
    } catch (const KernelOptError&) { return {}; }
    return k.applied();
  }
};
std::string text(const std::vector<Opt>& opts) {
  std::string s;
  for (const Opt& o : opts) s += str(o, ' ');
  return s;
}

TEST(Mutations, KeepTheMeaning) {
  std::mt19937 rng(5);
  int applied = 0, refused = 0, which = 0;
  for (auto& [name, make] : all_kernels()) {
    const TestRenderer r(which++ % 2 ? 64 : 16);
    auto k = make();
    std::vector<std::vector<Opt>> lists;
    {
      const Base base(*k, r);
      std::vector<Candidate> from = candidates(*base.axes, base.program->ast, r, 3);
      if (from.empty()) continue;
      // Two generations: what a search gets from its own mutations has to be right as well.
      Candidate c = from[rng() % from.size()];
      for (int generation = 0; generation < 2; generation++) {
        std::vector<Candidate> next = mutations(c, *base.axes, base.program->ast, r);
        for (int i = generation; i < 2 && !next.empty(); i++) {
          const Candidate d = next[rng() % next.size()];
          auto opts = base.apply(d, r);
          if (!opts) {
            refused++;
            continue;
          }
          double instances = 1;
          for (const Opt& o : *opts)
            instances *= o.op == OptOp::kUpcast || o.op == OptOp::kUnroll ? static_cast<double>(o.arg) : 1;
          if (instances > 32) continue;
          lists.push_back(*opts);
          c = d;
        }
      }
    }
    for (auto& opts : lists) {
      SCOPED_TRACE(name + ": " + text(opts));
      CodegenOptions o;
      o.opts = opts;
      check_kernel(k, r, o);
      applied++;
    }
  }
  EXPECT_GT(applied, 200);
  EXPECT_LT(refused, applied);
}

TEST(Mutations, ReachEveryKindOfOpt) {
  const TestRenderer r(64);
  const auto k = matmul(256, 256, 256);
  const Base base(*k, r);
  std::set<OptOp> kinds;
  std::set<std::string> different;
  bool panels_around_all = false;
  for (const Candidate& c : candidates(*base.axes, base.program->ast, r, 4)) {
    std::vector<Candidate> list = mutations(c, *base.axes, base.program->ast, r),
                           again = mutations(c, *base.axes, base.program->ast, r);
    ASSERT_EQ(list.size(), again.size());
    for (size_t i = 0; i < list.size(); i++) {
      auto opts = base.apply(list[i], r);
      if (!opts) continue;
      EXPECT_EQ(text(*opts), text(*base.apply(again[i], r))) << "deterministic";
      different.insert(text(*opts));
      for (const Opt& o : *opts) {
        kinds.insert(o.op);
        panels_around_all |= o.op == OptOp::kStage && o.axis == -1;
      }
    }
  }
  for (OptOp op : {OptOp::kUpcast, OptOp::kUnroll, OptOp::kVector, OptOp::kPadTo, OptOp::kThread, OptOp::kSplit,
                   OptOp::kSwap, OptOp::kGroupTop, OptOp::kStage})
    EXPECT_TRUE(kinds.contains(op)) << str(Opt{op});
  EXPECT_TRUE(panels_around_all);
  EXPECT_GT(different.size(), 50u);
}
}  // namespace
}  // namespace tg
