/// \file What expressions simplify to.
#include "tinygrad/uop/symbolic.h"

#include <gtest/gtest.h>

#include "tinygrad/uop/graph.h"
#include "tinygrad/uop/print.h"

namespace tg {
namespace {

class Symbolic : public ::testing::Test {
 protected:
  Arena arena_;
  ArenaScope scope_{arena_};

  static UOp var(const char* name, int64_t lo, int64_t hi, DType d = dtypes::weakint) {
    return UOp::variable(name, lo, hi, d);
  }
  static UOp lit(int64_t v) { return UOp::constant(v); }
  static UOp yes() { return UOp::constant(true); }
  static UOp no() { return UOp::constant(false); }
  /// `u` simplifies to `expected`, up to the order of operands, and has these bounds.
  static void becomes(UOp u, UOp expected, int64_t lo, int64_t hi) {
    UOp got = graph_rewrite(u, sym()), want = graph_rewrite(expected, canonical_order());
    EXPECT_TRUE(got == want) << render_expr(u) << "\n  became   " << render_expr(got) << "\n  expected "
                             << render_expr(want);
    EXPECT_EQ(static_cast<int64_t>(vmin(got)), lo) << render_expr(got);
    EXPECT_EQ(static_cast<int64_t>(vmax(got)), hi) << render_expr(got);
  }
  static void becomes(UOp u, UOp expected) {
    UOp got = graph_rewrite(u, sym()), want = graph_rewrite(expected, canonical_order());
    EXPECT_TRUE(got == want) << render_expr(u) << "\n  became   " << render_expr(got) << "\n  expected "
                             << render_expr(want);
  }
};

UOp operator+(int64_t a, UOp b) { return UOp::constant(a) + b; }
UOp operator*(int64_t a, UOp b) { return UOp::constant(a) * b; }

TEST_F(Symbolic, Comparisons) {
  UOp a = var("a", 3, 8);
  becomes(a < 77, yes(), 1, 1);
  becomes(a < 9, yes(), 1, 1);
  becomes(a < 8, a < 8, 0, 1);
  becomes(a < 3, no(), 0, 0);
  becomes(a.ge(lit(77)), no(), 0, 0);
  becomes(a.ge(lit(8)), (a < 8).logical_not(), 0, 1);
  becomes(a.ge(lit(3)), yes(), 1, 1);
  becomes(var("a", 3, 4) < var("b", 5, 6), yes(), 1, 1);
  becomes(var("a", 5, 6) < var("b", 3, 5), no(), 0, 0);
  becomes(a < a, no(), 0, 0);
  becomes(a < a + 1, yes(), 1, 1);
  becomes((a + var("b", 0, 9)) < (a + var("c", 0, 9)), var("b", 0, 9) < var("c", 0, 9));
  becomes(lit(4) < a, (a < 5).logical_not(), 0, 1);
  UOp i = var("i", 0, 511), f = var("f", 0, 3), g = var("g", 0, 256);
  becomes((i * 4 + f) < 512, i < 128, 0, 1);
  becomes((i * 4 + g) < 512, (i * 4 + g) < 512, 0, 1);
  becomes(((i * 4 + f) < 512) & ((g * 4 + f) < 512), (i < 128) & (g < 128), 0, 1);
  becomes((var("a", 0, 6) + 2) < 3, var("a", 0, 6) < 1, 0, 1);
  becomes((var("a", 0, 6) * 6 + var("b", 0, 6) * 6) < 8, (var("a", 0, 6) + var("b", 0, 6)) < 2, 0, 1);
  becomes(((i / 4) < 3), i < 12, 0, 1);
  becomes((((i - 20) / 4) < -3), i < 8, 0, 1);
  becomes(((i / -4) < -3), (i < 13).logical_not(), 0, 1);
  UOp p = var("p", 0, 3), q = var("q", 0, 3), r = var("r", 0, 3), d = var("d", -3, 3);
  becomes((p * 3 + q * 4 < 1).logical_not(), (p + q < 1).logical_not(), 0, 1);
  becomes((p + q * 2 + r * 4 < 1).logical_not(), (p + q + r < 1).logical_not(), 0, 1);
  becomes((p * 3 + d * 4 < 1).logical_not(), (p * 3 + d * 4 < 1).logical_not(), 0, 1);
  becomes((a + 3).ne(lit(7)), a.ne(lit(4)), 0, 1);
  becomes((a * 4).ne(lit(8)), yes(), 1, 1);
  becomes((i * 4).ne(lit(8)), i.ne(lit(2)), 0, 1);
  becomes((i * 4).ne(lit(9)), yes(), 1, 1);
}

TEST_F(Symbolic, Sums) {
  UOp a = var("a", 0, 8), b = var("b", 0, 8);
  becomes(a * 2 + a * 3, a * 5, 0, 40);
  becomes(b + a * 2 + a * 3, b + a * 5, 0, 48);
  becomes((a + b) + a * 3, b + a * 4, 0, 40);
  becomes((a * 3 + b) + b * 3, a * 3 + b * 4, 0, 56);
  becomes(a - a, lit(0), 0, 0);
  becomes(a * 3 - a, a * 2, 0, 16);
  becomes(a * 0, lit(0), 0, 0);
  becomes(29 + (a - 23), a + 6, 6, 14);
  becomes((a + b) * 3, a * 3 + b * 3, 0, 48);
  becomes((1 + a) * -2 + 12, a * -2 + 10, -6, 10);
  becomes(var("a", 0, 1) * -4 + 1 + var("a", 0, 1) * 4, lit(1), 1, 1);
  becomes(var("one", 1, 1), lit(1), 1, 1);
  becomes(a.maximum(lit(3)).maximum(lit(5)), a.maximum(lit(5)), 5, 8);
  becomes(a.maximum(lit(-1)), a, 0, 8);
}

TEST_F(Symbolic, Division) {
  UOp a = var("a", 0, 7), b = var("b", 0, 3), c = var("c", 0, 10);
  becomes(var("a", 2, 3) / 2, lit(1), 1, 1);
  becomes((a + b) / 20, lit(0), 0, 0);
  becomes((a + b) / 2, (a + b) / 2, 0, 5);
  becomes((a * 4 + b * 4) / 2, a * 2 + b * 2, 0, 20);
  becomes((a * 5 + b * 4) / 2, a * 2 + b * 2 + a / 2, 0, 23);
  becomes((a * 4 + b * 4 + 7) / 16, (a + b + 1) / 4, 0, 2);
  becomes((a * 6 + b * 6) / 16, (a * 3 + b * 3) / 8, 0, 3);
  becomes((16 + a * 6) / 16, (a * 3) / 8 + 1, 1, 3);
  becomes((a * 30 + 20) / 20, a + a / 2 + 1, 1, 11);
  becomes((a * 4 + 3) / 4, a, 0, 7);
  becomes((a * 4 + 3) / 16, a / 4, 0, 1);
  becomes((3 + 3 * b) / 4, b, 0, 3);
  becomes((18 + 17 * var("a", 0, 2) + 17) / 18, var("a", 0, 2) + 1, 1, 3);
  becomes((9 + 19 * b + 18 * var("y", 0, 2)) / 10, b * 2 + var("y", 0, 2) * 2, 0, 10);
  becomes((3 + var("a", 0, 1)) / 4, var("a", 0, 1), 0, 1);
  becomes(((c * -8 + 16) / 4), c * -2 + 4, -16, 4);
  becomes((c * 4) / 8, c / 2, 0, 5);
  becomes((c * -4 + 4) / 8, (c * -1 + 1) / 2, -5, 0);
  becomes((c * -10) / 11, c * -1, -10, 0);
  becomes((var("i", 0, 127) * 4 + b) / 4, var("i", 0, 127), 0, 127);
  becomes((var("a", 0, 2) - 12) / 8, lit(-2), -2, -2);
  becomes((var("a", -10, 10) * 4 + b) / 12, var("a", -10, 10) / 3, -4, 3);
  becomes((var("a", -1, 5) * 2 + 7) / 8, (var("a", -1, 5) + 3) / 4, 0, 2);
  becomes((c - 1) / 4, (c + 3) / 4 - 1, -1, 2);
  becomes((c + 5) / 4, (c + 1) / 4 + 1, 1, 3);
  becomes((31 * var("b", 0, 100) + 1) / 18, (var("b", 0, 100) * 13 + 1) / 18 + var("b", 0, 100), 0, 172);
  UOp x = var("x", 0, 124);
  becomes((x / 2) / 3, x / 6, 0, 20);
  becomes((x / 2 + 1) / 3, (x + 2) / 6, 0, 21);
  becomes(x / -2, (x * -1) / 2, -62, 0);
  becomes((x * -1 + 199) / -4 + 50, (x + 1) / 4, 0, 31);
  UOp p = var("p", 0, 2), q = var("q", 0, 31), r = var("r", 0, 1);
  becomes((160 * p + 5 * q + 4 * r) / 60, p * 2 + (q + p * 8) / 12, 0, 7);
  becomes((160 * p + 5 * q + 4 * r + 1) / 60, p * 2 + (q + r + p * 8) / 12, 0, 8);
}

TEST_F(Symbolic, Modulo) {
  UOp a = var("a", 0, 7), b = var("b", 0, 3);
  becomes(a % 1, lit(0), 0, 0);
  becomes(a % 100, a, 0, 7);
  becomes((a * 4 + b * 4) % 2, lit(0), 0, 0);
  becomes((a * 100 + b * 50) % 100, (b % 2) * 50, 0, 50);
  becomes((3 + 3 * b) % 4, b * -1 + 3, 0, 3);
  becomes((17 + 13 * b) % 18, b * -5 + 17, 2, 17);
  becomes((2 + 9 * b) % 18, (b % 2) * 9 + 2, 2, 11);
  becomes((6 * (var("a", 0, 2) + 1)) % 9, var("a", 0, 2) * -3 + 6, 0, 6);
  becomes((3 + 2 * var("x", 0, 1) + 3 * var("y", 0, 1)) % 4, var("x", 0, 1) * -2 + var("y", 0, 1) * -1 + 3, 0, 3);
  becomes((3 + var("a", 4, 5)) % 4, var("a", 4, 5) * -3 + 15, 0, 3);
  becomes((var("b", 0, 2) + var("a", 0, 5) * 10) % 9, var("b", 0, 2) + var("a", 0, 5), 0, 7);
  becomes((a % 6) % 3, a % 3, 0, 2);
  becomes((var("a", 0, 100) % 4 + var("b", 0, 100)) % 2, (var("a", 0, 100) + var("b", 0, 100)) % 2, 0, 1);
  becomes((var("x", 0, 100) - 50) % 3, (var("x", 0, 100) + 1) % 3, 0, 2);
  becomes((var("g", 0, 15) * 4 + b) % 8, b + (var("g", 0, 15) % 2) * 4, 0, 7);
  becomes((a * 4 + var("b", 0, 1) + 2) % 8, var("b", 0, 1) + (a % 2) * 4 + 2, 2, 7);
  UOp x = var("x", 0, 23);
  becomes((x % 6) / 3, (x / 3) % 2, 0, 1);
  becomes((x * 4 % 8) / 4, x % 2, 0, 1);
}

TEST_F(Symbolic, DivisionByExpressions) {
  UOp a = var("a", 0, 10), b = var("b", 0, 10), d = var("d", 1, 10), x = var("x", 20, 23), y = var("y", 8, 10);
  becomes((d * a + b) / d, a + b / d, 0, 20);
  becomes((d * a * 20 + b) / (5 * d), a * 4 + b / (d * 5), 0, 42);
  becomes((d * a + var("e", 0, 1)) % var("d2", 2, 5), (d * a + var("e", 0, 1)) % var("d2", 2, 5));
  becomes((3 * a + 9 * b) / (3 * d), (a + b * 3) / d, 0, 40);
  becomes(x / y, lit(2), 2, 2);
  becomes(x % y, x + y * -2, 0, 7);
  UOp r = UOp::range(d + 2, RangeArg{{0}, AxisType::kLoop});
  becomes(r / (d + 2), lit(0), 0, 0);
  becomes(r % (d + 2), r, 0, 11);
  becomes((a * (d + 2) + r) / (d + 2), a, 0, 10);
  becomes((a * d + 3) / (d * -1), a * -1 + lit(3) / (d * -1));
}

TEST_F(Symbolic, DivModRecombine) {
  UOp g = var("g", 0, 124), l = var("l", 0, 124), x = var("x", 0, 384), n = var("n", -1000, 1000);
  becomes(g % 4 + (g / 4) * 4, g, 0, 124);
  becomes(l + g % 4 + (g / 4) * 4, g + l, 0, 248);
  becomes(l + (g / 4) * 8 + 2 * (g % 4), l + g * 2, 0, 372);
  becomes((var("h", 0, 15) / 2) % 4 + (var("h", 0, 15) / 8) * 4, var("h", 0, 15) / 2, 0, 7);
  becomes(x / 11 % 7 * 11 + x % 11 + x / 77 * 77, x, 0, 384);
  becomes(n / 3 % 224 * 3 + n % 3 + n / 672 * 672, n, -1000, 1000);
  becomes(n / 3 % 7 * 3 + n / 21 * 21, n / 3 * 3);
  becomes((31 * l + 1) % 18 + ((31 * l + 1) / 18) * 18, l * 31 + 1, 1, 3845);
  becomes((16 * l + 2) % 18 + ((16 * l + 2) / 18) * 18, l * 16 + 2, 2, 1986);
  becomes((l % 4) * 3 + ((l / 4) % 2) * 12, (l % 8) * 3, 0, 21);
  becomes((l % 4) * -2 + ((l / 4) % 2) * -8, (l % 8) * -2, -14, 0);
  becomes((l - 50) % 3 + ((l - 50) / 3) * 3, l - 50, -50, 74);
  becomes((l / 3 + 1) % 4 + ((l + 3) / 12) * 4, l / 3 + 1, 1, 42);
  UOp r0 = var("r0", 0, 7), r1 = var("r1", 0, 7);
  becomes(((r0 * 8 + r1) / 4) * 4 + (r0 * 8 + r1) % 4, r1 + r0 * 8, 0, 63);
  becomes((l / 2) % 4 * 2 + l % 2, l % 8, 0, 7);
  becomes(g / 3 % 224 * 3 + g / 600 * 600, g / 3 * 3);
  UOp big = var("big", 0, 150527);
  becomes(big / 3 % 224 * 3 + big / 600 * 600, big / 600 * 600 + big / 3 % 224 * 3);
}

TEST_F(Symbolic, BoolsAndWhere) {
  UOp a = var("a", 0, 10), x = var("x", 0, 10), y = var("y", 0, 10);
  UOp c = a < 5, e = x < 5;
  becomes(c | c.logical_not(), yes());
  becomes(c & c.logical_not(), no());
  becomes(c.logical_not().logical_not(), c);
  becomes(c.where(yes(), no()), c);
  becomes(c.where(no(), yes()), c.logical_not());
  becomes(c.where(x, x), x);
  becomes(c.where(e.where(x, y), y), (c & e).where(x, y));
  becomes(c.where(x, e.where(x, y)), (c | e).where(x, y));
  becomes(c.logical_not().where(x, y), c.where(y, x));
  becomes(c.where(c.where(x, y), y), c.where(x, y));
  becomes(c.where(x, lit(0)) + c.where(y, lit(1)), c.where(x + y, lit(1)));
  becomes(c.where(x, lit(0)) + c.where(lit(0), y), c.where(x, y));
  becomes((x < 0).where(lit(0), x), x);
  UOp s = var("s", -10, 10);
  becomes((s < 0).where(lit(0), s), s.maximum(lit(0)), 0, 10);
  becomes((lit(0) < s).where(s, lit(0)), s.maximum(lit(0)), 0, 10);
  becomes(c.cast(dtypes::int32).ne(UOp::constant(ConstValue(0), dtypes::int32)), c);
  becomes(c.cast(dtypes::int32).ne(UOp::constant(ConstValue(1), dtypes::int32)), c.logical_not());
  becomes(c.cast(dtypes::int32).ne(UOp::constant(ConstValue(2), dtypes::int32)), yes());
  becomes(a.cast(dtypes::bool_), a.ne(lit(0)));
}

TEST_F(Symbolic, Invalid) {
  UOp r = var("r", 0, 10), q = var("q", 0, 10), inv = UOp::invalid();
  UOp c = r < 5, d = q < 5;
  becomes(c.where(r, inv) * 0, c.where(lit(0), inv));
  becomes(10 * c.where(r, inv), c.where(r * 10, inv));
  becomes(d.where(c.where(r, inv) / 2, inv), (d & c).where(r / 2, inv));
  becomes(c.where(c.where(r, inv), r + 100), c.where(r, r + 100));
  becomes(c.where(inv, r), c.logical_not().where(r, inv));
  becomes(inv * 2, inv);
  becomes(UOp::alu(Ops::ADD, {inv, r}), inv);
  becomes((c.where(r, inv) < 3).where(r, q), c.where((r < 3).where(r, q), inv));
}

TEST_F(Symbolic, Floats) {
  UOp p = UOp::make(Ops::PARAM, dtypes::float32, {UOp::shape_stack(std::vector<int64_t>{16})}, Arg(ParamArg{0}));
  UOp f = p.index({var("i", 0, 15)}).load();
  auto k = [](double v) { return UOp::constant(ConstValue(v), dtypes::float32); };
  becomes(f * k(1), f);
  becomes(f * k(0), f * k(0));  // NaN and infinities stay
  becomes(f + k(-0.0), f);
  becomes(f + k(0), f + k(0));  // -0.0 + 0.0 is 0.0
  becomes(f - f, f + f * k(-1));
  becomes(f.ne(f), f.ne(f));  // NaN
  becomes(f.neg().neg(), f);
  becomes(f / f, UOp::alu(Ops::FDIV, {f, f}));
  becomes(f / k(3), UOp::alu(Ops::FDIV, {f, k(3)}));  // 1 / 3 is rounded
  becomes(f / k(8), f * k(0.125));
  becomes(f / k(0x1p-130), UOp::alu(Ops::FDIV, {f, k(0x1p-130)}));  // the reciprocal is infinite
  becomes(f / k(0x1p127), UOp::alu(Ops::FDIV, {f, k(0x1p127)}));    // or no normal number
  becomes(f / k(1), f);
  becomes(k(47) / k(49), k(47.0f / 49.0f));
  becomes((f + k(1)) + k(2), (f + k(1)) + k(2));
  becomes(f.maximum(f), f);
  becomes(f < f, no());
  becomes(k(1.5) * k(2.5), k(3.75));
  becomes(UOp::alu(Ops::POW, {f, k(2)}), f * f);
  becomes(f.cast(dtypes::float64).cast(dtypes::float32), f);
  becomes(f.cast(dtypes::float16).cast(dtypes::float32), f.cast(dtypes::float16).cast(dtypes::float32));
  UOp n = UOp::make(Ops::PARAM, dtypes::int32, {UOp::shape_stack(std::vector<int64_t>{16})}, Arg(ParamArg{1}))
              .index({var("i", 0, 15)})
              .load();
  UOp one = n.const_like(1);
  becomes((n + one) + one, n + 2);
  becomes(n + n, n * 2);
  becomes((n + one) < n.const_like(5), (n + one) < n.const_like(5));  // wraps
  becomes(n.cast(dtypes::int64).cast(dtypes::int32), n);
  becomes(n / n, n / n);  // may be zero
  becomes(n - n, n.const_like(0));
}

TEST_F(Symbolic, GivenValid) {
  UOp a = var("a", 0, 30), b = var("b", 0, 30);
  EXPECT_EQ(uop_given_valid(a < 4, a / 4), lit(0));
  EXPECT_EQ(uop_given_valid(a.ge(lit(8)) & (a < 12), a / 4), lit(2));
  EXPECT_EQ(uop_given_valid((a + b) < 8, (a + b) % 8), simplify(a + b));
  EXPECT_EQ(uop_given_valid(b < 8, a % 8), a % 8);
  EXPECT_EQ(graph_rewrite((a < 8).where(a % 8, UOp::invalid()), sym()), (a < 8).where(a, UOp::invalid()));
  becomes((a < 8) & (a < 12), a < 8);
  becomes((a < 8) & (a < 8), a < 8);
  becomes((a < 8) & (a / 2 < 4), a < 8);
  becomes((a < 8) & a.ge(lit(9)), no());
}

TEST_F(Symbolic, PaddedIndexSurvivesReshape) {
  auto r = [](int64_t n, int id) { return UOp::range(n, id); };
  UOp n = r(2, 0), c = r(64, 1), y = r(56, 2) + r(3, 3) - 1, x = r(56, 4) + r(3, 5) - 1;
  UOp flat = ((n * 64 + c) * 56 + y) * 56 + x;
  UOp back = ((flat / (56 * 56 * 64) * 64 + flat / (56 * 56) % 64) * 56 + flat / 56 % 56) * 56 + flat % 56;
  UOp valid = y.ge(lit(0)) & (y < 56) & x.ge(lit(0)) & (x < 56);
  UOp got = graph_rewrite(valid.where(back, UOp::invalid()), sym());
  EXPECT_EQ(split_gate(got).second, graph_rewrite(flat, symbolic())) << render_expr(got);
}

TEST_F(Symbolic, Kernels) {
  UOp p = UOp::make(Ops::PARAM, dtypes::int32, {UOp::shape_stack(std::vector<int64_t>{8})}, Arg(ParamArg{0}));
  UOp r = UOp::range(8, 0), one = UOp::range(1, 1), red = UOp::range(4, 2, AxisType::kReduce);
  UOp value = p.index({r}).load();
  UOps close{r, one};
  UOp st = p.index({r + one}).store(value).end(close);
  UOps only{r};
  EXPECT_EQ(graph_rewrite(UOp::sink(UOps{st}), sym()), UOp::sink(UOps{p.index({r}).store(value).end(only)}));
  UOps reds{red};
  UOp sum = (red.cast(dtypes::int32) * value).reduce(Ops::ADD, reds);
  UOp want = red.cast(dtypes::int32).reduce(Ops::ADD, reds) * value;
  EXPECT_EQ(graph_rewrite(sum, sym()), want);
  // A store of a gated value stores under the gate.
  EXPECT_EQ(graph_rewrite(p.index({r}).store((r < 3).where(value, UOp::invalid())), sym()),
            p.index({r.valid(r < 3)}).store(value));
}

TEST_F(Symbolic, Structure) {
  UOp a = var("a", 0, 8), b = var("b", 0, 8);
  EXPECT_EQ(static_cast<int64_t>(const_factor(a * 6 + b * 9)), 3);
  EXPECT_EQ(*divides(a * 6 + 9, 3), a * 2 + 3);
  EXPECT_FALSE(divides(a * 6 + 8, 3));
  EXPECT_EQ(simplify(symbolic_gcd(UOps{a * a * 10, b * a * 5, a * a * 5})), simplify(a * 5));
  EXPECT_EQ(symbolic_gcd(UOps{a, b * 5, a * 5}), lit(1));
  EXPECT_EQ(*divide_exact(a * b * 3 + a * b * b, a * b), graph_rewrite(b + 3, canonical_order()));
  EXPECT_FALSE(divide_exact(a + 2, a));
  EXPECT_FALSE(divide_exact(a * 5, a * 10));
  EXPECT_EQ(split_add_terms(a + b * 2 + 3).size(), 3u);
}

}  // namespace
}  // namespace tg
