/// \file Every arithmetic op of TG_FOR_EACH_OP is known where it must be: what an op added to the list still lacks is
/// named here.
#include <gtest/gtest.h>

#include "kernels.h"
#include "render_helpers.h"
#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/tensor/grad/gradient.h"
#include "tinygrad/uop/print.h"
#include "tinygrad/uop/spec.h"

namespace tg {
namespace {

std::vector<Ops> arithmetic() {
  std::vector<Ops> found;
#define X(name) \
  if (groups::kAlu.has(Ops::name)) found.push_back(Ops::name);
  TG_FOR_EACH_OP(X)
#undef X
  return found;
}
uint32_t operands(Ops op) { return groups::kUnary.has(op) ? 1 : groups::kBinary.has(op) ? 2 : 3; }

/// The op on the first elements of parameters 1, 2, 3 of type `d`, at `index`; a condition is a comparison.
UOp applied(Ops op, DType d, UOp index) {
  UOps in;
  for (uint32_t k = 0; k < operands(op); k++)
    in.push_back(
        UOp::make(Ops::PARAM, d, {UOp::shape_stack(std::vector<int64_t>{16})}, Arg(ParamArg{static_cast<int>(k) + 1}))
            .index({index})
            .load());
  if (op == Ops::WHERE) in[0] = in[0].ne(in[1]);
  return UOp::alu(op, in);
}

TEST(OpList, EveryOpIsEvaluated) {
  for (Ops op : arithmetic()) {
    bool any = false;
    for (DType d : test::all_types()) any |= alu_loop(op, d) != nullptr;
    EXPECT_TRUE(any) << op << " is in no loop of uop/eval.cpp: it cannot be folded, tested or run by the interpreter";
  }
}

TEST(OpList, EveryOpIsRenderedOrDecomposed) {
  for (const char* language : {"LLVM", "CLANG"})
    for (const char* processor : {"x86_64", "x86_64,haswell"}) {
      const Target target = test::target(language, processor);
      const auto renderer = make_renderer(target);
      for (Ops op : arithmetic())
        for (DType d : {dtypes::bool_, dtypes::int32, dtypes::uint64, dtypes::float32, dtypes::float64}) {
          if (!alu_loop(op, d)) continue;
          testing::KernelMaker k;
          UOp i = k.loop(16), v = applied(op, d, i);
          UOp sink = lower_to_target(
              UOp::sink(UOps{k.param(0, 16, v.dtype()).index({i}).store(v).end(UOps{i})}, Arg(KernelInfo{})),
              *renderer);
          for (UOp u : sink.toposort())
            if (u.in(groups::kAlu)) {
              EXPECT_TRUE(renderer->ops().has(u.op()))
                  << op << " of " << d << " leaves " << u.op() << ", which " << language
                  << " lacks: add it to its ops() and alu(), or to codegen/decomp/decomp_ops.cpp";
            }
          EXPECT_NE(
              to_program(*k.finish(k.param(0, 16, v.dtype()).index({i}).store(v).end(UOps{i})), *renderer)->source, "")
              << op << " of " << d;
        }
    }
}

TEST(OpList, EveryOpHasAGradientOrNeedsNone) {
  Arena arena;
  ArenaScope scope(arena);
  UOp at = UOp::range(16, 0);
  for (Ops op : arithmetic()) {
    const DType d = alu_loop(op, dtypes::float32) ? dtypes::float32
                    : alu_loop(op, dtypes::int32) ? dtypes::int32
                                                  : dtypes::uint64;
    UOp u = applied(op, d, at);
    Upstream up{UOp::constant(ConstValue(1.0), dtypes::float32)};
    const bool listed = kNoGradient.has(op);
    const Grads g = pm_gradient().rewrite(u, &up);
    EXPECT_NE(g.matched, listed) << op
                                 << (listed ? " has a gradient and is in kNoGradient"
                                            : " has no line in pm_gradient() and is not in kNoGradient")
                                 << " (tensor/grad/gradient.cpp and .h)";
    if (listed) EXPECT_FALSE(alu_loop(op, dtypes::float32)) << op << " of floats needs a gradient";
    if (g.matched) EXPECT_EQ(g.g.size(), operands(op)) << op;
  }
}

TEST(OpList, TheSpecKnowsTheTypesOfEveryOp) {
  Arena arena;
  ArenaScope scope(arena);
  UOp at = UOp::range(16, 0);
  for (Ops op : arithmetic())
    for (DType d : test::all_types()) {
      UOp u = applied(op, d, at);
      const Verdict v = spec_kernel().rewrite(u);
      EXPECT_EQ(v.kind == Verdict::kGood, alu_loop(op, d) != nullptr) << op << " of " << d << ": " << v.why;
    }
}

TEST(OpList, EveryOpPrintsItsName) {
  Arena arena;
  ArenaScope scope(arena);
  std::set<std::string> seen;
  for (Ops op : arithmetic()) {
    EXPECT_TRUE(seen.insert(name_of(op)).second) << op;
    EXPECT_NE(print_tree(applied(op, dtypes::int32, UOp::range(16, 0))).find(name_of(op)), std::string::npos) << op;
  }
}

}  // namespace
}  // namespace tg
