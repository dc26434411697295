/// \file What is known of a device before any kernel is compiled for it: what graphs are planned with.
#pragma once
#include <cstdint>
#include <string_view>

namespace tg {

/// Second level cache of one core, bytes, that fusions are planned for. The same on every machine, so that schedules,
/// their tests and saved kernels are: those of the machines at hand have 0.5 to 2 MiB.
constexpr int64_t kPlannedL2Bytes = 1 << 20;

/// Returns true for devices with kernels that compute attention in blocks of scores (codegen/plan/attention_blocks.h).
inline bool has_attention_kernels(std::string_view device) { return device.substr(0, device.find(':')) == "CPU"; }

}  // namespace tg
