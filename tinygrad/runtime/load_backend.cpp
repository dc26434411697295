/// \file Loading of backends.
#include "tinygrad/runtime/load_backend.h"

#include <dlfcn.h>

#include "tinygrad/base/error.h"

namespace tg {

void load_backend(const std::string& path) {
  // A module that Python loads keeps its symbols to itself until they are asked for.
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&load_backend), &self) && self.dli_fname)
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) throw DeviceError(str("[load_backend] ", dlerror()));
}

}  // namespace tg
