/// \file Networks as openpilot runs them on Qualcomm's GPUs: convolutions that shrink an image, heads.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

/// A block of EfficientNet: more channels, a convolution of each alone, fewer channels, the input again.
struct Block {
  Block(int64_t in, int64_t out, int64_t stride)
      : expand(in, 4 * in, 1),
        depthwise(4 * in, 4 * in, 3, {.stride = stride, .padding = 1, .groups = 4 * in}),
        project(4 * in, out, 1),
        same(in == out && stride == 1) {}
  nn::Conv2d expand, depthwise, project;
  bool same;
  Tensor operator()(const Tensor& x) const {
    const Tensor y = project(depthwise(expand(x).elu()).elu());
    return same ? x + y : y;
  }
  TG_STATE(expand, depthwise, project)
};

/// Two frames of six planes each, a state; the outputs of some heads and the next state.
struct DrivingNet {
  nn::Conv2d stem{12, 16, 3, {.stride = 2, .padding = 1}};
  Block one{16, 16, 1}, two{16, 24, 2}, three{24, 24, 1}, four{24, 40, 2};
  nn::Linear summary{40 * 4 * 8, 64}, gates{64 + 32, 64}, candidate{64 + 32, 32}, plan{32, 33}, lanes{32, 18};
  std::vector<Tensor> operator()(const Tensor& frames, const Tensor& state) const {
    Tensor x = four(three(two(one(stem(frames).elu()))));
    x = summary(x.elu().flatten(1)).relu();
    const Tensor z = gates(Tensor::cat({x, state}, 1)).sigmoid(), update = z.shrink({{0, 1}, {0, 32}}),
                 reset = z.shrink({{0, 1}, {32, 64}});
    const Tensor next = (1 - update) * state + update * candidate(Tensor::cat({x, state * reset}, 1)).tanh();
    return {plan(next), lanes(next).softmax(-1), next};
  }
  TG_STATE(stem, one, two, three, four, summary, gates, candidate, plan, lanes)
};

/// Returns the outputs for three frames in a row.
std::vector<float> outputs_on(const char* dev) {
  const Context place{{"DEV", dev}};
  Tensor::manual_seed(3);
  const DrivingNet net;
  Tensor state = Tensor::zeros({1, 32}).contiguous();
  std::vector<float> all;
  for (int frame = 0; frame < 3; frame++) {
    const std::vector<Tensor> out = net(Tensor::rand({1, 12, 32, 64}), state);
    for (const Tensor& t : out)
      for (float v : t.to_vector<float>()) all.push_back(v);
    state = out.back().realize();
  }
  return all;
}

void expect_outputs_of_the_cpu(const char* dev, double tolerance) {
  std::vector<float> want;
  {
    const Context off{{"IMAGE", 0}, {"FLOAT16", 0}};
    want = outputs_on("CPU");
  }
  const std::vector<float> got = outputs_on(dev);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); i++)
    ASSERT_NEAR(got[i], want[i], tolerance * (1 + std::abs(want[i]))) << "output " << i;
}

class Driving : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    try {
      Device::get(GetParam());
    } catch (const DeviceError& e) { GTEST_SKIP() << e.what(); }
  }
};
TEST_P(Driving, ComputesWhatTheCpuDoes) {
  const Context images{{"IMAGE", 1}};
  expect_outputs_of_the_cpu(GetParam(), 1e-5);
}
TEST_P(Driving, ComputesItFromHalves) {
  const Context images{{"IMAGE", 1}, {"FLOAT16", 1}};
  expect_outputs_of_the_cpu(GetParam(), 2e-2);
}
INSTANTIATE_TEST_SUITE_P(Devices, Driving, testing::Values("INTERP", "CL", "QCOM"));

}  // namespace
}  // namespace tg
