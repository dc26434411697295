/// \file What the scheduler knows of devices: rows are one kernel only where a thread walks them.
#include "tinygrad/target/device_traits.h"

#include <gtest/gtest.h>

#include "tinygrad/base/context.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/tensor/tensor.h"

namespace tg {
namespace {

int64_t kernels_of_softmax(int64_t rows) {
  const Tensor x = Tensor::empty({rows, 2000}, {.device = "NULL"});
  const int64_t before = GlobalCounters::kernels;
  x.softmax().realize();
  return GlobalCounters::kernels - before;
}

TEST(DeviceTraits, RowsAreOneKernelWhereAThreadWalksThem) {
  const DeviceTraits usual = device_traits("NULL");
  EXPECT_TRUE(usual.row_kernels);
  EXPECT_EQ(kernels_of_softmax(300), 1);
  set_device_traits("NULL", {.row_kernels = false});
  EXPECT_FALSE(device_traits("NULL:3").row_kernels);
  EXPECT_EQ(kernels_of_softmax(301), 3);
  set_device_traits("NULL", usual);
  EXPECT_EQ(kernels_of_softmax(302), 1);
}

int64_t kernels_of_sum(int64_t n) {
  Tensor sum = Tensor::empty({n}, {.device = "NULL"});
  for (int i = 1; i < 16; i++) sum = sum + Tensor::empty({n}, {.device = "NULL"});
  const int64_t before = GlobalCounters::kernels;
  sum.realize();
  return GlobalCounters::kernels - before;
}

TEST(DeviceTraits, KernelsHaveNoMoreBuffersThanTheirDeviceAllows) {
  const DeviceTraits usual = device_traits("NULL");
  EXPECT_EQ(kernels_of_sum(100), 1);
  set_device_traits("NULL", {.kernel_buffers = 8});
  EXPECT_GE(kernels_of_sum(101), 3);  // 16 operands, 7 of them at once
  set_device_traits("NULL", usual);
}

TEST(DeviceTraits, OfKnownDevices) {
  EXPECT_TRUE(device_traits("CPU").attention_kernels);
  EXPECT_TRUE(device_traits("CPU:1").row_kernels);
  EXPECT_FALSE(device_traits("INTERP").attention_kernels);
}
}  // namespace
}  // namespace tg
