/// \file Running a launch again on the interpreter and comparing the results.
#include "tinygrad/engine/validate.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/engine/kernel_timer.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/engine/schedule_run.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/custom.h"
#include "tinygrad/uop/facts.h"

namespace tg {
namespace {
std::mutex& mutex() {  // programs are shared, and walking their graphs marks nodes
  static auto* m = new std::mutex;
  return *m;
}

/// Returns the kernel compiled for the interpreter without OptOps, so that the optimisations are checked, too.
CompiledKernelRef reference_of(const KernelRef& kernel) {
  const Context plain{{"NOOPT", 1}, {"BEAM", 0}, {"DEBUG", 0}, {"TRANSCENDENTAL", 1}, {"EMULATED_DTYPES", ""}};
  return compile_kernels({&kernel, 1}, Device::get("INTERP"))[0];
}

/// Returns the square root of the number of terms of the longest sum: with random signs, partial sums are larger than
/// their terms by that factor.
double partial_sums(UOp sink) {
  double most = 1;
  for (UOp u : sink.toposort()) {
    if (!u.is(Ops::REDUCE) || u.arg<ReduceArg>().op != Ops::ADD) continue;
    double n = 1;
    for (uint32_t i = range_start(u); i < u.nsrc(); i++)
      n *= static_cast<double>(std::max<int128>(1, vmax(u.src(i)) + 1));
    most = std::max(most, std::sqrt(n));
  }
  return most;
}
}  // namespace

std::optional<Validation> Validation::begin(const ScheduleCall& call, std::span<Buffer* const> buffers,
                                            std::span<const int64_t> vars) {
  if (!env::VALIDATE_WITH_CPU) return std::nullopt;
  if (!call.kernel || source_of(call.kernel->sink)) {
    env::not_honoured("VALIDATE_WITH_CPU",
                      "kernels of loaded functions and kernels in C are not checked: they have no UOps to interpret");
    return std::nullopt;
  }
  if (!buffers[0]->device().executes()) return std::nullopt;
  std::lock_guard lock(mutex());
  Validation v;
  try {
    v.reference_ = reference_of(call.kernel);
  } catch (const KernelOptError& e) {  // OptOps that its author chose for this device
    env::not_honoured("VALIDATE_WITH_CPU",
                      str("a kernel is not checked, since the interpreter cannot be given it: ", e.what()));
    return std::nullopt;
  }
  v.vars_.assign(vars.begin(), vars.end());
  for (Buffer* b : buffers) b->copy_out(v.memory_.emplace_back(static_cast<size_t>(b->nbytes())));
  return v;
}

void Validation::compare(const Program& launched, std::span<Buffer* const> buffers) {
  std::lock_guard lock(mutex());
  const Program& p = *reference_->program;
  double magnitude = 0;
  for (size_t i = 0; i < buffers.size(); i++)
    if (p.reads[i])
      magnitude = std::max(magnitude, mean_magnitude(buffers[i]->dtype(), memory_[i].data(), buffers[i]->size()));
  std::vector<void*> handles;
  for (auto& m : memory_) handles.push_back(m.data());
  LaunchArgs args;
  args.buffers = handles.data();
  args.nbuffers = static_cast<int>(handles.size());
  args.vars = vars_.data();
  args.nvars = static_cast<int>(vars_.size());
  static_cast<LaunchSize&>(args) = launch_size_of(p, vars_);
  reference_->executable->launch(args);

  double tolerance = 0;
  {
    ArenaScope scope(*p.arena);
    tolerance = 4 * result_tolerance(p.ast);
    magnitude = std::max(magnitude, magnitude * magnitude) * partial_sums(p.ast);
  }
  std::vector<std::byte> got;
  for (size_t i = 0; i < buffers.size(); i++) {
    if (!p.writes[i]) continue;
    Buffer& b = *buffers[i];
    got.resize(static_cast<size_t>(b.nbytes()));
    b.copy_out(got);
    const std::string difference =
        first_difference(b.dtype(), memory_[i].data(), got.data(), b.size(), tolerance, magnitude);
    if (!difference.empty())
      throw InternalError(str("[VALIDATE_WITH_CPU] kernel ", launched.name, " on ", b.device_name(),
                              " differs from the interpreter in buffer ", i, " (", b.dtype(), ", ", b.size(),
                              " elements): ", difference));
  }
}

}  // namespace tg
