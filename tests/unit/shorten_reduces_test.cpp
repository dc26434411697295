/// \file Loops of sums that run over the steps a mask leaves.
#include "tinygrad/codegen/ranges/shorten_reduces.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/symbolic.h"

namespace tg::testing {
namespace {
/// a * y + b * lane + c * x + k * step < bound, or not below it; y: a loop around the sum; x: another one of it.
struct Line {
  int64_t a, b, c, k, bound;
  bool negated;
  bool holds(int64_t y, int64_t lane, int64_t x, int64_t step) const {
    return (a * y + b * lane + c * x + k * step < bound) != negated;
  }
};
constexpr int64_t kRows = 9, kLanes = 4, kTaps = 3, kSteps = 6;

int64_t value_at(UOp u, UOp y, int64_t row) {
  const UOp v = simplify(u.substitute({{y, UOp::constant(row)}}));
  EXPECT_TRUE(v.is_const()) << v;
  return v.is_const() ? static_cast<int64_t>(v.const_int()) : -1;
}

void expect_steps(const std::vector<Line>& lines) {
  Arena arena;
  const ArenaScope scope(arena);
  const auto range = [](int64_t n, int32_t id, AxisType type) {
    return UOp::range(UOp::constant(n), RangeArg{{id}, type});
  };
  const UOp y = range(kRows, 0, AxisType::kLoop), lane = range(kLanes, 1, AxisType::kVector),
            step = range(kSteps, 2, AxisType::kReduce), x = range(kTaps, 3, AxisType::kReduce);
  UOp gate;
  for (const Line& l : lines) {
    UOp below = (y * l.a + lane * l.b + x * l.c + step * l.k) < UOp::constant(l.bound);
    if (l.negated) below = below.logical_not();
    gate = gate ? gate & below : below;
  }
  const UOp term = (step * 100 + x).cast(dtypes::float32);
  const UOp sum = needed_where(gate, term).reduce(Ops::ADD, UOps{step, x}), got = shorten_reduces(sum);
  // Which steps of `step` the loop runs over: from the first on, as the term says, as many as the loop has.
  UOp loop = step;
  for (UOp r : listed_ranges(got))
    if (r.arg<RangeArg>() == step.arg<RangeArg>()) loop = r;
  for (UOp u : got.toposort()) ASSERT_FALSE(u.is_invalid());
  const UOp first = got.src(0).src(0).substitute({{loop, UOp::constant(int64_t{0})}, {x, UOp::constant(int64_t{0})}});
  for (int64_t row = 0; row < kRows; row++) {
    const int64_t begin = value_at(first, y, row) / 100, count = value_at(loop.src(0), y, row);
    ASSERT_GE(begin, 0);
    if (count > 0) ASSERT_LE(begin + count, kSteps);
    for (int64_t s = 0; s < kSteps; s++) {
      bool each = true, all = false;  // of the lines for themselves; at once
      for (const Line& l : lines) {
        bool some = false;
        for (int64_t i = 0; i < kLanes * kTaps; i++) some |= l.holds(row, i % kLanes, i / kLanes, s);
        each &= some;
      }
      for (int64_t i = 0; i < kLanes * kTaps; i++)
        all |= std::all_of(lines.begin(), lines.end(),
                           [&](const Line& l) { return l.holds(row, i % kLanes, i / kLanes, s); });
      const bool runs = s >= begin && s < begin + count;
      EXPECT_TRUE(runs || !all) << "row " << row << " step " << s;
      EXPECT_EQ(runs, each) << "row " << row << " step " << s;
    }
  }
}

TEST(ShortenReduces, RunsOverTheStepsThatCount) {
  std::mt19937 random(7);
  const auto among = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int i = 0; i < 300; i++) {
    std::string text;
    std::vector<Line> lines;
    for (int64_t n = among(1, 2); n > 0; n--) {
      const int64_t k = (among(0, 1) ? 1 : -1) * among(4, 9);  // the largest: the loop is that of the steps
      lines.push_back({among(-9, 9), among(-2, 2), among(-3, 3), k, among(-30, 30), among(0, 1) == 1});
    }
    for (const Line& l : lines)
      text += str(l.negated ? "not " : "", l.a, " y + ", l.b, " lane + ", l.c, " x + ", l.k, " step < ", l.bound, "; ");
    SCOPED_TRACE(text);
    expect_steps(lines);
  }
}

TEST(ShortenReduces, LeavesWhatItCannotBound) {
  Arena arena;
  const ArenaScope scope(arena);
  const UOp y = UOp::range(UOp::constant(int64_t{8}), RangeArg{{0}, AxisType::kLoop}),
            r = UOp::range(UOp::constant(int64_t{5}), RangeArg{{1}, AxisType::kReduce});
  const UOp term = r.cast(dtypes::float32), plain = term.reduce(Ops::ADD, UOps{r});
  const auto masked = [&](UOp gate) { return shorten_reduces(needed_where(gate, term).reduce(Ops::ADD, UOps{r})); };
  EXPECT_EQ(masked(UOp::alu(Ops::FLOORMOD, {y + r, UOp::constant(int64_t{3})}) < UOp::constant(int64_t{2})), plain);
  EXPECT_EQ(masked(y < UOp::constant(int64_t{3})), plain) << "nothing is said of the steps";
  EXPECT_EQ(masked(r < UOp::constant(int64_t{9})), plain) << "all of them";
  EXPECT_EQ(shorten_reduces(plain), plain);
}

/// A gradient of a convolution: of 5 rows of the filter those are added that lie within the image.
TEST(ShortenReduces, RowsOfAFilterBeyondTheImageAreNotAdded) {
  const auto p = to_program(*conv_input_grad(64, 32, 32, 24, 24, 5), TestRenderer(64));
  const ArenaScope scope(*p->arena);
  int shorter = 0;
  for (UOp u : p->insts) shorter += is_range(u, AxisType::kReduce) && !u.src(0).is_const();
  EXPECT_EQ(shorter, 1);
  for (DType d : {dtypes::float32, dtypes::int32}) {
    const KernelPtr small = conv_input_grad(16, 32, 32, 24, 24, 5, d);
    const auto window = to_program(*small, TestRenderer(64));
    EXPECT_TRUE(std::any_of(window->insts.begin(), window->insts.end(), [](UOp u) {
      return is_range(u, AxisType::kReduce) && !u.src(0).is_const();
    })) << d;
    check_kernel(conv_input_grad(2, 8, 8, 12, 24, 5, d), TestRenderer(64), {});
  }
}
}  // namespace
}  // namespace tg::testing
