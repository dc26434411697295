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

TEST(DeviceTraits, OfKnownDevices) {
  EXPECT_TRUE(device_traits("CPU").attention_kernels);
  EXPECT_TRUE(device_traits("CPU:1").row_kernels);
  EXPECT_FALSE(device_traits("INTERP").attention_kernels);
}
}  // namespace
}  // namespace tg
