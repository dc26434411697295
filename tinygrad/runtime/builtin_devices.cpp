/// \file The list of the library's devices: one line per device.
#include "tinygrad/runtime/builtin_devices.h"

#include "tinygrad/base/error.h"

namespace tg {
namespace {
/// Returns a kind whose name is known, while this build has no runtime for it.
DeviceKind absent(const char* name, const char* runtime, int order, std::vector<std::string> aliases) {
  return {.name = name,
          .open = {},
          .describe = [runtime]() -> std::string { throw DeviceError(str("this build has no ", runtime, " runtime")); },
          .aliases = std::move(aliases),
          .order = order,
          .gpu = true};
}
}  // namespace

void register_builtin_devices() {
  register_device(cpu_kind());
  register_device(cuda_kind());
  register_device(amd_kind());
  register_device(absent("METAL", "Metal", 120, {}));
  register_device(opencl_kind());
  register_device(webgpu_kind());
  register_device(null_kind());
  register_device(interp_kind());
  register_device(disk_kind());
}

}  // namespace tg
