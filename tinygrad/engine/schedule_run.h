/// \file Running a schedule: compile everything, allocate everything, then launch.
#pragma once
#include <memory>

#include "tinygrad/engine/launch_list.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/schedule/schedule.h"

namespace tg {

/// A schedule bound to memory. Holds the buffers, so it may run after the graph's lock has been released.
class ScheduleRun {
 public:
  /// Under a GraphScope: finds the buffers of the inputs and makes those of the results, which are attached to their
  /// BUFFER nodes.
  explicit ScheduleRun(const BoundSchedule& bound);
  /// Only makes every kernel ready: codegen, compiler, loader. Throws CompileError.
  void compile();
  /// Compiles, allocates, launches. CompileError and OutOfMemoryError come before the first launch, Cancelled before
  /// the first launch that writes to storage that was there before.
  void run();

 private:
  void run_calls();
  void allocate();
  LaunchList launch_list(const std::vector<CompiledKernelRef>& kernels) const;
  void note_writes(const LaunchList& list) const;
  void record(const std::vector<CompiledKernelRef>& kernels, std::vector<bool> blank) const;

  std::shared_ptr<const Schedule> schedule_;
  std::vector<BufferRef> buffers_;  // by Schedule::buffers; internal ones are made by run()
  std::vector<std::pair<std::string, int64_t>> vars_;
};

/// Runs a schedule for callers that hold everything themselves.
void run_schedule(const BoundSchedule& bound);

}  // namespace tg
