/// \file A device that fails in the middle: a typed error when a value is asked for, while the process goes on. On the
/// simulated accelerator, which checks every access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tinygrad/base/env.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

std::string device_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const DeviceError& e) { return e.what(); }
  return "no error";
}

TEST(DeviceFailure, IsATypedErrorAndTheProcessGoesOn) {
  if (Device::get().kind() != "SIM") GTEST_SKIP() << "only SIM can be made to fail";
  const Context lazy{{"EAGER", 0}, {"MEMORY_LIMIT", 0}};
  const std::string device = "SIM:77";
  const TensorOptions there{.device = device}, elsewhere{.device = "SIM:78"};
  const Tensor kept = Tensor::from(std::vector<float>{1, 2}, Shape{2}, there).realize();
  const Tensor other = Tensor::from(std::vector<float>{3, 4}, Shape{2}, elsewhere).realize();
  const BufferRef memory = Buffer::create(device, 4, dtypes::float32);
  const float value = 1;
  Device::get(device).queue().copy_in({memory->place().block, 1 << 20}, &value, sizeof value);  // fails later
  const std::string what = device_error([&] {
    for (int i = 0; i < 2; i++) (kept + 1).to_vector<float>();  // enqueued, or refused when it has failed already
  });
  EXPECT_THAT(what, HasSubstr("beyond the end of its memory"));
  EXPECT_THAT(device_error([&] { (kept * 2).realize(); }), HasSubstr("beyond the end of its memory"))
      << "later commands fail with the first cause";
  EXPECT_THAT(device_error([&] { Device::get(device).wait(); }), HasSubstr("beyond the end of its memory"));
  EXPECT_EQ((other * 2).to_vector<float>(), (std::vector<float>{6, 8})) << "another device";
  EXPECT_EQ((Tensor({1.f, 2.f}, {.device = "CPU"}) + 1).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(DeviceFailure, MoreMemoryThanItHasIsAnErrorAndNoFailure) {
  if (Device::get().kind() != "SIM") GTEST_SKIP() << "limits of SIM";
  EXPECT_THROW(Tensor::full({int64_t{1} << 29}, 1.f, {.device = "SIM:79"}).contiguous().realize(), OutOfMemoryError);
  EXPECT_EQ((Tensor({1.f, 2.f}, {.device = "SIM:79"}) + 1).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(DeviceFailure, MixedDevicesAreAnErrorThatNamesBoth) {
  const Tensor a = Tensor({1.f, 2.f}, {.device = "CPU"}), b = Tensor({1.f, 2.f}, {.device = "NULL"});
  for (const auto& f : std::vector<std::function<void()>>{
           [&] { (a + b).realize(); }, [&] { a.dot(b).realize(); }, [&] { Tensor::cat({a, b}).realize(); },
           [&] { Tensor::stack({a, b}).realize(); }, [&] { a.assign(b); }, [&] { (a > 0).where(a, b).realize(); }}) {
    std::string what = "no error";
    try {
      f();
    } catch (const Error& e) { what = e.what(); }
    EXPECT_THAT(what, ::testing::AllOf(HasSubstr("CPU"), HasSubstr("NULL")));
  }
}

}  // namespace
}  // namespace tg
