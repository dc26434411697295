/// \file Training on MNIST takes the same steps on every device.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "apps/tg/models.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/error.h"
#include "tinygrad/nn/datasets.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

constexpr int kSteps = 20;
constexpr double kTolerance = 1e-3;

/// What is compared with the CPU: settings of DEV.
constexpr const char* kDevices[] = {"CL:OPENCL:lanes", "CL:OPENCL:workgroups", "WEBGPU", "INTERP"};
/// Those of them that add in the order of the CPU where nothing is chosen for their kernels (NOOPT=1): what is chosen
/// differs with the figures of a processor and of a driver for it.
constexpr const char* kSameOrder[] = {"CL:OPENCL:lanes"};

/// A convolutional network without kinks. In one of max pooling and ReLU the least difference, as of sums in another
/// order, now and then sends a gradient to another element. Batch normalization of few images and Adam make 1e-2 of
/// that in ten steps, on the CPU too, with EAGER=1.
struct SmoothNet {
  nn::Conv2d conv1{1, 8, 5, {.stride = 2}}, conv2{8, 16, 3, {.stride = 2}};
  nn::Linear fc{400, 10};
  Tensor operator()(const Tensor& x) const { return fc(conv2(conv1(x / 255).silu()).silu().flatten(1)); }
  TG_STATE(conv1, conv2, fc)
};

/// Returns the loss of every step of Adam with DEV = `dev`.
template <class Model> std::vector<float> losses_on(const char* dev, int64_t batch) {
  const Context place{{"DEV", dev}};
  const nn::datasets::Dataset data = nn::datasets::mnist();
  Tensor::manual_seed(42);
  const Model model;
  nn::Adam optimizer(nn::get_parameters(model), {.lr = 0.003});
  std::vector<float> losses;
  for (int step = 0; step < kSteps; step++) {
    const nn::Training mode;
    optimizer.zero_grad();
    const Tensor rows = Tensor::randint({batch}, {.low = 0, .high = data.train_images.shape(0)});
    const Tensor loss = model(data.train_images[rows]).sparse_categorical_crossentropy(data.train_labels[rows]);
    loss.backward();
    Tensors all = optimizer.schedule_step();
    all.push_back(loss);
    realize(all);
    losses.push_back(loss.item<float>());
  }
  return losses;
}

template <class Model> void expect_steps_of_the_cpu(const std::string& dev, int64_t batch) {
  try {
    Device::get(dev.substr(0, dev.find(':')));
  } catch (const DeviceError& e) { GTEST_SKIP() << e.what(); }
  const std::vector<float> want = losses_on<Model>("CPU", batch), got = losses_on<Model>(dev.c_str(), batch);
  for (size_t i = 0; i < kSteps; i++) EXPECT_NEAR(got[i], want[i], kTolerance) << "step " << i;
  EXPECT_LT(want.back(), 0.9 * want.front());
}

std::string test_name(const ::testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

class SmoothTraining : public ::testing::TestWithParam<const char*> {};
TEST_P(SmoothTraining, TakesTheStepsOfTheCpu) { expect_steps_of_the_cpu<SmoothNet>(GetParam(), 32); }
INSTANTIATE_TEST_SUITE_P(Mnist, SmoothTraining, ::testing::ValuesIn(kDevices), test_name);

class ConvNetTraining : public ::testing::TestWithParam<const char*> {};
TEST_P(ConvNetTraining, TakesTheStepsOfTheCpu) {
  const Context same_order{{"NOOPT", 1}};
  expect_steps_of_the_cpu<models::ConvNet>(GetParam(), 16);
}
INSTANTIATE_TEST_SUITE_P(Mnist, ConvNetTraining, ::testing::ValuesIn(kSameOrder), test_name);

}  // namespace
}  // namespace tg
