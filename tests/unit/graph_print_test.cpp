/// \file How graphs read: expressions, trees, programs, dot.
#include <gtest/gtest.h>

#include <cmath>

#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/print.h"

namespace tg {
namespace {

class GraphPrint : public ::testing::Test {
 protected:
  Arena arena_;
  ArenaScope scope_{arena_};
  UOp a_ = UOp::range(8, 0), b_ = UOp::range(4, 1), n_ = UOp::variable("n", 1, 9);
};

TEST_F(GraphPrint, Expressions) {
  EXPECT_EQ(render_expr((a_ + b_) * 4), "(r0 + r1) * 4");
  EXPECT_EQ(render_expr(a_ * 4 + b_), "r0 * 4 + r1");
  EXPECT_EQ(render_expr(a_ / 4 % 2), "r0 // 4 % 2");
  EXPECT_EQ(render_expr(a_ / (b_ + 1)), "r0 // (r1 + 1)");
  EXPECT_EQ(render_expr(a_ * (b_ * n_)), "r0 * (r1 * n)");
  EXPECT_EQ(render_expr((a_ < 3) & (b_ < n_).logical_not()), "(r0 < 3) & !(r1 < n)");
  EXPECT_EQ(render_expr((a_ < 3).where(a_, b_ - 1)), "r0 < 3 ? r0 : r1 + -1");
  EXPECT_EQ(render_expr(a_.maximum(b_)), "max(r0, r1)");
  EXPECT_EQ(render_expr((a_ + 1).cast(dtypes::int32)), "int32(r0 + 1)");
  EXPECT_EQ(render_expr(a_.valid(a_ < 2)), "r0 < 2 ? r0 : Invalid");
  UOp p = UOp::make(Ops::PARAM, dtypes::float32, {UOp::shape_stack(std::vector<int64_t>{8})}, Arg(ParamArg{1}));
  EXPECT_EQ(render_expr(p.index({a_ * 2}).load() * UOp::constant(ConstValue(2.0), dtypes::float32)),
            "p1[r0 * 2] * 2.0");
  UOps red{a_};
  EXPECT_EQ(render_expr(p.index({a_}).load().reduce(Ops::ADD, red)), "reduce_add(p1[r0], r0)");
  EXPECT_EQ(render_expr(UOp()), "UOp()");
}

TEST_F(GraphPrint, Python) {
  EXPECT_EQ(render_python((a_ + b_) * 4), "((r0+r1)*4)");
  EXPECT_EQ(render_python(a_ * 4 + b_), "(r0*4+r1)");
  EXPECT_EQ(render_python(a_ + (b_ + n_)), "(r0+(r1+n))");
  EXPECT_EQ(render_python(a_ / 4 % 2), "(r0//4%2)");
  EXPECT_EQ(render_python((a_ * 4 + b_) < 7), "((r0*4+r1)<7)");
  EXPECT_EQ(render_python((a_ < 3).logical_not()), "((r0<3)!=True)");
  EXPECT_EQ(render_python((a_ < 3).where(a_, b_)), "(r0 if (r0<3) else r1)");
  EXPECT_EQ(render_python(a_.maximum(b_)), "max(r0, r1)");
  const auto number = [](double v) { return render_python(UOp::constant(ConstValue(v), dtypes::float64)); };
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(-2.0), "-2.0");
  EXPECT_EQ(number(1e22), "1e+22");
  EXPECT_EQ(number(1e-7), "1e-07");
  EXPECT_EQ(number(INFINITY), "inf");
}

TEST_F(GraphPrint, SharingDoesNotExplode) {
  UOp u = a_;
  for (int i = 0; i < 60; i++) u = u + u * b_;
  EXPECT_LT(render_expr(u).size(), 20000u);
}

TEST_F(GraphPrint, Tree) {
  UOp s = a_ + 1;
  EXPECT_EQ(print_tree(s * s),
            "MUL weakint\n"
            "  %0 = ADD weakint\n"
            "    RANGE weakint (0) LOOP\n"
            "      CONST weakint 8\n"
            "    CONST weakint 1\n"
            "  %0\n");
}

TEST_F(GraphPrint, Linear) {
  UOp p = UOp::make(Ops::PARAM, dtypes::int32, {UOp::shape_stack(std::vector<int64_t>{8})}, Arg(ParamArg{0}));
  UOp i = p.index({a_}), st = i.store(UOp::constant(ConstValue(7), dtypes::int32));
  UOps loop{a_};
  UOps program{p.src(0).src(0), p.src(0), p, a_, i, st, st.end(loop)};
  std::string text = print_linear(program);
  EXPECT_NE(text.find("%3   = RANGE weakint (0) LOOP (8)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("%5     = STORE void (%4, 7)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("%6   = END void (%5, %3)\n"), std::string::npos) << text;
}

TEST_F(GraphPrint, Dot) {
  std::string d = to_dot(a_ + 1);
  EXPECT_EQ(d.rfind("digraph", 0), 0u);
  EXPECT_NE(d.find("n0 [label=\"CONST\\nweakint 8\"]"), std::string::npos) << d;
  EXPECT_NE(d.find("n0 -> n1;"), std::string::npos) << d;
}

}  // namespace
}  // namespace tg
