/// \file Opening NCCL.
#include "tinygrad/runtime/nccl_library.h"

#include <dlfcn.h>

#include <type_traits>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {
constexpr const char* kInstall =
    "to install: pip install nvidia-nccl-cu12 (or -cu13), or apt install libnccl2; NCCL_LIBRARY names its file";

std::string text_of_version(int v) { return str(v / 10000, ".", v / 100 % 100, ".", v % 100); }

NcclLibrary open_nccl() {
  const std::string asked = env::NCCL_LIBRARY.get(), file = asked.empty() ? "libnccl.so.2" : asked;
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it keeps threads
  TG_CHECK(DeviceError, library, "[NCCL] found no ", file, "; ", kInstall);
  const auto find = [&](const char* symbol, auto* to) {
    *to = reinterpret_cast<std::remove_reference_t<decltype(*to)>>(dlsym(library, symbol));
    TG_CHECK(DeviceError, *to, "[NCCL] ", file, " has no ", symbol, ", expected NCCL ", text_of_version(nccl::kOldest),
             " or newer; ", kInstall);
  };
  NcclLibrary out;
#define FUNCTION(name, parameters, names) find("nccl" #name, &out.f.name);
#include "tinygrad/runtime/nccl_functions.inc"
#undef FUNCTION
  find("ncclGetErrorString", &out.f.GetErrorString);
  find("ncclGetLastError", &out.f.GetLastError);
  const int error = out.f.GetVersion(&out.version);
  TG_CHECK(DeviceError, error == nccl::kSuccess && out.version >= nccl::kOldest, "[NCCL] got version ",
           text_of_version(out.version), " from ", file, ", expected ", text_of_version(nccl::kOldest), " or newer; ",
           kInstall);
  return out;
}
}  // namespace

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = open_nccl();
  return library;
}

std::string nccl_note() {
  try {
    return "NCCL " + text_of_version(nccl_library().version);
  } catch (const DeviceError& e) { return str("no NCCL for exchanges with other processes: ", e.what()); }
}

}  // namespace tg
