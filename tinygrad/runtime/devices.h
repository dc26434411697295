/// \file Functions by which the registry opens each kind of device. Included only by the registry and the devices.
#pragma once
#include <memory>
#include <string>

#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device.h"

namespace tg {

// Each throws DeviceError when the device cannot be opened. `name` is canonical.
std::unique_ptr<Device> open_cpu(const std::string& name);
std::unique_ptr<Device> open_null(const std::string& name);
std::unique_ptr<Device> open_interp(const std::string& name);
std::unique_ptr<Device> open_disk(const std::string& name);

// Descriptions of the devices, as `tg devices` prints them. Each throws DeviceError that says what is missing.
std::string describe_cpu();
std::string describe_null();
std::string describe_interp();
std::string describe_disk();

/// Returns the entry of DEV for a device, with empty renderer and arch when DEV does not mention it.
DeviceSpec dev_setting(const std::string& kind);

/// Host code targets under DEV and their compilers, created once each: shared by the devices that compile for the host.
class HostToolchain {
 public:
  /// `kind`: the device it is for. `runs`: code must run on this processor.
  HostToolchain(std::string kind, bool runs);
  ~HostToolchain();
  const Target& target();
  Compiler& compiler(const Target& target);
  /// Returns the compiler of kernels that users wrote in C.
  Compiler& source_compiler(Target target);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tg
