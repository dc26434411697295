/// \file What cases need to know of the device that they run on.
#pragma once
#include "tinygrad/base/error.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/target/device_traits.h"

namespace tg {

/// Whether BEAM searches for the kernels of the default device.
inline bool searches_kernels() {
  Device& d = Device::get();
  return d.compiles() && d.executes() && !make_renderer(d.target())->has_locals();
}

/// Whether kernels are interpreted, some hundred times slower than machine code.
inline bool interprets_kernels() {
  Device& d = Device::get();
  return d.kind() == "INTERP" || d.kind() == "SIM" || d.target().renderer == "METAL_FAKE";
}

/// Whether users may write its kernels in C.
inline bool takes_kernels_in_c() {
  Device& d = Device::get();
  try {
    return d.compiles() && &d.source_compiler(d.target()) != nullptr;
  } catch (const DeviceError&) { return false; }
}

/// Whether a kernel may compute reduces over a row and what reads them.
inline bool has_row_kernels() { return device_traits(Device::get().kind()).row_kernels; }

}  // namespace tg
