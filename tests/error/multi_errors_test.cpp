/// \file Mistakes with tensors on several devices.
#include <gtest/gtest.h>

#include "error/expect_error.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
const std::vector<std::string> kTwo{"CPU:1", "CPU:2"};
Tensor sharded(std::optional<int> axis = 0) { return Tensor::ones(4, 6).clone().shard(kTwo, axis); }

TEST(MultiErrors, Sharding) {
  expect<ShapeError>([] { Tensor::ones(5).shard(kTwo, 0); }, "shard", "multi axis uneven");
  expect<DeviceError>([] { sharded().shard(kTwo, 0); }, "shard", "can't shard a multi-device tensor");
  expect<IndexError>([] { sharded({}).to("CPU").shard(kTwo, 2); }, "shard", "axis 2");
  expect<ValueError>([] { Tensor::ones(4).shard({}); }, "shard", "no devices");
  expect<DeviceError>([] { Tensor::ones(4).shard({"CPU", "NOSUCH"}); }, "device", "NOSUCH");
  expect<DeviceError>([] { Tensor::ones(4).shard({"CPU", ""}); }, "device", "empty name");
  expect<DeviceError>([] { Tensor::ones(4).shard({"CPU", "DISK:/tmp/x"}); }, "device", "that compute");
  expect<DeviceError>([] { sharded({}).shard_like(sharded(0)); }, "shard", "can't shard");
}

TEST(MultiErrors, ViewsThatMoveElementsBetweenDevices) {
  expect<ShapeError>([] { sharded().reshape(3, 8); }, "reshape", "moved items between shards");
  expect<ShapeError>([] { sharded().flip(0); }, "flip", "sharded axis 0");
  expect<ShapeError>([] { sharded().pad({{0, 1}, {0, 0}}); }, "pad", "sharded axis 0");
  expect<ShapeError>([] { sharded().shrink({{0, 3}, {0, 6}}); }, "shrink", "whole shard of 2");
  expect<ShapeError>([] { sharded().shrink({{1, 3}, {0, 6}}); }, "shrink", "whole shard of 2");
}

TEST(MultiErrors, DevicesThatDiffer) {
  expect<DeviceError>([] { sharded() + Tensor::ones(4, 6).clone(); }, "add", "CPU:1,CPU:2 and CPU");
  expect<DeviceError>([] { sharded() + Tensor::ones(4, 6).clone().shard({"CPU:1", "CPU:3"}, 0); }, "add",
                      "CPU:1,CPU:3");
  expect<DeviceError>([] { sharded().realize().assign(Tensor::ones(4, 6).clone()); }, "assign", "CPU:1,CPU:2");
  expect<DeviceError>([] { sharded().realize().assign(sharded(1)); }, "assign", "multi axis mismatch");
  expect<DeviceError>([] { sharded({}).realize().assign(sharded(1)); }, "assign", "multi axis mismatch");
}

TEST(MultiErrors, Creation) {
  expect<ValueError>([] { Tensor::rand({4}, {.device = "CPU:1,CPU:2"}); }, "rand", "expected one");
  expect<ValueError>([] { Tensor::uniform({4}, {.device = "CPU:1,CPU:2"}); }, "uniform", "expected one");
  expect<DeviceError>([] { sharded().rand_like({.device = "CPU:3,CPU:4"}); }, "rand_like", "cannot specify");
  expect<DeviceError>([] { sharded().full_like(1, {.device = "CPU"}); }, "full_like", "cannot specify");
}

TEST(MultiErrors, Jit) {
  auto f = jit([](const Tensor& x) { return x + 1; });
  for (int i = 0; i < 3; i++) f(sharded().realize());
  expect<JitError>([&] { f(Tensor::ones(4, 6).clone()); }, "jit", "expected 2");
  expect<JitError>([&] { f(Tensor::ones(4, 12).clone().shard(kTwo, 1)); }, "jit", "axis 1");
  expect<JitError>([&] { f(Tensor::ones(4, 6).shard(kTwo, 0)); }, "jit", "constant");
}

}  // namespace
}  // namespace tg
