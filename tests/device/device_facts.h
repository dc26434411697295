/// \file What cases need to know of the device that they run on.
#pragma once
#include <gtest/gtest.h>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/render/wgsl/wgsl.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/target/device_traits.h"

namespace tg {

/// Whether BEAM searches for the kernels of the default device.
inline bool searches_kernels() {
  Device& d = Device::get();
  return d.compiles() && d.executes();
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
    if (d.compiles()) d.source_compiler(d.target());
    return d.compiles();
  } catch (const DeviceError&) { return false; }
}

/// Whether kernels compute in a type, or emulate it: all but float64 have an emulation.
inline bool has_type(DType d) {
  Device& device = Device::get();
  return d != dtypes::float64 || !device.compiles() || make_renderer(device.target())->supports(d);
}

/// Leaves a case that computes in a type which the device has not.
#define TG_NEEDS_TYPE(d) \
  if (!has_type(d)) GTEST_SKIP() << "kernels of " << Device::get().kind() << " do not compute in " << (d)

/// Leaves a case whose next steps depend on what kernels computed.
#define TG_NEEDS_VALUES() \
  if (!Device::get().executes()) GTEST_SKIP() << Device::get().kind() << " computes no values"

/// Whether kernels, bytes and operations are those of a whole graph in buffers: not one by one, and without the copies
/// that textures take (IMAGE=1).
inline bool counts_whole_graphs() { return !env::EAGER && env::IMAGE.get() != 1; }

/// Whether a sum is split until all threads of the device are busy, so that short results take a kernel more.
inline bool splits_sums_for_threads() { return device_traits(Device::get().name()).busy_threads > 0; }

/// Whether kernels keep float32 below 2^-126.
inline bool has_denormals() {
  Device& device = Device::get();
  return !device.compiles() || make_renderer(device.target())->has_denormals();
}

/// Returns the iterations of loops that a thread may have.
inline int64_t most_iterations() { return Device::get().target().has(kBoundedLoops) ? kMostIterations : INT64_MAX; }

/// Leaves a case with a kernel of more iterations than a thread of the device may have.
#define TG_NEEDS_ITERATIONS(n)                                                              \
  if (most_iterations() < (n))                                                              \
  GTEST_SKIP() << "loops of " << Device::get().kind() << " end after " << most_iterations() \
               << " iterations, this takes " << (n)

/// Whether a kernel may compute reduces over a row and what reads them, with a thread or a group of threads a row.
inline bool has_row_kernels() { return device_traits(Device::get().kind()).row_kernels; }
inline bool has_row_groups() { return device_traits(Device::get().kind()).row_groups; }

}  // namespace tg
