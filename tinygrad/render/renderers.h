/// \file The list of renderers: one line per language.
#pragma once
#include <memory>

#include "tinygrad/target/renderer.h"

namespace tg {

/// The renderer `target.renderer` names ("LLVM", "CLANG"). DeviceError that lists the known ones otherwise.
std::unique_ptr<Renderer> make_renderer(const Target& target);

}  // namespace tg
