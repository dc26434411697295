/// \file Shared objects that register devices and renderers.
#pragma once
#include <string>

namespace tg {

/// Loads a shared object whose static objects are RegisterDevice and RegisterRenderer; it stays loaded. Its symbols are
/// those of the module or program that the library is part of, which exports them. Throws DeviceError with the message
/// of the dynamic linker.
void load_backend(const std::string& path);

}  // namespace tg
