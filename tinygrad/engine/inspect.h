/// \file What a schedule computes and how, as data: buffers with the reason they exist, kernels with their plan,
/// source, machine code and time. For tests and notebooks; `tg explain` prints it.
#pragma once
#include <string>
#include <vector>

#include "tinygrad/schedule/schedule.h"

namespace tg {

/// What to find out of each kernel, besides its plan and source.
struct InspectOptions {
  bool measure = true;    ///< runs it on memory of its own; nothing of the caller's is read or written
  bool assembly = false;  ///< compiles it once more for a listing
};

/// A step of a schedule.
struct InspectedKernel {
  std::string name;              ///< of the function; "copy" for a copy between devices, of which the rest is empty
  std::string device;            ///< where it runs
  std::string origin;            ///< the tensor methods it was made for
  std::vector<int32_t> buffers;  ///< Inspection::buffers by parameter, the written one first
  std::string loops;             ///< of the kernel as scheduled, outermost first: "64 x 64 x r32", r: sums
  std::string stores;            ///< what it stores, as an expression of its loops: "p0[r0] = p1[r0] + 1"
  Opts opts;                     ///< chosen for it
  PlanSummary plan;              ///< who chose them, and the predicted cycles
  Estimates estimates;           ///< operations and bytes of one launch
  std::string target;            ///< Target::key of the processor it is compiled for
  std::string program;           ///< its instructions, one a line
  std::string source;            ///< in the language of the renderer
  std::string assembly{};        ///< empty unless asked for, and where the compiler has none
  double seconds = 0;            ///< the shortest of several launches; 0: it was not run
};

struct Inspection {
  std::string graph;                     ///< the tensor expression, a node a line
  std::vector<ScheduleBuffer> buffers;   ///< inputs first; of a stored value why it is stored
  std::vector<InspectedKernel> kernels;  ///< in the order they run
  MemoryNeeds memory;                    ///< bytes in addition to the inputs
};

/// Calls f(name, value) for what is known of a buffer, in the order in which JSON and Python have it. Values are texts,
/// numbers, and lists of these.
template <class F> void each_field(const ScheduleBuffer& b, F&& f) {
  static constexpr const char* kKinds[] = {"input", "result", "stored"};
  f("kind", kKinds[b.kind]);
  f("dtype", b.dtype.name());
  f("elements", b.size);
  f("device", b.device);
  f("why", b.why);
  f("instead", b.instead);
}
/// The same of a kernel; the terms of its account are CostAccount::Parts.
template <class F> void each_field(const InspectedKernel& k, F&& f) {
  std::vector<std::string> opts;
  for (const Opt& o : k.opts) opts.push_back(to_text({o}));
  f("name", k.name);
  f("device", k.device);
  f("origin", k.origin);
  f("buffers", k.buffers);
  f("loops", k.loops);
  f("stores", k.stores);
  f("variant", k.plan.variant);
  f("form", k.plan.form);
  f("opts", opts);
  f("cycles", k.plan.cycles);
  f("together", k.plan.account.together);
  f("besides", k.plan.account.besides);
  f("factor", k.plan.account.factor);
  f("operations", k.estimates.ops);
  f("bytes", k.estimates.mem);
  f("seconds", k.seconds);
  f("target", k.target);
  f("program", k.program);
  f("source", k.source);
  f("assembly", k.assembly);
}

/// Compiles the kernels of a schedule, runs them where that is asked for and possible, and says what became of them.
/// Throws what compiling throws: CompileError, DeviceError.
Inspection inspect(const Schedule& s, const InspectOptions& options = {});

/// Rates that kernels are compared with; 0: not known.
struct Roofline {
  double operations = 0;  ///< a second, in float32
  double bytes = 0;       ///< a second, from and to memory
  double cache = 0;       ///< bytes that stay in caches between two launches: they are not read from memory
};

/// Formats an inspection for people: graph, stored values with reasons, each kernel with its plan, where the predicted
/// cycles go and what limits it, and, where that is wanted, its source and machine code.
std::string explain(const Inspection& inspection, const Roofline& roofline = {}, bool source = false);

}  // namespace tg
