/// \file The languages of devices, those of the library among them.
#include "tinygrad/runtime/language_registry.h"

#include <mutex>

#include "tinygrad/base/error.h"
#include "tinygrad/base/registry.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"

namespace tg {
namespace {
Registry<DeviceLanguage>& registry() {
  static auto* instance = new Registry<DeviceLanguage>;
  return *instance;
}
void register_builtin_languages() {
  register_language({"CUDA", "CUDA", make_nvrtc_compiler});
  register_language({"CUDA", "PTX", make_ptx_compiler});
  register_language({"AMD", "HIP", make_amdgpu_object_compiler});
}
}  // namespace

void register_language(DeviceLanguage language, const char* file, int line) {
  std::string name = language.device + ":" + language.renderer;
  registry().add(std::move(name), 0, std::move(language), file, line);
}

std::unique_ptr<Compiler> make_language_compiler(const std::string& device, const Target& target) {
  static std::once_flag once;
  std::call_once(once, register_builtin_languages);
  if (const auto* entry = registry().find(device + ":" + target.renderer)) return entry->value.compiler(target);
  std::string known;
  for (const auto* e : registry().all())
    if (e->value.device == device) known += (known.empty() ? "" : ", ") + e->value.renderer;
  throw DeviceError(str("[DEV] ", device, " has no renderer '", target.renderer, "', expected one of ", known));
}

}  // namespace tg
