/// \file StepGraph: who reads and writes what, before and after steps are inlined, erased and added.
#include "tinygrad/schedule/step_graph.h"

#include <sstream>

#include "gtest/gtest.h"
#include "tinygrad/base/error.h"
#include "tinygrad/schedule/loop_match.h"

namespace tg {
namespace {
struct StepGraphTest : ::testing::Test {
  Arena arena;
  ArenaScope scope{arena};
  StepGraph g{
      {{ScheduleBuffer::kInput, dtypes::float32, 8, "CPU"}, {ScheduleBuffer::kOutput, dtypes::float32, 8, "CPU"}}};
  UOp i = UOp::range(8, 0), j = UOp::range(8, 1);
  /// doubled[i] = in[i] * 2, then out[j] = doubled[j] + 1.
  UOp doubled = g.materialize(g.read(0, i) * ConstValue(2.0), {i}, "CPU", "twice", "mul");
  StepId producer = g.steps() - 1;
  UOp load = g.read(state_of(doubled), j);
  StateId result = g.add_write(1, {j, load + ConstValue(1.0), {j}}, "add");
  StepId consumer = g.steps() - 1;
};

TEST_F(StepGraphTest, ReadersAndWriters) {
  EXPECT_EQ(g.writer(doubled), producer);
  EXPECT_EQ(g.writer(g.read(0, i)), -1);       // an input
  EXPECT_EQ(g.writer(g.read(result, i)), -1);  // not an intermediate result
  EXPECT_EQ(g.written(consumer), result);
  EXPECT_EQ(g.readers(state_of(doubled)), std::vector<StepId>{consumer});
  EXPECT_EQ(g.reads(producer), std::vector<StateId>{0});
}
TEST_F(StepGraphTest, InliningMovesReadsAndNames) {
  const auto loops = match_loops(load, *g.kernel(producer));
  ASSERT_TRUE(loops);
  UOp value = g.kernel(consumer)->value.substitute({{load, g.kernel(producer)->value.substitute(*loops)}});
  EXPECT_EQ(g.readers(0), std::vector<StepId>{producer});
  g.inline_into({&producer, 1}, consumer, value);
  g.erase(producer);
  EXPECT_EQ(g.readers(0), std::vector<StepId>{consumer});
  EXPECT_TRUE(g.readers(state_of(doubled)).empty());
  EXPECT_EQ(g.kernel(producer), nullptr);
  EXPECT_EQ(g.step(consumer).metadata, "mul, add");
  verify_steps(g, "inlining");
}
TEST_F(StepGraphTest, IndexValuesAreReads) {
  UOp index = g.read(0, i).cast(dtypes::weakint), other = UOp::range(4, 2);
  UOp all[1] = {i};
  UOp placeholder = gather_placeholder(0, UOp::constant(int64_t{8}), all);
  g.set_gathers({index});
  const StateId s = state_of(g.materialize(g.read(state_of(doubled), placeholder), {i}, "CPU", "again"));
  const StepId step = g.state(s).writers[0];
  EXPECT_EQ(g.reads(step).size(), 2u);
  EXPECT_EQ(g.resolve(placeholder), index);
  EXPECT_EQ(g.resolve(other), other);
}
TEST_F(StepGraphTest, AStateOfTwoWritersBelongsToNeither) {
  const StepId second = g.add_step({KernelStep{i, g.read(0, i), {i}}, 1, 1});
  g.add_state(1, {second, consumer});
  EXPECT_EQ(g.written(second), -1);
  EXPECT_EQ(g.written(consumer), -1);
}
TEST_F(StepGraphTest, VerifyFindsRangesWithoutALoop) {
  g.edit_kernel(consumer).loops.clear();
  EXPECT_THROW(verify_steps(g, "test"), InternalError);
}
TEST_F(StepGraphTest, Print) {
  std::ostringstream os;
  print_steps(os, g);
  EXPECT_NE(os.str().find("step 0: b2 <- b0#0; loops 8"), std::string::npos) << os.str();
}
TEST_F(StepGraphTest, LoopsOfATransposedReadAreMatched) {
  UOp r = UOp::range(4, 5), c = UOp::range(2, 6), x = UOp::range(2, 7), y = UOp::range(4, 8);
  UOp stored = g.materialize(g.read(0, r * ConstValue(2) + c), {r, c}, "CPU", "again");
  const KernelStep& from = *g.kernel(g.writer(stored));
  const auto loops = match_loops(g.read(state_of(stored), y * ConstValue(2) + x), from);
  ASSERT_TRUE(loops);
  EXPECT_EQ(from.index.substitute(*loops), y * ConstValue(2) + x);
  EXPECT_FALSE(match_loops(g.read(state_of(stored), x * ConstValue(4) + y), from));
}
}  // namespace
}  // namespace tg
