/// \file A schedule as data: each kernel is planned and rendered once more, with the account of its cost, then run.
#include "tinygrad/engine/inspect.h"

#include <limits>
#include <sstream>

#include "tinygrad/base/at.h"
#include "tinygrad/base/task_progress.h"
#include "tinygrad/base/text.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/kernel_timer.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/print.h"

namespace tg {
namespace {

/// Spells the loops of a kernel as the scheduler made them, outermost first.
std::string loops_text(UOp sink) {
  UOps ranges;
  for (UOp u : sink.toposort())
    if (u.is(Ops::RANGE)) ranges.push_back(u);
  std::string text;
  for (UOp r : loops_among(ranges))
    text += str(text.empty() ? "" : " x ", axis_type(r) == AxisType::kReduce ? "r" : "",
                r.src(0).is_const() ? str(static_cast<int64_t>(r.src(0).const_int())) : render_expr(r.src(0)));
  return text.empty() ? "1" : text;
}

/// Returns what the kernel stores, a line for each STORE.
std::string stores_of(UOp sink) {
  std::string text;
  for (UOp u : sink.toposort())
    if (u.is(Ops::STORE)) text += str(text.empty() ? "" : "\n", render_expr(u.src(0)), " = ", render_expr(u.src(1)));
  return text;
}

/// Plans and renders a kernel with the opts it runs with.
void describe(InspectedKernel& out, const Kernel& kernel, Device& device, const CompiledKernel& compiled,
              const InspectOptions& options) {
  const Target& target = device.target();
  CodegenOptions chosen = CodegenOptions::from_env();
  if (chosen.beam > 0) chosen.opts = compiled.program->applied_opts;
  chosen.account = true;
  const std::unique_ptr<Renderer> renderer = make_renderer(target);
  const auto program = to_program(kernel, *renderer, chosen);
  out.name = program->name;
  out.opts = program->applied_opts;
  out.plan = program->plan;
  out.estimates = program->estimates;
  out.target = target.key();
  {
    ArenaScope scope(*program->arena);
    out.program = print_linear(program->insts);
  }
  out.source = program->source;
  if (options.assembly && device.compiles() && !program->insts.empty())
    out.assembly = device.compiler(target).assembly(program->source);
}

InspectedKernel inspect_call(const Schedule& s, const ScheduleCall& call, const InspectOptions& options) {
  InspectedKernel out;
  out.device = at(s.buffers, call.buffers[0]).device;
  out.origin = call.metadata;
  out.buffers = call.buffers;
  if (call.kind != ScheduleCall::kKernel) {
    out.name = call.collective ? name_of(call.collective->what) : "copy";
    return out;
  }
  Device& device = Device::get(out.device);
  const Kernel& kernel = *call.kernel;
  const CompiledKernelRef compiled = compile_kernels({&call.kernel, 1}, device)[0];
  describe(out, kernel, device, *compiled, options);
  ArenaScope scope(*kernel.arena);
  out.loops = loops_text(kernel.sink);
  out.stores = stores_of(kernel.sink);
  if (options.measure && device.executes())
    out.seconds = Trial(kernel.sink, device).time(*compiled, std::numeric_limits<double>::infinity());
  return out;
}

}  // namespace

Inspection inspect(const Schedule& s, const InspectOptions& options) {
  Inspection out;
  out.buffers = s.buffers;
  out.memory = s.memory();
  TaskProgress progress("inspecting", static_cast<int64_t>(s.calls.size()));
  for (const ScheduleCall& call : s.calls) {
    out.kernels.push_back(inspect_call(s, call, options));
    progress.advance();
  }
  return out;
}

}  // namespace tg
