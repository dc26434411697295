/// \file One-hot sums become scatter kernels: which sums, in how many kernels,
/// and what their loops allow.
#include "kernels.h"
#include "schedule_util.h"
#include "tinygrad/codegen/opt/final_ranges.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"

namespace tg::test {
namespace {
UOp not_(UOp u) { return UOp::alu(Ops::CMPNE, {u, u.const_like(true)}); }
/// Sums the rows of `v` (n, c) that `index` selects for each position.
UOp sum_in_places(UOp index, UOp v, int64_t places, DType d = dtypes::int32) {
  const int64_t n = shape_of(v)[0].value(), c = shape_of(v)[1].value();
  UOp line = reshape(arange(places), {1, places, 1}), at = reshape(index, {n, 1, 1});
  if (d != dtypes::int32) {
    line = line.cast(d);
    at = at.cast(d);
  }
  UOp hit = not_(UOp::alu(Ops::CMPNE, {at, line})), wide = expand(reshape(v, {n, 1, c}), {n, places, c});
  return reshape(sum(UOp::alu(Ops::WHERE, {expand(hit, {n, places, c}), wide, wide.const_like(0.0)}), {0}),
                 {places, c});
}
size_t count(UOp sink, Ops op) {
  size_t n = 0;
  for (UOp u : sink.toposort()) n += u.is(op);
  return n;
}
std::shared_ptr<const Schedule> schedule_of(UOp root) {
  std::vector<UOp> roots{root};
  return create_schedule(roots).schedule;
}

TEST(Scatter, TwoKernelsWithoutAReduction) {
  GraphScope g;
  const auto s = schedule_of(sum_in_places(buffer({600}, dtypes::int32), buffer({600, 32}), 5000));
  ASSERT_EQ(s->calls.size(), 2u);
  for (const ScheduleCall& c : s->calls) EXPECT_EQ(count(c.kernel->sink, Ops::REDUCE), 0u);
  EXPECT_EQ(s->memory("CPU").intermediates, 0) << "places are named by no masks, and sums are where the result is";
}
TEST(Scatter, WhatIsAddedToIsWhereItBegins) {
  GraphScope g;
  UOp x = buffer({5000, 32}), i = buffer({600}, dtypes::int32), v = buffer({600, 32});
  EXPECT_EQ(schedule_of(x + sum_in_places(i, v, 5000))->calls.size(), 2u);
  EXPECT_EQ(schedule_of(assign(x, x + sum_in_places(i, v, 5000)))->calls.size(), 1u)
      << "in place: nothing but the values that go";
  const auto own = schedule_of(assign(x, x + sum_in_places(i, shrink(x, {0, 0}, {600, 32}), 5000)));
  EXPECT_GT(own->calls.size(), 1u) << "what goes is read before";
  EXPECT_EQ(schedule_of(sum_in_places(i, v, 5000) * 2)->calls.size(), 3u);
}
TEST(Scatter, SumsThatStay) {
  GraphScope g;
  UOp i = buffer({600}, dtypes::int32), v = buffer({600, 32});
  auto reduces = [](const std::shared_ptr<const Schedule>& s) {
    size_t n = 0;
    for (const ScheduleCall& c : s->calls) n += count(c.kernel->sink, Ops::REDUCE);
    return n;
  };
  EXPECT_EQ(reduces(schedule_of(sum_in_places(i, v, 4))), 1u) << "few places: asking is cheaper";
  EXPECT_EQ(reduces(schedule_of(sum_in_places(buffer({3}, dtypes::int32), buffer({3, 2}), 200))), 1u) << "small";
  EXPECT_EQ(reduces(schedule_of(sum_in_places(i, v, 5000, dtypes::int8))), 1u) << "numbers of places wrap around";
  EXPECT_EQ(reduces(schedule_of(sum_in_places(i, v, 5000, dtypes::float32))), 1u);
}
TEST(Scatter, TheLoopOfTheValuesStaysAroundTheOthers) {
  GraphScope g;
  const auto s = schedule_of(sum_in_places(buffer({600}, dtypes::int32), buffer({600, 32}), 5000));
  ASSERT_EQ(s->calls.size(), 2u);
  const KernelRef kernel = s->calls[1].kernel;
  ArenaScope scope(*kernel->arena);
  const testing::TestRenderer renderer(64);
  KernelAxes axes(simplify_ranges(kernel->sink), renderer);
  ASSERT_EQ(axes.axes().size(), 2u);
  ASSERT_TRUE(axes.axes()[0].ordered);
  ASSERT_EQ(axes.axes()[0].size, 600);
  for (OptOp op :
       {OptOp::kUpcast, OptOp::kUnroll, OptOp::kVector, OptOp::kThread, OptOp::kSplit, OptOp::kPadTo, OptOp::kGroupTop})
    EXPECT_THROW(axes.apply({op, 0, 4}), KernelOptError) << static_cast<int>(op);
  EXPECT_THROW(axes.apply({OptOp::kSwap, 0, 1}), KernelOptError);
  EXPECT_THROW(axes.apply({OptOp::kSwap, 1, 0}), KernelOptError);
  axes.apply({OptOp::kVector, 1, 16});
  KernelContext names(axes.sink());
  for (UOp u : substitute_ranges(axes.sink(), FinalRanges(axes, names)).toposort())
    if (u.is(Ops::RANGE) && u.src(0).is_const_int(600)) EXPECT_EQ(u.arg<RangeArg>().type, AxisType::kLoop);
}
}  // namespace
}  // namespace tg::test
