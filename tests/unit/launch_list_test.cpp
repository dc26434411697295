/// \file Lists of launches: inputs that overlap outputs, what is counted, and where a run can no longer be stopped.
#include "tinygrad/engine/launch_list.h"

#include <gtest/gtest.h>

#include "tinygrad/base/error.h"
#include "tinygrad/engine/counters.h"

namespace tg {
namespace {
constexpr int kElements = 4;

/// out[i] = in[i] + 1, in an order that shows when both are the same memory.
void add_one(void* const* buffers, const int64_t*, int64_t, int64_t) {
  auto* out = static_cast<int*>(buffers[0]);
  const auto* in = static_cast<const int*>(buffers[1]);
  for (int i = 0; i < kElements; i++) out[i] = in[i] + 1;
}
struct AddOne final : Executable {
  void launch(const LaunchArgs& args) override { add_one(args.buffers, args.vars, 0, 1); }
  HostKernel host_kernel() const override { return add_one; }
};
CompiledKernelRef kernel(std::vector<bool> writes) {
  auto p = std::make_shared<Program>();
  p->name = "add_one";
  p->nbuffers = 2;
  p->reads = {false, true};
  p->writes = std::move(writes);
  return std::make_shared<CompiledKernel>(CompiledKernel{p, std::make_shared<AddOne>()});
}

/// A list with one call on two parts of eight ints, which begin at these elements.
LaunchList list_of(int out, int in, ScheduleBuffer::Kind written, const CompiledKernelRef& k) {
  const BufferRef all = Buffer::create("CPU", 8, dtypes::int32);
  all->ensure_allocated();
  const std::vector<int> zeros(8, 0);
  all->copy_in(std::as_bytes(std::span(zeros)));
  Schedule s;
  for (ScheduleBuffer::Kind kind : {written, ScheduleBuffer::kInput})
    s.buffers.push_back({kind, dtypes::int32, kElements, "CPU", -1});
  ScheduleCall& call = s.calls.emplace_back();
  call.buffers = {0, 1};
  call.metadata = "test";
  LaunchList list;
  for (int at : {out, in}) list.buffers.push_back(all->view(kElements, dtypes::int32, at * int64_t{sizeof(int)}));
  list.add(s, 0, k, {}, std::make_shared<ScheduleCall>(s.calls[0]));
  list.bind();
  return list;
}
std::vector<int> run(const LaunchList& list) {
  Cancellation::Hold hold;
  list.run(0, list.launches.size(), hold, "test", true);
  std::vector<int> out(kElements);
  list.buffers[0]->copy_out(std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(LaunchList, AnInputThatOverlapsAnOutputIsReadFromACopy) {
  const CompiledKernelRef k = kernel({true, false});
  const LaunchList apart = list_of(0, 4, ScheduleBuffer::kOutput, k);
  EXPECT_EQ(apart.launches.size(), 1u);
  EXPECT_EQ(run(apart), (std::vector<int>{1, 1, 1, 1}));
  const LaunchList shifted = list_of(1, 0, ScheduleBuffer::kOutput, k);
  ASSERT_EQ(shifted.launches.size(), 2u);
  EXPECT_FALSE(shifted.launches[0].kernel) << "a copy first";
  EXPECT_EQ(shifted.numbers_of(shifted.launches[1])[1], shifted.numbers_of(shifted.launches[0])[0]);
  EXPECT_EQ(run(shifted), (std::vector<int>{1, 1, 1, 1})) << "not what was just written";
}

TEST(LaunchList, TwoOutputsMustNotOverlap) {
  EXPECT_THROW(list_of(1, 0, ScheduleBuffer::kOutput, kernel({true, true})), DeviceError);
  EXPECT_NO_THROW(list_of(4, 0, ScheduleBuffer::kOutput, kernel({true, true})));
}

TEST(LaunchList, WritesToWhatWasThereAreIrreversible) {
  const CompiledKernelRef k = kernel({true, false});
  EXPECT_EQ(list_of(0, 4, ScheduleBuffer::kOutput, k).irreversible, SIZE_MAX);
  EXPECT_EQ(list_of(0, 4, ScheduleBuffer::kInput, k).irreversible, 0u);
  EXPECT_EQ(list_of(1, 0, ScheduleBuffer::kInput, k).irreversible, 1u) << "the copy changes nothing";
}

TEST(LaunchList, KernelsAreCountedOnceHoweverTheyAreCalled) {
  const LaunchList list = list_of(1, 0, ScheduleBuffer::kOutput, kernel({true, false}));
  for (const bool direct : {true, false}) {
    GlobalCounters::reset();
    Cancellation::Hold hold;
    list.run(0, list.launches.size(), hold, "test", direct);
    if (direct) list.count_direct();
    EXPECT_EQ(GlobalCounters::kernels, 1);
    EXPECT_EQ(GlobalCounters::copies, 0) << "a copy of an input is part of its kernel";
  }
}

}  // namespace
}  // namespace tg
