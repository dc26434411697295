/// \file A device that fails in the middle: a typed error when a value is asked for, while the process goes on. On SIM,
/// the simulated accelerator, whichever the default device is: it checks every access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "helpers/error_text.h"
#include "tinygrad/base/env.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

TEST(DeviceFailure, IsATypedErrorAndTheProcessGoesOn) {
  const Context lazy{{"EAGER", 0}, {"MEMORY_LIMIT", 0}};
  const std::string device = "SIM:77";
  const TensorOptions there{.device = device}, elsewhere{.device = "SIM:78"};
  const Tensor kept = Tensor::from(std::vector<float>{1, 2}, Shape{2}, there).realize();
  const Tensor other = Tensor::from(std::vector<float>{3, 4}, Shape{2}, elsewhere).realize();
  const BufferRef memory = Buffer::create(device, 4, dtypes::float32);
  const float value = 1;
  Device::get(device).queue().copy_in({memory->place().block, 1 << 20}, &value, sizeof value);  // fails later
  const std::string what = test::error_text<DeviceError>([&] {
    for (int i = 0; i < 2; i++) (kept + 1).to_vector<float>();  // enqueued, or refused when it has failed already
  });
  EXPECT_THAT(what, HasSubstr("beyond the end of its memory"));
  EXPECT_THAT(test::error_text<DeviceError>([&] { (kept * 2).realize(); }), HasSubstr("beyond the end of its memory"))
      << "later commands fail with the first cause";
  EXPECT_THAT(test::error_text<DeviceError>([&] { Device::get(device).wait(); }),
              HasSubstr("beyond the end of its memory"));
  EXPECT_EQ((other * 2).to_vector<float>(), (std::vector<float>{6, 8})) << "another device";
  EXPECT_EQ((Tensor({1.f, 2.f}, {.device = "CPU"}) + 1).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(DeviceFailure, MoreMemoryThanItHasIsAnErrorAndNoFailure) {
  EXPECT_THROW(Tensor::full({int64_t{1} << 29}, 1.f, {.device = "SIM:79"}).contiguous().realize(), OutOfMemoryError);
  EXPECT_EQ((Tensor({1.f, 2.f}, {.device = "SIM:79"}) + 1).to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(DeviceFailure, MixedDevicesAreAnErrorThatNamesBoth) {
  const Tensor a = Tensor({1.f, 2.f}, {.device = "CPU"}), b = Tensor({1.f, 2.f}, {.device = "NULL"});
  for (const auto& f : std::vector<std::function<void()>>{
           [&] { (a + b).realize(); }, [&] { a.dot(b).realize(); }, [&] { Tensor::cat({a, b}).realize(); },
           [&] { Tensor::stack({a, b}).realize(); }, [&] { a.assign(b); }, [&] { (a > 0).where(a, b).realize(); }})
    EXPECT_THAT(test::error_text(f), ::testing::AllOf(HasSubstr("CPU"), HasSubstr("NULL")));
}

}  // namespace
}  // namespace tg
