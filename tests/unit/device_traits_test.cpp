/// \file What the scheduler knows of devices: rows are one kernel only where a thread walks them.
#include "tinygrad/target/device_traits.h"

#include <gtest/gtest.h>

#include "tinygrad/base/context.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/device.h"
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

int64_t kernels_of_product(int64_t rows, int64_t terms, int64_t columns, DType d, bool transposed = false) {
  const Tensor a = Tensor::empty({rows, terms}, {.dtype = d, .device = "NULL"});
  const Tensor b = transposed ? Tensor::empty({columns, terms}, {.dtype = d, .device = "NULL"}).transpose()
                              : Tensor::empty({terms, columns}, {.dtype = d, .device = "NULL"});
  const int64_t before = GlobalCounters::kernels;
  a.matmul(b).realize();
  return GlobalCounters::kernels - before;
}

TEST(DeviceTraits, LongProductsOfFewResultsAreSplitUntilAllThreadsAreBusy) {
  const DeviceTraits usual = device_traits("NULL");
  EXPECT_EQ(kernels_of_product(64, 1 << 16, 64, dtypes::float32), 1);
  set_device_traits("NULL", {.busy_threads = 1 << 17});
  EXPECT_EQ(kernels_of_product(64, 1 << 16, 72, dtypes::float32), 2);
  EXPECT_EQ(kernels_of_product(4096, 1 << 13, 4096, dtypes::float32), 1) << "enough results";
  EXPECT_EQ(kernels_of_product(64, 1024, 72, dtypes::float32), 1) << "a short sum";
  EXPECT_EQ(kernels_of_product(1, 1 << 13, 4096, dtypes::float32), 1) << "each element of the matrix is used once";
  set_device_traits("NULL", usual);
}

TEST(DeviceTraits, RegistersHoldLongSumsOfBusyThreads) {
  const DeviceTraits usual = device_traits("NULL");
  const int64_t stored = kernels_of_product(2048, 8192, 2048, dtypes::bfloat16);
  EXPECT_EQ(stored, 2) << "sums, then what is stored of them";
  set_device_traits("NULL", {.busy_threads = 1 << 17});
  EXPECT_EQ(kernels_of_product(2048, 8192, 2056, dtypes::bfloat16), 1);
  set_device_traits("NULL", usual);
}

TEST(DeviceTraits, FactorsOfLargeProductsAreStoredInRowsAlongTheSum) {
  Device::get("NULL");  // sets its traits when it is opened
  const DeviceTraits usual = device_traits("NULL");
  set_device_traits("NULL", {.busy_threads = 1 << 17, .sum_rows = true});
  EXPECT_EQ(kernels_of_product(2048, 2048, 2048, dtypes::int8), 2) << "a copy, then the product";
  EXPECT_EQ(kernels_of_product(2048, 2048, 2056, dtypes::int8, true), 1) << "memory has the rows";
  EXPECT_EQ(kernels_of_product(128, 1536, 2048, dtypes::int8), 1) << "elements are used too few times";
  EXPECT_EQ(kernels_of_product(2048, 2048, 2064, dtypes::bfloat16), 1) << "read as they are";
  EXPECT_EQ(kernels_of_product(2048, 2048, 2072, dtypes::float32), 1) << "not rounded";
  {
    const Context rounded({{"ALLOW_TF32", 1}});
    EXPECT_EQ(kernels_of_product(2048, 2048, 2080, dtypes::float32), 2);
  }
  set_device_traits("NULL", usual);
}

TEST(DeviceTraits, OfKnownDevices) {
  EXPECT_TRUE(device_traits("CPU").attention_kernels);
  EXPECT_TRUE(device_traits("CPU:1").row_kernels);
  EXPECT_FALSE(device_traits("INTERP").attention_kernels);
}
}  // namespace
}  // namespace tg
