/// \file What cases need that compute on several devices of the default kind.
#pragma once
#include <string>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/device.h"

namespace tg {

/// Returns why `n` devices of the default kind cannot be opened, as where a machine has one GPU; empty when they can.
inline std::string several_devices_missing(int n) {
  try {
    for (int i = 1; i < n; i++) Device::get(Device::default_name() + ":" + std::to_string(i));
    return "";
  } catch (const DeviceError& e) { return e.what(); }
}

}  // namespace tg
