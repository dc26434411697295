/// \file Compiles recorded sources with the compiler of the device they were made for.
#include "tinygrad/viz/assembly.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/device.h"

namespace tg::viz {

std::string assembly_of(const Recording& r, const Span& kernel) {
  const auto source = std::find_if(kernel.texts.begin(), kernel.texts.end(),
                                   [&](const Text& t) { return r.name(t.title) == "source"; });
  const std::string_view key = r.value(kernel, "target");
  TG_CHECK(ValueError, source != kernel.texts.end() && !key.empty(),
           "[viz] the recording has no source of this kernel");
  const std::string name(key.substr(0, key.find(':')));
  Device& device = Device::get(name);  // with the renderer that DEV names
  TG_CHECK(ValueError, device.target().key() == key, "[viz] the kernel was made for ", key, ", and ", name,
           " of this machine is ", device.target().key());
  TG_CHECK(ValueError, device.compiles(), "[viz] ", name, " runs its kernels without compiling them");
  return device.compiler().assembly(source->text);
}

}  // namespace tg::viz
