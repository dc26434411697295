/// \file The registry of device kinds. A backend, inside or outside of the library, is a class derived from Device and
/// one entry here; see docs/new_backend.md.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/device.h"

namespace tg {

/// A kind of device: how it is called, opened and described.
struct DeviceKind {
  std::string name;  ///< "CPU"; letters, digits and '_', case does not matter
  /// Opens the device of a canonical name ("CPU", "CPU:1"). Throws DeviceError when it cannot be opened. Empty: this
  /// build has none of the kind.
  std::function<std::unique_ptr<Device>(const std::string& name)> open;
  /// Describes what was found, as `tg devices` prints it, without opening it. Throws DeviceError that says what is
  /// missing.
  std::function<std::string()> describe;
  /// How to install what is missing, one line: "apt install pocl-opencl-icd".
  std::string install{};
  std::vector<std::string> aliases{};  ///< other names
  /// Place in lists, and among those that "GPU" may mean. CPU has 0, GPUs of the library 100 to 199, storage and
  /// devices for tests 900 and more.
  int order = 500;
  bool gpu = false;  ///< "GPU" names the first such kind that is available
  /// Returns why "GPU" does not mean what was found, as a processor that a GPU's language is compiled for; empty text
  /// when it does. Empty: it always does.
  std::function<std::string()> no_gpu{};
  bool takes_path = false;  ///< a path follows the colon, not an index
  /// DEV may name a renderer and an architecture behind the name of the device, for which it asks dev_setting; a device
  /// without such a choice is not opened when DEV names one.
  bool has_settings = false;
};

/// Adds a kind of device. A name or alias that is taken already is a DeviceError for whoever uses it, which names both
/// places.
void register_device(DeviceKind kind, const char* file = __builtin_FILE(), int line = __builtin_LINE());

/// Adds a kind of device before main(), or when the shared object it is in is loaded (which has to stay loaded):
/// `const RegisterDevice registered{{.name = "TOY", .open = ..., .describe = ...}};`
struct RegisterDevice {
  explicit RegisterDevice(DeviceKind kind, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    register_device(std::move(kind), file, line);
  }
};

/// Returns the entry of DEV for a kind of device, with empty renderer and arch when DEV does not mention it.
DeviceSpec dev_setting(const std::string& kind);

}  // namespace tg
