/// \file Opens the WebGPU library and asks for its adapter.
#include "tinygrad/runtime/webgpu_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <type_traits>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg::webgpu {
namespace {
namespace fs = std::filesystem;
constexpr uint32_t kOldest = 29;  ///< version of wgpu-native with the structures declared here
#ifdef __APPLE__
constexpr const char* kEnding = ".dylib";
#else
constexpr const char* kEnding = ".so";
#endif

/// Appends the files of a folder that are called as the library is, in order.
void add_libraries_of(const fs::path& folder, std::vector<std::string>& out) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool named = name.starts_with("libwgpu_native") || name.starts_with("libwebgpu_dawn");
    if (named && entry.path().extension() == kEnding) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  out.insert(out.end(), found.begin(), found.end());
}

/// Appends what the wheel "wgpu" has installed into a Python environment.
void add_libraries_of_environment(const fs::path& root, std::vector<std::string>& out) {
  std::error_code ignored;
  for (const fs::directory_entry& python : fs::directory_iterator(root / "lib", ignored))
    if (python.path().filename().string().starts_with("python"))
      add_libraries_of(python.path() / "site-packages/wgpu/resources", out);
}

/// What a call that answers by a callback has answered.
struct Answer {
  bool given = false;
  uint32_t status = 0;
  Handle result = nullptr;
  std::string message;
};
void answer(uint32_t status, Handle result, Text message, void* to, void*) {
  *static_cast<Answer*>(to) = {true, status, result, to_string(message)};
}
}  // namespace

std::string to_string(Text t) {
  if (!t.data) return "";
  return {t.data, t.length == SIZE_MAX ? std::strlen(t.data) : t.length};
}

std::vector<std::string> library_files() {
  std::vector<std::string> files;
  std::error_code ignored;
  if (const std::string& given = env::WEBGPU_PATH.get(); !given.empty()) {
    if (fs::is_directory(given, ignored)) add_libraries_of(given, files);
    else files.push_back(given);
    return files;
  }
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&library_files), &here) && here.dli_fname)
    add_libraries_of(fs::path(here.dli_fname).parent_path().parent_path() / "wgpu/resources", files);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* root = std::getenv(name)) add_libraries_of_environment(root, files);
  for (const char* name : {"libwgpu_native", "libwebgpu_dawn"}) files.push_back(str(name, kEnding));
  return files;
}

Functions open_library(const std::vector<std::string>& files) {
  Functions f;
  void* object = nullptr;
  for (const std::string& file : files) {
    if (object) break;
    object = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: it keeps threads
    f.file = file;
  }
  TG_CHECK(DeviceError, object, "[webgpu] found no ", files.empty() ? "library in WEBGPU_PATH" : files.front(),
           ", the WebGPU library: WEBGPU_PATH names its file or folder (pip install wgpu)");
  auto find = [&](const char* name, auto* to, bool needed) {
    *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(dlsym(object, name));
    TG_CHECK(DeviceError, *to || !needed, "[webgpu] ", f.file, " has no function ", name);
  };
#define TG_WEBGPU_FIND(name, type) find("wgpu" #name, &f.name, true);
  TG_WEBGPU_FUNCTIONS(TG_WEBGPU_FIND)
#undef TG_WEBGPU_FIND
  find("wgpuDevicePoll", &f.DevicePoll, false);
  find("wgpuGetVersion", &f.GetVersion, false);
  const uint32_t version = f.GetVersion ? f.GetVersion() >> 24 : kOldest;
  TG_CHECK(DeviceError, version >= kOldest, "[webgpu] ", f.file, " is wgpu-native ", version, ", expected ", kOldest,
           " or newer (pip install -U wgpu)");
  find("wgpuQueueGetTimestampPeriod", &f.QueueGetTimestampPeriod, false);
  return f;
}

const Functions& library() {
  static const auto* functions = new Functions(open_library(library_files()));
  return *functions;
}

Adapter find_adapter() {
  const Functions& f = library();
  InstanceExtras extras;
  extras.backends = kPrimaryBackends;
  InstanceDescriptor descriptor;
  if (f.GetVersion) descriptor.next = &extras.chain;
  Adapter a;
  a.instance = f.CreateInstance(&descriptor);
  TG_CHECK(DeviceError, a.instance, "[webgpu] ", f.file, " gives no instance");
  AdapterOptions options;
  options.power = kHighPerformance;
  Answer got;
  Callback<ResultFunction> callback;
  callback.function = answer;
  callback.first = &got;
  f.InstanceRequestAdapter(a.instance, &options, callback);
  while (!got.given) f.InstanceProcessEvents(a.instance);
  if (got.status != kSuccess || !got.result) {
    f.InstanceRelease(a.instance);
    throw DeviceError(str("[webgpu] the library found no driver with an adapter: ", got.message));
  }
  a.handle = got.result;
  AdapterInfo info;
  f.AdapterGetInfo(a.handle, &info);
  a.name = to_string(info.device);
  a.driver = to_string(info.description);
  a.processor = info.type == kCpuAdapter;
  f.AdapterInfoFreeMembers(info);
  f.AdapterGetLimits(a.handle, &a.limits);
  a.timestamps = f.AdapterHasFeature(a.handle, kTimestampQuery) != 0;
  return a;
}

void release(const Adapter& adapter) {
  library().AdapterRelease(adapter.handle);
  library().InstanceRelease(adapter.instance);
}

}  // namespace tg::webgpu
