/// \file What is known of a device before any kernel is compiled for it: what graphs are planned with.
#pragma once
#include <cstdint>
#include <string_view>

namespace tg {

/// Second level cache of one core, bytes, that fusions are planned for. The same on every machine, so that schedules,
/// their tests and saved kernels are: those of the machines at hand have 0.5 to 2 MiB.
constexpr int64_t kPlannedL2Bytes = 1 << 20;

/// How the kernels of a kind of device run, as far as it decides what one kernel is.
struct DeviceTraits {
  /// A thread walks whole rows, so that several reduces over a row and what reads them are one kernel. In a grid every
  /// element would compute them again.
  bool row_kernels = true;
  /// The threads of a group share a row and hold it in their registers, so such kernels are for any number of rows.
  bool row_groups = false;
  /// Kernels compute attention in blocks of scores (codegen/plan/attention_blocks.h); with `row_groups` for any numbers
  /// of rows and keys (codegen/plan/attention_groups.h).
  bool attention_kernels = false;
  /// Threads that keep all of its processors at work. Sums of few results are split until there are as many, and sums
  /// of products are accumulated in registers, never in memory. 0: as many as a processor has cores.
  int64_t busy_threads = 0;
  /// Matrix instructions read factors of 8 bits, and of 32 where they may round them, in rows along the sum only:
  /// those of large products are stored so.
  bool sum_rows = false;
  /// Buffers that a kernel can be called with, its results included.
  int64_t kernel_buffers = INT64_MAX;
  /// Where kernels read images: rows of one are multiples of so many pixels, and products and convolutions lay their
  /// operands out as such rows. 0: they read none.
  int64_t image_pitch = 0;
};
/// Threads of the GPUs that kernels are planned for: a hundred units with a thousand each.
constexpr int64_t kPlannedGpuThreads = 1 << 17;

/// Returns the traits of the kind of `device` ("CPU", "CPU:1"): the defaults where nobody has set others.
DeviceTraits device_traits(std::string_view device);
/// Sets the traits of a kind, when a device of it is opened. Schedules that were made before stay as they are.
void set_device_traits(std::string_view kind, DeviceTraits traits);

}  // namespace tg
