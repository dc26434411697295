/// \file BEAM: a search for the OptOps of a kernel by measurement. See docs/kernels.md.
#pragma once
#include <optional>
#include <vector>

#include "tinygrad/codegen/codegen.h"
#include "tinygrad/runtime/device.h"

namespace tg {

/// The OptOps of a kernel under options.beam: as stored by an earlier search, else found by one. Empty where the
/// heuristic's kernel is the best that was found, and where no search is made: BEAM=0, devices that do not compile or
/// run kernels, kernels whose author chose, kernels that can't run on made-up numbers. Searches of a process run one
/// after another. Throws Cancelled when a stop was requested, and nothing is stored then.
std::optional<Opts> beam_opts(const Kernel& kernel, Device& device, const Renderer& renderer,
                              const CodegenOptions& options);

/// Adds the settings that a search depends on to a cache key.
void add_beam_settings(Hash128& h, const CodegenOptions& options);

/// Searches this process has made, and candidates they compiled.
struct BeamCounters {
  int64_t searches = 0, compiled = 0, dropped = 0;
};
BeamCounters beam_counters();
/// Forgets what this process found; the disk keeps it.
void clear_beam_cache();

}  // namespace tg
