/// \file The device QCOM over a fake driver of Qualcomm's.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "helpers/error_text.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/runtime/opencl_device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using ::testing::HasSubstr;

class Qualcomm : public testing::Test {
 protected:
  void SetUp() override {
    if (env::QCOM_LIBRARY.get().empty()) GTEST_SKIP() << "no OpenCL driver that the fake one could be made of";
    device_ = &Device::get("QCOM");
  }
  static int views() {
    void* library = dlopen(env::QCOM_LIBRARY.get().c_str(), RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<int (*)()>(dlsym(library, "fake_adreno_views"))();
  }
  Device* device_ = nullptr;
};

TEST_F(Qualcomm, IsADeviceOfItsOwn) {
  EXPECT_EQ(Device::canonical("adreno:0"), "QCOM");
  const Target& t = device_->target();
  EXPECT_EQ(t.arch, "adreno");
  EXPECT_TRUE(t.has("workgroups"));
  EXPECT_EQ(t.images.pitch, 64);
  EXPECT_GE(t.images.width, 8192);
  for (const DeviceInfo& d : Device::list())
    if (d.name == "QCOM") {
      EXPECT_TRUE(d.available) << d.note;
      EXPECT_THAT(d.note, HasSubstr("Adreno"));
    }
}

TEST_F(Qualcomm, ReadsImagesUnlessToldNotTo) {
  EXPECT_GT(device_->target().images.width, 0);
  const Context off{{"IMAGE", 0}};
  EXPECT_EQ(device_->target().images.width, 0);
}

/// Without copies: what a kernel writes into an image is in the buffer.
TEST_F(Qualcomm, ImagesAreViewsOfBuffers) {
  const Context place{{"DEV", "QCOM"}};
  const int before = views();
  const Tensor x = Tensor::rand({64, 256}).realize(), y = (x + 1).realize();
  EXPECT_GE(views(), before + 2);
  const std::vector<float> a = x.to_vector<float>(), b = y.to_vector<float>();
  for (size_t i = 0; i < a.size(); i++) ASSERT_EQ(b[i], a[i] + 1) << i;
  const int made = views();
  const Tensor z = y;
  z.assign(x + 2).realize();  // the same buffers
  EXPECT_LE(views(), made + 1);
  EXPECT_EQ(z.to_vector<float>()[5], a[5] + 2);
}

/// A view that begins where no image can has its bytes copied.
TEST_F(Qualcomm, WhatIsNotAlignedIsCopied) {
  const Context place{{"DEV", "QCOM"}};
  const Tensor all = Tensor::rand({4, 1024}).realize();
  const std::vector<float> a = all.to_vector<float>();
  for (int64_t from : {4, 20, 1028}) {
    const Tensor part = all.reshape(4096).shrink({{from, from + 2048}}).contiguous();
    const std::vector<float> b = (part * 2).to_vector<float>();
    for (size_t i = 0; i < b.size(); i++) ASSERT_EQ(b[i], 2 * a[i + static_cast<size_t>(from)]) << from << " " << i;
  }
}

TEST(QualcommTarget, ProcessorsComputeGridsForImages) {
  OpenClDevice d;
  d.name = "test";
  d.type = CL_DEVICE_TYPE_CPU;
  d.group_threads = 512;
  d.images = {.width = 4096, .height = 4096, .pitch = 1};
  EXPECT_FALSE(opencl_target(d, "", "").has("workgroups"));
  EXPECT_TRUE(opencl_target(d, "", "", true).has("workgroups"));
  EXPECT_EQ(opencl_target(d, "", "", true).images.width, 4096);
  EXPECT_EQ(opencl_target(d, "", "lanes", true).images.width, 0);
  EXPECT_EQ(opencl_target(d, "", "workgroups").images.width, 0);
  EXPECT_THAT(test::error_text<DeviceError>([&] { opencl_target(d, "LLVM", "", false, "QCOM"); }),
              HasSubstr("[DEV] QCOM has no renderer 'LLVM'"));
  d.images = {};
  EXPECT_FALSE(opencl_target(d, "", "", true).has("workgroups"));  // it has none
}

TEST(QualcommLibrary, SaysWhatIsMissing) {
  const Context none{{"QCOM_LIBRARY", ""}};
  EXPECT_THAT(test::error_text<DeviceError>([] { qualcomm_opencl(); }), HasSubstr("Qualcomm's OpenCL driver"));
}

}  // namespace
}  // namespace tg
