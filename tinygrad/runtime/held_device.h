/// \file Devices that are held by who uses them: those of files, which may be very many.
#pragma once
#include <memory>
#include <string_view>

#include "tinygrad/runtime/device.h"

namespace tg {

/// Returns what Device::get() does, and holds it. Devices that compute stay until the process ends; one of a file
/// (DISK) stays while it is held, by buffers as well. Device::get() holds the latest one that a thread has asked for.
std::shared_ptr<Device> hold_device(std::string_view name = {});

}  // namespace tg
