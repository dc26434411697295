/// \file Kernels know which Tensor methods they were made for.
#include <gtest/gtest.h>

#include <functional>

#include "helpers/error_text.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/grad/function.h"
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

TEST(Metadata, ErrorsNameTheMethodsOfTheKernelTheyAreAbout) {
  if (env::EAGER) GTEST_SKIP() << "each method is a kernel of its own";
  clear_schedule_cache();
  const Context limit{{"MEMORY_LIMIT", 64}};
  const int64_t huge = 1 << 13;  // 256 MiB: too much, but no more than a grid can have
  const std::string text =
      test::error_text<std::exception>([&] { (Tensor::full({huge, huge}, 2.f).exp2() + 1).contiguous().realize(); });
  EXPECT_NE(text.find("made by exp2, add"), std::string::npos) << text;
  Tensor small = Tensor::from(std::vector<float>{1, 2, 3, 4}).realize();
  EXPECT_THROW(
      {
        Tensor big = Tensor::full({huge, huge}, 2.f).exp2().contiguous();
        big.realize();
      },
      OutOfMemoryError)
      << "the type stays";
}
TEST(Metadata, ErrorsOfTheCompilerToo) {
  if (env::EAGER) GTEST_SKIP() << "each method is a kernel of its own";
  auto broken = [](const UOps& p) {
    UOp i = UOp::range(4, 0),
        v = UOp::make(Ops::CUSTOMI, dtypes::float32, {p[1].index({i})}, std::string("no expression {0}"));
    UOp e[1] = {p[0].index({i}).store(v).end(UOps{i})};
    KernelInfo info;
    info.name = "broken";
    return UOp::sink(e, info);
  };
  const std::string text = test::error_text<std::exception>(
      [&] { custom_kernel({Tensor::empty(4), Tensor({1.f, 2.f, 3.f, 4.f})}, broken)[0].realize(); });
  EXPECT_NE(text.find("in kernel broken, made by custom_kernel"), std::string::npos) << text;
}

}  // namespace
}  // namespace tg
