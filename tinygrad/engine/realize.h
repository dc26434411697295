/// \file Running a schedule: compile everything, allocate everything, then launch.
#pragma once
#include <memory>

#include "tinygrad/engine/compile.h"
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
  /// A launch or copy, ready: nothing is looked up, checked or allocated any more once the first one runs.
  struct Step {
    const CompiledKernel* kernel;  // null: a copy
    size_t handles, vars;          // where its arguments begin
    int64_t extent;
    std::vector<std::pair<BufferRef, BufferRef>> copies;  // made before: to, from
  };
  void allocate();
  void launch(const Step& step, const ScheduleCall& call);

  std::shared_ptr<const Schedule> schedule_;
  std::vector<BufferRef> buffers_;  // by Schedule::buffers; internal ones are made by run()
  std::vector<std::pair<std::string, int64_t>> vars_;
  std::vector<void*> handles_;
  std::vector<int64_t> values_;
};

/// ScheduleRun(bound).run() for callers that hold everything themselves.
void run_schedule(const BoundSchedule& bound);

}  // namespace tg
