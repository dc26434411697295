/// \file Tensors on METAL: kernels, replays as indirect command buffers, and what is left behind.
#include "helpers/error_text.h"
#include "metal/fake_metal_library.h"
#include "tinygrad/base/context.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;
using ::testing::HasSubstr;

class MetalTensor : public test::FakeMetal {
 protected:
  static Tensor on(const char* device, const Floats& values) {
    return Tensor::from(values, Shape{static_cast<int64_t>(values.size())}, {.device = device}).realize();
  }
};

TEST_F(MetalTensor, ComputesWithGroupsOfThreads) {
  const Tensor a = on("METAL", {1, 2, 3}), b = on("METAL", {10, 20, 30});
  EXPECT_EQ((a + b).to_vector<float>(), (Floats{11, 22, 33}));
  EXPECT_EQ((a * b).sum().item<float>(), 140);
  EXPECT_EQ(Tensor::arange(0, 4096, 1, {.device = "METAL"}).reshape({64, 64}).to_float().sum(0).to_vector<float>()[3],
            129024 + 3 * 64);
  EXPECT_EQ((b.shrink({{1, 3}}) - a.shrink({{0, 2}})).to_vector<float>(), (Floats{19, 28})) << "views have offsets";
}

/// Metal takes 31 arguments.
TEST_F(MetalTensor, KernelsOfManyBuffersAreSplit) {
  Tensor sum = on("METAL", {0, 0});
  for (int i = 1; i <= 40; i++) sum = sum + on("METAL", {static_cast<float>(i), 1});
  EXPECT_EQ(sum.to_vector<float>(), (Floats{820, 40}));
}

TEST_F(MetalTensor, SeveralGpus) {
  const Tensor a = on("METAL:1", {1, 2, 3}), b = on("METAL:4", {10, 20, 30});
  EXPECT_EQ((a.to("METAL:4") + b).to_vector<float>(), (Floats{11, 22, 33}));
  EXPECT_EQ((a + b.to("METAL:1").to("CPU").to("METAL:1")).to_vector<float>(), (Floats{11, 22, 33}));
}

/// Three kernels and a copy, with a number and memory that change.
auto chain() {
  return jit([](const Tensor& x) {
    const Tensor y = (x * 2).realize(), z = (y + x).realize();
    return (z.sum() + y).realize();
  });
}
Floats chain_of(const Floats& x) {
  float sum = 0;
  for (const float v : x) sum += 3 * v;
  Floats out;
  for (const float v : x) out.push_back(sum + 2 * v);
  return out;
}

TEST_F(MetalTensor, ReplaysAreIndirectCommands) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 replays nothing";
  for (const auto& [device, indirect] : {std::pair("METAL", true), {"METAL:4", false}, {"METAL:2", false}}) {
    auto f = chain();
    const int64_t before = control.indirect_commands();
    for (int i = 0; i < 12; i++) {
      const float v = static_cast<float>(i);
      EXPECT_EQ(f(on(device, {v, 1, 2})).to_vector<float>(), chain_of({v, 1, 2})) << device << " " << i;
    }
    EXPECT_EQ(control.indirect_commands() > before, indirect) << device;
  }
}

TEST_F(MetalTensor, ReplaysWithoutNewArgumentsMayOverlap) {
  auto f = chain();
  const Tensor x = on("METAL", {1, 2, 3});
  Tensor y;
  for (int i = 0; i < 30; i++) y = f(x);
  EXPECT_EQ(y.to_vector<float>(), chain_of({1, 2, 3}));
  std::vector<Tensor> inputs;
  for (int i = 0; i < 30; i++) inputs.push_back(on("METAL", {static_cast<float>(i), 5, 6}));
  for (const Tensor& in : inputs) y = f(in);  // two recordings in turn, each changed when it is done
  EXPECT_EQ(y.to_vector<float>(), chain_of({29, 5, 6}));
}

TEST_F(MetalTensor, ReplaysWithVariables) {
  const Tensor x = on("METAL", {1, 2, 3, 4, 5, 6, 7, 8});
  const Variable n("n", 1, 8);
  auto f = jit([&](const BoundVariable& k) {
    const Tensor part = (x.shrink({{0, k}}) + 1).realize();
    return (part.sum() * 2).realize();
  });
  for (int round = 0; round < 3; round++)
    for (int k = 1; k <= 8; k++) EXPECT_EQ(f(n.bind(k)).item<float>(), static_cast<float>(k * (k + 1) + 2 * k)) << k;
}

TEST_F(MetalTensor, AFailedKernelFailsItsDeviceOnly) {
  const Context lazy{{"EAGER", 0}};
  const Tensor a = on("METAL:6", {1, 2}), other = on("METAL", {3, 4});
  Device::get("METAL:6").wait();
  control.fail_commands(1);
  for (int i = 0; i < 2; i++)
    EXPECT_THAT(test::error_text<DeviceError>([&] { (a + 1).to_vector<float>(); }), HasSubstr("METAL:6 has failed"));
  EXPECT_EQ((other * 2).to_vector<float>(), (Floats{6, 8}));
}

TEST_F(MetalTensor, NothingStaysBehind) {
  const auto lives = [&] {
    Device::get("METAL").wait();
    free_memory_caches();
    int64_t n = 0;
    for (const char* c : {"MTLBuffer", "MTLIndirectCommandBuffer", "MTLIndirectComputeCommand", "NSString", "NSError",
                          "MTLComputeCommandEncoder", "MTLBlitCommandEncoder", "MTLLibrary", "MTLFunction"})
      n += control.living(c);
    return n;
  };
  const auto work = [&] {
    auto f = chain();
    for (int i = 0; i < 6; i++) f(on("METAL", {1, 2, static_cast<float>(i)})).to_vector<float>();
  };
  work();
  const int64_t before = lives();
  for (int i = 0; i < 3; i++) work();
  EXPECT_EQ(lives(), before);
}
}  // namespace
}  // namespace tg
