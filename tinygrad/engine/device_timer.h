/// \file The time that commands of a device take.
#pragma once
#include <cstdint>

#include "tinygrad/runtime/device.h"

namespace tg {

/// A stretch of time on the clock of profile::now(), nanoseconds.
struct TimeSpan {
  int64_t begin = 0, end = 0;
};

/// Times what is enqueued on Device::queue() between the constructor and stop(), by the clock of the device where it
/// has one.
class DeviceTimer {
 public:
  explicit DeviceTimer(Device& device);
  /// Waits for the commands. Throws DeviceError when one failed.
  TimeSpan stop();

 private:
  Device& device_;
  EventRef begin_event_;  // empty on synchronous devices
  int64_t begin_;
};

}  // namespace tg
