/// \file Kernels know which Tensor methods they were made for.
#include <gtest/gtest.h>

#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {
namespace {

std::string methods(const Tensor& t) {
  std::string all;
  BoundSchedule b = t.schedule();
  for (const ScheduleCall& c : b.schedule->calls) all += (all.empty() ? "" : "; ") + c.metadata;
  return all;
}

TEST(Metadata, NamesTheOutermostMethod) {
  if (env::EAGER) GTEST_SKIP() << "nothing is left to schedule";
  clear_schedule_cache();
  Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4}).realize();
  EXPECT_EQ(methods(a.sqrt()), "sqrt");
  EXPECT_EQ(methods(a.gelu().maximum(0.25f)), "gelu, maximum");
  EXPECT_EQ(methods((a + 3.5f).exp2()), "add, exp2");
}
TEST(Metadata, GradientsSayBackward) {
  if (env::EAGER) GTEST_SKIP() << "nothing is left to schedule";
  clear_schedule_cache();
  Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4}).realize();
  a.square().sum().backward();
  EXPECT_NE(methods(a.grad()).find("backward"), std::string::npos);
}
TEST(Metadata, CanBeOff) {
  Context off{{"TRACEMETA", 0}};
  clear_schedule_cache();
  Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4}).realize();
  EXPECT_EQ(methods(a.sqrt()), "");
}

}  // namespace
}  // namespace tg
