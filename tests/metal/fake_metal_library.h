/// \file Fake Metal for a test: devices, the control of the library, and a check that the runtime kept all rules.
#pragma once
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "fake_metal/metal_control.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"

namespace tg::test {

/// Returns the control of the library that METAL_LIBRARY names. Throws DeviceError that says how it is named.
inline const fake_metal::Control& fake_metal_control() {
  static const fake_metal::Control* control = [] {
    constexpr const char* kWanted = "fake Metal: METAL_LIBRARY=BUILD/.../libfake_metal.so, as ctest sets it";
    const std::string& file = env::METAL_LIBRARY.get();
    TG_CHECK(DeviceError, !file.empty(), "[test] got no METAL_LIBRARY, expected ", kWanted);
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    TG_CHECK(DeviceError, library, "[test] got METAL_LIBRARY=", file, ", expected ", kWanted, ": ", dlerror());
    using Get = const fake_metal::Control* (*)();
    const auto get = reinterpret_cast<Get>(dlsym(library, "fake_metal_control"));
    TG_CHECK(DeviceError, get, "[test] got METAL_LIBRARY=", file, ", which is Metal itself, expected ", kWanted);
    return get();
  }();
  return *control;
}

/// A case on fake Metal: commands are delayed at random, broken rules and objects that nobody releases fail it.
class FakeMetal : public ::testing::Test {
 protected:
  void SetUp() override {
    Device::get("METAL").wait();
    control.note_violations(true);
    control.take_violations();
    control.set_delay(300);
  }
  void TearDown() override {
    control.set_delay(0);
    EXPECT_STREQ(control.take_violations(), "");
    control.note_violations(false);
  }
  const fake_metal::Control& control = fake_metal_control();
};

}  // namespace tg::test
