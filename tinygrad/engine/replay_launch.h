/// \file One launch of a replay; for the files that make, run and store replays.
#pragma once
#include "tinygrad/engine/replay.h"

namespace tg {

/// One step. A host kernel without a THREAD range is called directly.
struct Replay::Launch {
  HostKernel host = nullptr;
  uint32_t handles = 0, vars = 0;
  int64_t extent = 1;
  CompiledKernelRef kernel;       // empty: a copy
  std::vector<uint32_t> buffers;  // merged numbers
  uint32_t nvars = 0;
  ScheduleCall call;   // for reports
  std::string device;  // of the kernel
};

}  // namespace tg
