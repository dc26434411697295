/// \file Tensors on CUDA and AMD over the fake drivers, which interpret the kernels: values, streams, graphs, several
/// devices, failures.
#include <numeric>

#include "gpu/fake_devices.h"
#include "helpers/error_text.h"
#include "tinygrad/base/context.h"
#include "tinygrad/target/tensor_core.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

class GpuTensor : public FakeGpu {
 protected:
  Tensor on(int index, const std::vector<float>& values) const {
    return Tensor::from(values, Shape{static_cast<int64_t>(values.size())}, {.device = device(index)});
  }
  Context context_{{"DEV", language()}, {"EAGER", 0}};
};

std::vector<float> counting(size_t n, float first = 0) {
  std::vector<float> out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

TEST_P(GpuTensor, Adds) {
  EXPECT_EQ((on(0, {1, 2, 3}) + on(0, {10, 20, 30})).to_vector<float>(), (std::vector<float>{11, 22, 33}));
}

TEST_P(GpuTensor, ComputesProductsReducesAndViews) {
  const Tensor a = on(0, counting(48 * 40)).reshape({48, 40}), b = on(0, counting(40 * 24, -7)).reshape({40, 24});
  const Tensor c = a.to("CPU"), d = b.to("CPU");
  EXPECT_EQ((a.matmul(b) * 2).to_vector<float>(), (c.matmul(d) * 2).to_vector<float>());
  EXPECT_EQ(a.sum(1).to_vector<float>(), c.sum(1).to_vector<float>());
  EXPECT_EQ((a.transpose(0, 1).contiguous()[3] + 1).to_vector<float>(),
            (c.transpose(0, 1).contiguous()[3] + 1).to_vector<float>());
}

/// Chains of copies and kernels on two streams with pauses: a wait that is missing gives wrong values.
TEST_P(GpuTensor, StreamsWaitForOneAnother) {
  control().set_delay(300);
  for (const int index : {0, 1}) {  // with pools and without
    Tensor sum = on(index, counting(100)).realize();
    for (int i = 0; i < 12; i++) {
      const Tensor in = on(index, counting(100, static_cast<float>(i))).realize();  // a copy beside the kernels
      sum = (sum + in * 2).realize();
      if (i % 4 == 3) EXPECT_EQ((in + 0).to_vector<float>(), counting(100, static_cast<float>(i)));
    }
    std::vector<float> expected(100);
    for (int i = 0; i < 100; i++) expected[static_cast<size_t>(i)] = static_cast<float>(i * 25 + 2 * 66);
    EXPECT_EQ(sum.to_vector<float>(), expected);
  }
}

TEST_P(GpuTensor, MemoryIsFreedBehindTheCommandsThatUseIt) {
  const Context no_cache{{"LRU", 0}};
  control().set_delay(200);
  for (const int index : {0, 1})
    for (int i = 0; i < 8; i++) {
      const Tensor x = on(index, counting(1000)).realize();
      const Tensor y = (x * 3).realize();
      const Tensor z = (y + x).realize();
      if (i % 2) EXPECT_EQ(z.sum().item<float>(), 4 * 499500.f);
    }
  Device::synchronize();
}

TEST_P(GpuTensor, ReplaysAreGraphs) {
  const std::string where = device(0);
  auto step = jit([](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 5; i++) y = (y * 2 + 1).contiguous();
    return y.sum();
  });
  for (int i = 0; i < 6; i++) {
    const size_t graphs = control().count_calls(GetParam().launch_graph),
                 launches = control().count_calls(GetParam().launch),
                 changes = control().count_calls(GetParam().set_kernel);
    const Tensor x = on(0, counting(64, static_cast<float>(i))).realize();
    const float expected = 32.f * (2016 + 64.f * static_cast<float>(i)) + 31 * 64;
    EXPECT_EQ(step(x).item<float>(), expected);
    if (i < 3) continue;
    EXPECT_EQ(control().count_calls(GetParam().launch_graph), graphs + 1);
    EXPECT_EQ(control().count_calls(GetParam().launch), launches);
    EXPECT_LE(control().count_calls(GetParam().set_kernel), changes + 2) << "only the nodes whose arguments changed";
  }
}

TEST_P(GpuTensor, ReplaysOfSymbolicSizes) {
  const Variable n("n", 0, 20);
  const Tensor x = on(0, counting(20)).realize();
  auto step = jit([&](const Tensor& t) { return ((t + 1).contiguous() * 2).contiguous().sum(); });
  for (const int64_t size : {3, 7, 1, 20, 5, 12}) {
    const Tensor part = x.shrink({{0, n.bind(size)}});
    EXPECT_EQ(step(part).item<float>(), static_cast<float>(size * (size + 1)));
  }
}

TEST_P(GpuTensor, CopiesBetweenDevices) {
  control().set_delay(100);
  for (const auto& [from, to] : std::vector<std::pair<int, int>>{{0, 1}, {1, 0}, {2, 4}, {3, 5}}) {
    const size_t before = control().count_calls(GetParam().copy_peer);
    const Tensor x = (on(from, counting(500)) * 2).realize();
    const Tensor y = (x.to(device(to)) + 1).realize(), z = (y.to(device(from)) - 1).realize();
    EXPECT_EQ(z.to_vector<float>(), x.to_vector<float>());
    EXPECT_EQ(control().count_calls(GetParam().copy_peer), before + 2);
  }
}

TEST_P(GpuTensor, CopiesThroughTheHostWhereDevicesDoNotReachEachOther) {
  control().set_peers(false);
  const size_t before = control().count_calls(GetParam().copy_peer);
  const Tensor x = (on(6, counting(500)) * 2).realize();
  EXPECT_EQ((x.to(device(7)) + 0).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(control().count_calls(GetParam().copy_peer), before);
}

TEST_P(GpuTensor, ShardsOverDevices) {
  const Tensor x = on(0, counting(64)).reshape({8, 8});
  const Tensor y = x.shard({device(0), device(1)}, 0);
  EXPECT_EQ((y * 2).sum().item<float>(), 2 * 2016.f);
  EXPECT_EQ(y.matmul(y.transpose(0, 1)).to("CPU").to_vector<float>(),
            x.to("CPU").matmul(x.to("CPU").transpose(0, 1)).to_vector<float>());
}

TEST_P(GpuTensor, Trains) {
  Tensor weight = on(2, std::vector<float>(16, 0.5f)).reshape({4, 4}).realize();
  weight.requires_grad_(true);
  const Tensor x = on(2, counting(16)).reshape({4, 4});
  std::vector<float> losses;
  for (int i = 0; i < 3; i++) {
    const Tensor loss = (x.matmul(weight) * 0.01).relu().mean();
    loss.backward();
    losses.push_back(loss.item<float>());
    weight = (weight - weight.grad() * 0.5).detach().realize();
    weight.requires_grad_(true);
  }
  EXPECT_LT(losses[2], losses[1]);
  EXPECT_LT(losses[1], losses[0]);
}

TEST_P(GpuTensor, AFailedCommandFailsItsDeviceWithATypedError) {
  constexpr int kIllegalAddress = 700;
  const Tensor kept = on(8, {1, 2}).realize(), other = on(9, {3, 4}).realize();
  Device::get(device(8)).wait();
  control().fail_command(8, 1, kIllegalAddress);
  EXPECT_THAT(test::error_text<DeviceError>([&] {
                for (int i = 0; i < 2; i++) (kept + 1).to_vector<float>();
              }),
              HasSubstr("an illegal memory access was encountered"));
  EXPECT_THAT(test::error_text<DeviceError>([&] { (kept * 2).to_vector<float>(); }),
              testing::AllOf(HasSubstr(device(8) + " has failed"), HasSubstr("FAKE_ILLEGAL_ADDRESS")));
  EXPECT_THAT(test::error_text<DeviceError>([&] { Device::get(device(8)).wait(); }), HasSubstr("has failed"));
  EXPECT_EQ((other * 2).to_vector<float>(), (std::vector<float>{6, 8})) << "another device";
  EXPECT_EQ((Tensor({1.f, 2.f}, {.device = "CPU"}) + 1).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST_P(GpuTensor, MoreMemoryThanThereIsIsAnErrorAndNoFailure) {
  EXPECT_THROW(Tensor::full({int64_t{1} << 29}, 1.f, {.device = device(10)}).contiguous().realize(), OutOfMemoryError);
  EXPECT_EQ((on(10, {1, 2}) + 1).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST_P(GpuTensor, SaysWhatDevCanName) {
  const Context wrong{{"DEV", kind() + ":LLVM"}};
  EXPECT_THAT(test::error_text<DeviceError>([&] { (on(11, {1, 2}) + 1).realize(); }),
              HasSubstr("[DEV] " + kind() + " has no renderer 'LLVM', expected one of "));
}

/// Products on an H100 copy their operands in boxes: launches and graphs give kernels the maps of their memory, which
/// the fake driver compares. Memory that begins at no multiple of 16 bytes has no map.
TEST(GpuBoxes, LaunchesAndGraphsGiveKernelsTheirMaps) {
  const fake::Control& control = fake_control(kFakeCuda);
  control.take_violations();
  // So small a product would have another instruction.
  const auto core = find_tensor_core("wgmma_m64n256k16_bf16") - tensor_core_table().data();
  const Context context{{"DEV", "CUDA:FAKE"}, {"EAGER", 0}, {"TC_SELECT", core}};
  const int64_t n = 256, m = 512, l = 320;
  const auto halves = [](int64_t rows, int64_t columns, int64_t first) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); i++)
      values[i] = static_cast<float>((i * 7 + static_cast<size_t>(first)) % 5) - 2;
    return Tensor::from(values, Shape{rows * columns}, {.device = "CUDA"}).cast(dtypes::bfloat16);
  };
  const auto maps = [&] { return control.count_calls("cuTensorMapEncodeTiled"); };
  const auto product = [&](const Tensor& x, const Tensor& y) {
    return x.reshape({n, l}).matmul(y.reshape({l, m}), dtypes::float32);
  };
  const auto expected = [&](const Tensor& x, const Tensor& y) {
    return product(x.to("CPU").cast(dtypes::float32), y.to("CPU").cast(dtypes::float32)).to_vector<float>();
  };
  const Tensor x = halves(n, l, 0).realize(), y = halves(l, m, 3).realize();
  const size_t before = maps();
  EXPECT_EQ(product(x, y).to_vector<float>(), expected(x, y));
  EXPECT_EQ(maps(), before + 2);

  const Tensor wide = halves(n + 1, l, 1).realize(), part = wide.shrink({{1, n * l + 1}});
  EXPECT_EQ(product(part, y).to_vector<float>(), expected(part, y));

  auto step = jit([&](const Tensor& a, const Tensor& b) { return (product(a, b) + 1).contiguous().sum(); });
  for (int i = 0; i < 5; i++) {
    const Tensor a = halves(n, l, i).realize(), b = halves(l, m, 2 * i).realize();
    const std::vector<float> want = expected(a, b);
    EXPECT_EQ(step(a, b).item<float>(), std::accumulate(want.begin(), want.end(), static_cast<float>(n * m)));
  }
  EXPECT_GT(maps(), before + 4);
  EXPECT_STREQ(control.take_violations(), "");
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fake, GpuTensor, testing::Values(kFakeCuda, kFakeAmd), vendor_name);

}  // namespace tg
