/// \file The registry of renderers, one for each language.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "tinygrad/target/renderer.h"

namespace tg {

using RendererFactory = std::function<std::unique_ptr<Renderer>(const Target&)>;

/// Adds a renderer under the name that Target::renderer has for it, in upper case. A name that is taken already is a
/// DeviceError for whoever uses it.
void register_renderer(std::string name, RendererFactory make, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE());

/// Adds a renderer before main(), or when the shared object it is in is loaded:
/// `const RegisterRenderer registered{"TOY", [](const Target& t) { return std::make_unique<ToyRenderer>(t); }};`
struct RegisterRenderer {
  RegisterRenderer(std::string name, RendererFactory make, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
    register_renderer(std::move(name), std::move(make), file, line);
  }
};

/// Returns the renderer that `target.renderer` names ("LLVM", "CLANG"). Throws DeviceError that lists the known ones
/// for another name, or one that was registered twice.
std::unique_ptr<Renderer> make_renderer(const Target& target);

}  // namespace tg
