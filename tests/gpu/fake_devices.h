/// \file The fake drivers from within a test.
#pragma once
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_driver/fake_control.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/builtin_devices.h"

namespace tg {

/// A vendor's runtime and its fake driver.
struct FakeVendor {
  const char* kind;
  const char* library;
  DeviceKind (*device_kind)();
  const char *launch, *launch_graph, *set_kernel, *copy_in, *allocate, *copy_peer, *synchronize;
};
inline void PrintTo(const FakeVendor& vendor, std::ostream* os) { *os << vendor.kind; }
inline constexpr FakeVendor kFakeCuda{"CUDA",
                                      TG_FAKE_CUDA,
                                      cuda_kind,
                                      "cuLaunchKernel",
                                      "cuGraphLaunch",
                                      "cuGraphExecKernelNodeSetParams",
                                      "cuMemcpyHtoDAsync_v2",
                                      "cuMemAlloc_v2",
                                      "cuMemcpyPeerAsync",
                                      "cuStreamSynchronize"};
inline constexpr FakeVendor kFakeAmd{"AMD",
                                     TG_FAKE_HIP,
                                     amd_kind,
                                     "hipModuleLaunchKernel",
                                     "hipGraphLaunch",
                                     "hipGraphExecKernelNodeSetParams",
                                     "hipMemcpyHtoDAsync",
                                     "hipMalloc",
                                     "hipMemcpyPeerAsync",
                                     "hipStreamSynchronize"};

/// Returns the control of a fake driver, which is opened first: whoever opens it by its name then gets this one.
inline const fake::Control& fake_control(const FakeVendor& vendor) {
  void* library = dlopen(vendor.library, RTLD_NOW | RTLD_LOCAL);
  TG_CHECK(DeviceError, library, dlerror());
  return *static_cast<const fake::Control*>(dlsym(library, "fake_gpu_control"));
}

/// A test for both vendors; what the runtime did wrong fails it.
class FakeGpu : public testing::TestWithParam<FakeVendor> {
 protected:
  void SetUp() override {
    control().take_violations();
    control().set_peers(true);
  }
  void TearDown() override {
    control().set_delay(0);
    control().fail_call("", 0, 0);
    EXPECT_STREQ(control().take_violations(), "");
  }
  const fake::Control& control() const { return control_; }
  std::string kind() const { return GetParam().kind; }
  /// Returns the name of a device.
  std::string device(int index) const { return index ? kind() + ":" + std::to_string(index) : kind(); }
  /// Returns DEV for the language of the fake devices.
  std::string language() const { return kind() + ":FAKE"; }

 private:
  const fake::Control& control_ = fake_control(GetParam());
};

inline std::string vendor_name(const testing::TestParamInfo<FakeVendor>& info) { return info.param.kind; }

}  // namespace tg
