/// \file Metal: opening the libraries, strings and errors.
#include "tinygrad/runtime/metal_objc.h"

#include <dlfcn.h>

#include <type_traits>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {
constexpr const char* kRuntime = "/usr/lib/libobjc.A.dylib";
constexpr const char* kMetal = "/System/Library/Frameworks/Metal.framework/Metal";
/// Without it there is no default device in programs that show nothing.
constexpr const char* kGraphics = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics";

void* open_library(const std::string& file) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: drivers keep threads
  TG_CHECK(DeviceError, library, "[metal] found no ", file, ": METAL needs macOS");
  return library;
}

}  // namespace

MetalFunctions open_metal(const std::string& file) {
  const auto find = [](void* library, const std::string& name_of_file, const char* name, auto* to) {
    *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(dlsym(library, name));
    TG_CHECK(DeviceError, *to, "[metal] ", name_of_file, " has no function ", name);
  };
  const std::string runtime_file = file.empty() ? kRuntime : file, metal_file = file.empty() ? kMetal : file;
  MetalFunctions f;
  void* runtime = open_library(runtime_file);
  find(runtime, runtime_file, "objc_getClass", &f.get_class);
  find(runtime, runtime_file, "sel_registerName", &f.register_selector);
  find(runtime, runtime_file, "objc_msgSend", &f.send);
  find(runtime, runtime_file, "objc_retain", &f.retain);
  find(runtime, runtime_file, "objc_release", &f.release);
  find(runtime, runtime_file, "objc_autoreleasePoolPush", &f.push_pool);
  find(runtime, runtime_file, "objc_autoreleasePoolPop", &f.pop_pool);
  if (file.empty()) open_library(kGraphics);
  void* frameworks = open_library(metal_file);
  find(frameworks, metal_file, "MTLCreateSystemDefaultDevice", &f.default_device);
  find(frameworks, metal_file, "MTLCopyAllDevices", &f.all_devices);
  return f;
}

const MetalLibrary& metal() {
  static const auto* library = new MetalLibrary(open_metal(env::METAL_LIBRARY.get()));
  return *library;
}

ObjcId ns_string(const std::string& text) {
  const MetalLibrary& m = metal();
  return m.string_with(m.get_class("NSString"), text.c_str());
}

std::string text_of(ObjcId string) {
  const char* text = string ? metal().utf8(string) : nullptr;
  return text ? text : "";
}

std::string error_text_of(ObjcId error) { return error ? text_of(metal().description(error)) : "no reason was given"; }

ObjcRef new_object(const char* class_name) {
  const ObjcId of_class = metal().get_class(class_name);
  TG_CHECK(DeviceError, of_class, "[metal] found no class ", class_name);
  return ObjcRef::adopt(metal().create(of_class));
}

}  // namespace tg
