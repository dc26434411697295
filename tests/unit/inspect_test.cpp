// Schedules and kernels as data, and as the text of explain().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/text.h"
#include "tinygrad/tensor/inspect_tensors.h"

namespace tg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const InspectOptions kRunNothing{.measure = false};

Tensor given(std::initializer_list<int64_t> sizes, DType dtype = dtypes::float32) {
  return Tensor::empty(Shape(std::span<const int64_t>(sizes.begin(), sizes.size())), {.dtype = dtype}).realize();
}

/// Returns the reasons of all values that are stored on the way.
std::vector<std::string> reasons(const Inspection& in) {
  std::vector<std::string> out;
  for (const ScheduleBuffer& b : in.buffers)
    if (b.kind == ScheduleBuffer::kInternal) out.emplace_back(b.why);
  return out;
}

/// Returns what an account adds up to.
double total(const CostAccount& a) {
  double longest = 0, besides = 0;
  for (const auto& p : a.together) longest = std::max(longest, p.cycles);
  for (const auto& p : a.besides) besides += p.cycles;
  return (longest + besides) * a.factor;
}

TEST(Inspect, AProductIsOneKernelWithAnAccountThatAddsUp) {
  const Context device{{"DEV", "CPU"}};
  const Inspection in = inspect({given({96, 64}).matmul(given({64, 80}))}, kRunNothing);
  ASSERT_EQ(in.kernels.size(), 1u);
  const InspectedKernel& k = in.kernels[0];
  EXPECT_EQ(k.origin, "dot");
  EXPECT_EQ(k.loops, "96 x 80 x r64");
  EXPECT_EQ(k.stores, "p0[r1 + r0 * 80] = reduce_add(p1[r2 + r0 * 64] * p2[r2 * 80 + r1], r2)");
  EXPECT_EQ(k.buffers.size(), 3u);
  EXPECT_STREQ(k.plan.variant, "tiles");
  EXPECT_FALSE(k.opts.empty());
  EXPECT_GT(k.plan.cycles, 0);
  EXPECT_NEAR(total(k.plan.account) / k.plan.cycles, 1, 1e-6);
  EXPECT_EQ(k.estimates.mem, 4.0 * (96 * 64 + 64 * 80 + 96 * 80));
  EXPECT_THAT(k.source, HasSubstr(k.name));
  EXPECT_THAT(k.program, HasSubstr("RANGE"));
  EXPECT_EQ(k.seconds, 0) << "it was not to be run";
  EXPECT_THAT(k.assembly, IsEmpty());
}

TEST(Inspect, AccountsAddUpForOtherKernels) {
  const Context device{{"DEV", "CPU"}};
  const Tensor x = given({64, 256}), image = given({2, 8, 20, 20}), weight = given({16, 8, 3, 3});
  for (const Tensor& t :
       {x.exp(), x.sum(1), x.softmax(), image.conv2d(weight, {}, {.padding = 1}), x.transpose().contiguous()})
    for (const InspectedKernel& k : inspect({t}, kRunNothing).kernels)
      EXPECT_NEAR(total(k.plan.account) / k.plan.cycles, 1, 0.02) << k.name << ", made by " << k.origin;
}

TEST(Inspect, StoredValuesHaveReasons) {
  const Context device{{"DEV", "CPU"}};
  const Inspection softmax = inspect({given({64, 1024}).softmax()}, kRunNothing);
  EXPECT_EQ(softmax.kernels.size(), 3u);
  EXPECT_THAT(reasons(softmax), testing::Each("a reduction that would be done again"));
  EXPECT_EQ(reasons(softmax).size(), 2u);
  for (const ScheduleBuffer& b : softmax.buffers)
    if (b.kind == ScheduleBuffer::kInternal) EXPECT_GT(b.instead, 1) << "how often it would be computed otherwise";
    else EXPECT_STREQ(b.why, "") << "what was given or asked for needs no reason";
  Tensor sum = given({32, 32}) + 1;
  sum = sum.contiguous().sum();  // nobody holds what is summed
  EXPECT_THAT(reasons(inspect({sum}, kRunNothing)), testing::ElementsAre("asked for"));
}

TEST(Inspect, AttentionIsOneKernelThatStoresNothingElse) {
  const Context device{{"DEV", "CPU"}};
  const Tensor q = given({1, 8, 256, 64}), k = given({1, 8, 256, 64}), v = given({1, 8, 256, 64});
  const Inspection in = inspect({q.scaled_dot_product_attention(k, v)}, kRunNothing);
  ASSERT_EQ(in.kernels.size(), 1u);
  EXPECT_STREQ(in.kernels[0].plan.variant, "attention");
  EXPECT_THAT(reasons(in), IsEmpty());
}

TEST(Inspect, MeasuresWithoutTouchingTheTensors) {
  const Context device{{"DEV", "CPU"}};
  const Tensor x = Tensor::full({1000}, 1.5f).contiguous().realize(), y = x * 2;
  const Inspection in = inspect({y}, {.measure = true, .assembly = true});
  ASSERT_EQ(in.kernels.size(), 1u);
  EXPECT_GT(in.kernels[0].seconds, 0);
  EXPECT_LT(in.kernels[0].seconds, 1);
  EXPECT_THAT(in.kernels[0].assembly, Not(IsEmpty()));
  EXPECT_FALSE(y.is_realized()) << "it is still pending";
  EXPECT_EQ(x.to_vector<float>()[999], 1.5f);
  EXPECT_EQ(y.to_vector<float>()[999], 3.0f);
}

TEST(Inspect, OtherTargetsAreCompiledOnly) {
  const Context device{{"DEV", "NULL:CUDA:sm_90"}};
  const Inspection in =
      inspect({given({64, 64}, dtypes::float16).matmul(given({64, 64}, dtypes::float16))}, {.measure = true});
  ASSERT_EQ(in.kernels.size(), 1u);
  EXPECT_EQ(in.kernels[0].device, "NULL");
  EXPECT_EQ(in.kernels[0].seconds, 0);
  EXPECT_STREQ(in.kernels[0].plan.variant, "grid");
  EXPECT_THAT(in.kernels[0].source, HasSubstr("__global__"));
}

TEST(Inspect, NothingToDo) {
  const Inspection in = inspect({given({4})}, kRunNothing);
  EXPECT_THAT(in.kernels, IsEmpty());
  EXPECT_THAT(explain(in), HasSubstr("no kernel: the values are in memory already, or literals"));
}

TEST(Inspect, CopiesBetweenDevices) {
  const Context device{{"DEV", "CPU"}};
  const Inspection in = inspect({(given({8}) + 1).to("CPU:1")}, kRunNothing);
  ASSERT_EQ(in.kernels.size(), 2u);
  EXPECT_EQ(in.kernels[1].name, "copy");
  EXPECT_EQ(in.kernels[1].device, "CPU:1");
}

TEST(Explain, NamesKernelsReasonsAndTheLimit) {
  const Context device{{"DEV", "CPU"}};
  const Inspection in = inspect({given({64, 1024}).softmax()}, kRunNothing);
  const std::string text = explain(in, {.operations = 1e11, .bytes = 1e10});
  EXPECT_THAT(text,
              AllOf(HasSubstr("kernel 3 of 3: "), HasSubstr("made by softmax"), HasSubstr("  limit       "),
                    HasSubstr("stored, 64 x float32 on CPU; a reduction that would be done again: in place 1024 times"),
                    HasSubstr("  roofline    "), HasSubstr("cycles of one core"), HasSubstr("REDUCE ADD (1)(")));
  for (const InspectedKernel& k : in.kernels) EXPECT_THAT(text, AllOf(HasSubstr(k.name), Not(HasSubstr(k.source))));
  EXPECT_THAT(explain(in, {}, /*source=*/true), HasSubstr(in.kernels[0].source));
}

TEST(Explain, TheRooflineIsTheSlowerOfArithmeticAndMemory) {
  const Context device{{"DEV", "CPU"}};
  const Inspection in = inspect({given({1000, 1000}) + 1}, kRunNothing);  // 1e6 additions, 8e6 bytes
  EXPECT_THAT(explain(in, {.operations = 1e9, .bytes = 1e12}), HasSubstr("roofline    1.00 ms, by arithmetic"));
  EXPECT_THAT(explain(in, {.operations = 1e12, .bytes = 8e9}), HasSubstr("roofline    1.00 ms, by memory"));
  EXPECT_THAT(explain(in, {.operations = 1e9, .bytes = 8e9, .cache = 1e9}),
              HasSubstr("roofline    1.00 ms, by arithmetic"))
      << "what stays in caches is not read from memory";
}

TEST(Explain, OfATensor) {
  const Context device{{"DEV", "CPU"}};
  const Tensor t = given({16}) + 1;
  EXPECT_THAT(t.explain(), AllOf(HasSubstr("ADD("), HasSubstr("kernel 1 of 1"), HasSubstr("measured")));
  EXPECT_GT(t.explain(/*source=*/true).size(), t.explain().size());
}

TEST(Explain, LongGraphsAreCut) {
  Tensor t = given({4});
  for (int i = 0; i < 200; i++) t = t.sin() + i;
  const std::string graph = inspect({t}, kRunNothing).graph;
  EXPECT_EQ(std::count(graph.begin(), graph.end(), '\n'), 101);
  EXPECT_THAT(graph, HasSubstr("... 301 more\n"));
}

}  // namespace
}  // namespace tg
