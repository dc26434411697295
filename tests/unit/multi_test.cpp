/// \file Values of several devices as graphs: lists of devices, the shard axis through every view, and the graphs made
/// for each device.
#include "tinygrad/uop/multi.h"

#include <gtest/gtest.h>

#include <set>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/multi/lower_multi.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {
namespace {
using tensor_detail::lower_multi;
using tensor_detail::Shards;
const std::vector<std::string> kTwo{"NULL:1", "NULL:2"}, kFour{"NULL:1", "NULL:2", "NULL:3", "NULL:4"};

Tensor on(const std::vector<std::string>& devices, const Shape& shape, std::optional<int> axis = {}) {
  return Tensor::empty(shape, {.device = "NULL"}).shard(devices, axis);
}
/// How often an op occurs in the graphs of all devices; what devices share counts once.
int64_t count(const Shards& s, Ops op) {
  std::set<const Node*> seen;
  int64_t n = 0;
  for (UOp p : s.parts)
    for (UOp u : p.toposort()) n += seen.insert(u.node()).second && u.is(op);
  return n;
}

TEST(DeviceList, Names) {
  EXPECT_EQ(device_list({"CPU", "CPU:1"}), "CPU,CPU:1");
  EXPECT_EQ(split_devices("CPU,CPU:1"), (std::vector<std::string>{"CPU", "CPU:1"}));
  EXPECT_EQ(split_devices("CPU"), (std::vector<std::string>{"CPU"}));
  EXPECT_TRUE(split_devices("").empty());
  EXPECT_FALSE(is_device_list("DISK:/a,b"));
  EXPECT_EQ(Device::canonical("cpu:0,cpu:1"), "CPU,CPU:1");
}

TEST(ShardAxis, GoesThroughViews) {
  const Tensor x = on(kTwo, {4, 6, 8}, 1);
  EXPECT_EQ(x.shard_axis(), 1);
  EXPECT_EQ(x.permute({1, 2, 0}).shard_axis(), 0);
  EXPECT_EQ(x.reshape(4, 2, 3, 8).shard_axis(), 1);
  EXPECT_EQ(x.reshape(2, 2, 48).shard_axis(), 2);
  EXPECT_EQ(x.reshape(4, 1, 6, 8).shard_axis(), 2);
  EXPECT_EQ(x.unsqueeze(0).expand(5, 4, 6, 8).shard_axis(), 2);
  EXPECT_EQ(x.flip(0).shard_axis(), 1);
  EXPECT_EQ(x.pad({{1, 1}, {0, 0}, {0, 0}}).shard_axis(), 1);
  EXPECT_EQ(x.shrink({{0, 2}, {0, 6}, {1, 3}}).shard_axis(), 1);
  EXPECT_EQ(x.shrink({{0, 4}, {3, 6}, {0, 8}}).shard_axis(), std::nullopt);
  EXPECT_EQ(x.sum({.axis = 0}).shard_axis(), 0);
  EXPECT_EQ(x.sum({.axis = 1}).shard_axis(), std::nullopt);
  EXPECT_EQ(x.sum({.axis = 1}).devices(), kTwo);
  EXPECT_EQ(x.cast(dtypes::float16).contiguous().detach().shard_axis(), 1);
}

TEST(ShardAxis, OfSeveralOperands) {
  const Tensor x = on(kTwo, {4, 6}, 0), y = on(kTwo, {4, 6}, 1), r = on(kTwo, {4, 6}), v = on(kTwo, {6}, 0);
  EXPECT_EQ((x + r).shard_axis(), 0);
  EXPECT_EQ((r + y).shard_axis(), 1);
  EXPECT_EQ((x + y).shard_axis(), 1);  // the last one
  EXPECT_EQ((r + v).shard_axis(), 1);  // from the right
  EXPECT_EQ((r + r).shard_axis(), std::nullopt);
  EXPECT_EQ(Tensor::stack({x, r}).shard_axis(), 1);
}

TEST(LowerMulti, LeavesOtherGraphsAlone) {
  GraphScope g;
  const Tensor t = Tensor::empty({4}, {.device = "NULL"}) + 1;
  EXPECT_EQ(lower_multi(t.uop()).parts, UOps{t.uop()});
  EXPECT_FALSE(has_multi(t.uop()));
}

TEST(LowerMulti, ElementwiseNeedsNoCopiesBetweenShards) {
  GraphScope g;
  const Tensor x = on(kTwo, {4, 6}, 0).realize(), w = on(kTwo, {6}).realize(), y = (x * w + 1).relu();
  const Shards s = lower_multi(y.uop());
  ASSERT_EQ(s.parts.size(), 2u);
  EXPECT_EQ(s.axes[0], 0);
  EXPECT_EQ(count(s, Ops::COPY), 0);
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(device_of(s.parts[i]), kTwo[i]);
    EXPECT_EQ(shape_of(s.parts[i]), (Shape{2, 6}));
    EXPECT_FALSE(has_multi(s.parts[i]));
  }
  EXPECT_EQ(lower_multi(y.uop()).parts, s.parts);
}

TEST(LowerMulti, CopiesOfAReduce) {
  GraphScope g;
  const Tensor x = on(kFour, {8, 256}, 0).realize();
  auto copies = [&](int64_t ring, int64_t all2all) {
    Context settings{{"RING", ring}, {"ALL2ALL", all2all}};
    const Shards s = lower_multi(x.sum({.axis = 0}).uop());
    EXPECT_TRUE(s.axes.none());
    return count(s, Ops::COPY);
  };
  EXPECT_EQ(copies(0, 0), 4 * 3);      // each from all others
  EXPECT_EQ(copies(2, 0), 2 * 4 * 3);  // each chunk three times on its way, three times back
  EXPECT_EQ(copies(1, 0), 4 * 3) << "small";
  EXPECT_EQ(copies(0, 2), 2 * 4 * 3);
  EXPECT_EQ(count(lower_multi(x.sum({.axis = 1}).uop()), Ops::COPY), 0);
  Context small{{"RING", 1}, {"RING_ALLREDUCE_THRESHOLD", 10}};
  EXPECT_EQ(count(lower_multi(x.sum({.axis = 0}).uop()), Ops::COPY), 2 * 4 * 3);
}

TEST(LowerMulti, HalvesGoAsHalves) {
  GraphScope g;
  const Tensor x = Tensor::empty({4, 8}, {.dtype = dtypes::float16, .device = "NULL"}).shard(kTwo, 0).realize();
  for (int64_t cast : {0, 1}) {
    Context settings{{"ALLREDUCE_CAST", cast}};
    const Shards s = lower_multi(x.sum({.axis = 0}).uop());
    for (UOp u : s.parts[0].toposort())
      if (u.is(Ops::COPY)) EXPECT_EQ(u.dtype(), cast ? dtypes::float16 : dtypes::float32);
  }
}
TEST(LowerMulti, SumsThatStayFloatsGoAsFloats) {
  GraphScope g;
  const Tensor x = Tensor::empty({4, 8}, {.dtype = dtypes::float16, .device = "NULL"}).shard(kTwo, 0).realize();
  for (const Tensor& t : {x.to_float().sum(), x.mean(), x.sum({.dtype = dtypes::float32})})
    for (UOp u : lower_multi(t.uop()).parts[0].toposort())
      if (u.is(Ops::COPY)) EXPECT_EQ(u.dtype(), dtypes::float32);
}

TEST(LowerMulti, KernelsAreMadeOnce) {
  const Tensor x = on(kFour, {8, 4}, 0).realize();
  const BoundSchedule b = (x * 2 + 1).contiguous().schedule();
  std::set<const Kernel*> kernels;
  for (const ScheduleCall& c : b.schedule->calls) kernels.insert(c.kernel.get());
  EXPECT_EQ(b.schedule->calls.size(), 4u);
  EXPECT_EQ(kernels.size(), 1u);
}

}  // namespace
}  // namespace tg
