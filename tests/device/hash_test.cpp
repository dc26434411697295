/// \file Hashes of many blocks: values from Python's hashlib, and what they cost to compile.
#include <gtest/gtest.h>

#include <iomanip>
#include <sstream>

#include "device_facts.h"
#include "several_devices.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
Tensor bytes(int64_t n) {
  std::vector<uint8_t> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<uint8_t>(i * 7 % 251);
  return Tensor::from(v);
}
std::string hex(const Tensor& t) {
  std::ostringstream os;
  for (uint8_t b : t.to_vector<uint8_t>()) os << std::hex << std::setw(2) << std::setfill('0') << int{b};
  return os.str();
}

TEST(Hash, OneKernelForAllBlocks) {
  Tensor one = bytes(135).realize(), many = bytes(1000).realize();
  EXPECT_EQ(hex(one.keccak()), "713005dad210411e71a4ca86fcb0227ca420826265236bd074c7c051f9749c05");
  const int64_t compiled = GlobalCounters::compiled, kernels = GlobalCounters::kernels;
  EXPECT_EQ(hex(many.keccak()), "5fb531fe026618353eb601c3b227d68d6f935b8fb59177a76ad484ada72b7e32");
  EXPECT_LE(GlobalCounters::kernels - kernels, 4);
  EXPECT_LE(GlobalCounters::compiled - compiled, 4);
}
TEST(Hash, RowsOfBlocks) {
  EXPECT_EQ(hex(bytes(2000).reshape(2, 1000).keccak("shake_128")),
            "5c309506792c1ac87cd838b0f16ee9861c26bfdd788292716505539afc1ddc1b");
}
TEST(Hash, OnSeveralDevices) {
  if (const std::string missing = several_devices_missing(2); !missing.empty()) GTEST_SKIP() << missing;
  Tensor x = bytes(2000).reshape(2, 1000);
  const std::string device = Device::default_name(), want = hex(x.keccak());
  for (std::optional<int> axis : {std::optional<int>(), std::optional<int>(0), std::optional<int>(1)})
    EXPECT_EQ(hex(x.shard({device, device + ":1"}, axis).keccak().to(device)), want);
}
TEST(Hash, TensorsOneByOne) {
  Context eager{{"EAGER", 1}};
  Tensor x = bytes(2000).reshape(2, 1000);
  const std::string want = hex(x.keccak());
  EXPECT_EQ(hex(x.clone().keccak()), want);
  EXPECT_EQ(hex(((x ^ 1) ^ 1).keccak()), want);
  EXPECT_NE(hex((x ^ 1).keccak()), want);
  EXPECT_EQ(hex(x.keccak()), want);
}
TEST(Hash, OfAMebibyte) {
  TG_NEEDS_ITERATIONS(160256);
  Tensor x = (Tensor::arange(1 << 20) % 251).cast(dtypes::uint8);
  EXPECT_EQ(hex(x.hash()), "1d6dace48f0ef4697953fb2a4161836c");
}

}  // namespace
}  // namespace tg
