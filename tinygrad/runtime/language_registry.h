/// \file The registry of languages that kinds of devices run kernels in.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// A language of a kind of device, which DEV names behind the kind: "CUDA:PTX".
struct DeviceLanguage {
  std::string device;    ///< the kind
  std::string renderer;  ///< the renderer that prints it
  /// Makes the compiler for a target of the device whose renderer is this one.
  std::function<std::unique_ptr<Compiler>(const Target&)> compiler;
};

/// Adds a language. One that is there already is a DeviceError for whoever uses it.
void register_language(DeviceLanguage language, const char* file = __builtin_FILE(), int line = __builtin_LINE());

/// Adds a language before main(), or when the shared object it is in is loaded.
struct RegisterLanguage {
  explicit RegisterLanguage(DeviceLanguage language, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    register_language(std::move(language), file, line);
  }
};

/// Returns a new compiler for a target. Throws DeviceError that lists the languages of the device where it has no such
/// renderer.
std::unique_ptr<Compiler> make_language_compiler(const std::string& device, const Target& target);

}  // namespace tg
