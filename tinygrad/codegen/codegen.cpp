/// \file The pipeline of codegen: one table of passes, one loop that runs, times, prints and verifies them.
#include "tinygrad/codegen/codegen.h"

#include <chrono>
#include <sstream>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/contains.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"
#include "tinygrad/codegen/decomp/decomp.h"
#include "tinygrad/codegen/expand/access.h"
#include "tinygrad/codegen/expand/expand.h"
#include "tinygrad/codegen/expand/factor.h"
#include "tinygrad/codegen/expand/gpudims.h"
#include "tinygrad/codegen/expand/images.h"
#include "tinygrad/codegen/expand/prune_masked_tiles.h"
#include "tinygrad/codegen/linear/linearize.h"
#include "tinygrad/codegen/linear/prefetch.h"
#include "tinygrad/codegen/linear/program_info.h"
#include "tinygrad/codegen/opt/final_ranges.h"
#include "tinygrad/codegen/opt/fragments.h"
#include "tinygrad/codegen/opt/stage_operands.h"
#include "tinygrad/codegen/plan/plan.h"
#include "tinygrad/codegen/plan/reuse_values.h"
#include "tinygrad/codegen/ranges/gates.h"
#include "tinygrad/codegen/ranges/separate_reduces.h"
#include "tinygrad/codegen/ranges/shorten_reduces.h"
#include "tinygrad/codegen/ranges/simplify_ranges.h"
#include "tinygrad/codegen/scratch/lower_stage.h"
#include "tinygrad/schedule/custom.h"
#include "tinygrad/uop/loop_ranges.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/record_graph.h"
#include "tinygrad/uop/spec.h"
#include "tinygrad/uop/symbolic.h"
#include "tinygrad/uop/transcendental.h"

namespace tg {
namespace {
/// State shared by all passes over a kernel.
struct PassContext {
  const Renderer& renderer;
  const CodegenOptions& options;
  KernelContext names;
  std::optional<KernelPlan> plan{};  ///< what is chosen for the kernel
  std::optional<FinalRanges>
      ranges{};  ///< from "apply opts" to "substitute ranges": those of the axes that were chosen
};

/// When a pass runs, and what it leaves.
enum PassFlags : uint8_t {
  kAlways = 0,
  kUnlessNoopt = 1,     ///< not for kernels that are compiled without OptOps
  kUnlessByHand = 2,    ///< not for kernels whose author has ordered their loops
  kWithChosenAxes = 4,  ///< where OptOps were applied, values are spilled or there is a grid
  kLowered = 8,         ///< what it leaves is a program: the spec of kernels does not hold any more
  kLastKernel = 16      ///< what it leaves is the kernel that names, caches and tools see as the optimised one
};

/// A pass: a function of the SINK, or a table with the direction it is applied in.
struct Pass {
  const char* name;
  UOp (*run)(UOp sink, PassContext& c);
  const PatternMatcher<>& (*rules)() = nullptr;
  int flags = kAlways;
};

/// Copies a kernel into the current graph. Only reads the nodes of `root`, so that several threads may compile kernels
/// of one arena.
UOp import_kernel(UOp root) {
  UOps memo, src;
  auto at = [&](UOp u) -> UOp& {
    if (u.id() >= memo.size()) memo.resize(u.id() + u.id() / 2 + 64);
    return memo[u.id()];
  };
  walk(
      root, [&](UOp u) { return bool(at(u)); },
      [&](UOp u) {
        src.clear();
        for (UOp s : u.srcs()) src.push_back(at(s));
        at(u) = UOp::make(u.op(), u.dtype(), src, u.arg(), u.tag());
      });
  return at(root);
}

UOp lanes_pass(UOp sink, PassContext&) {
  return rebuild(sink, [](UOp u) {
    return u.is(Ops::INDEX) && lane_of(u.src(1))
               ? UOp::make(Ops::INDEX, u.dtype(), {u.src(0), canonical_lanes(u.src(1))})
               : u;
  });
}

/// The lanes of kernels whose authors have ordered their loops become a loop around each store where there are no
/// vectors.
UOp scalar_lanes_pass(UOp sink, PassContext& c) {
  if (c.renderer.max_lanes(dtypes::uint8) > 1) return sink;
  UOps loops;
  return rebuild(sink, [&](UOp u) {
    if (is_lane(u)) {
      RangeArg arg = u.arg<RangeArg>();
      arg.type = AxisType::kLoop;
      loops.push_back(u.with_arg(Arg(arg)));
      return loops.back();
    }
    UOp out = u;
    if (u.is(Ops::STORE))
      for (UOp r : UOps(ranges_of(u)))
        if (contains(loops, r)) out = out.end(UOps{r});
    return out;
  });
}

/// Runs first, so that it sees what the scheduler has seen.
UOp attention_pass(UOp sink, PassContext& c) {
  c.plan = plan_scheduled(sink, c.renderer, c.options, c.names);
  return c.plan ? c.plan->ast : sink;
}

void record_plan(const KernelPlan& plan) {
  const recording::Span span("plan", plan.variant);
  span.value("form", plan.form);
  span.value("opts", to_text(plan.opts));
  span.value("predicted cycles", str(plan.cycles));
}

UOp plan_pass(UOp sink, PassContext& c) {
  if (c.plan) c.plan->ast = sink;  // as planned, after algebra
  else c.plan = plan_kernel(sink, c.renderer, c.options, c.names);
  if (env::DEBUG.get() >= 5) note_lines(str("--- plan: ", *c.plan));
  if (recording::on()) record_plan(*c.plan);
  return c.plan->ast;
}

/// Leaves the ranges of the kernel as they are: the following passes bring the chosen ones in.
UOp opts_pass(UOp sink, PassContext& c) {
  const std::optional<KernelAxes> kernel = apply_plan(*c.plan, c.renderer);
  if (!kernel) return sink;
  c.ranges.emplace(*kernel, c.names);
  KernelInfo info = kernel->sink().arg<KernelInfo>();
  info.applied_opts = kernel->applied();
  return kernel->sink().with_arg(Arg(info));
}

/// Reduce loops that walked an operand apart walk its panel as one; tiles share their barriers.
UOp join_panels(UOp sink, PassContext& c) {
  const bool staged = !c.ranges->kernel().stages().empty();
  if (!staged) return sink;
  return c.renderer.has_locals() ? join_barriers(sink) : merge_ranges(sink);
}

OpSet ops_to_use(const PassContext& c) {
  OpSet ops = c.renderer.ops();
  return c.options.transcendental >= 2 ? ops.without(kTranscendental) : ops;
}

/// Follows "symbolic", which makes literals of what divisors are computed from.
UOp reciprocals_pass(UOp sink, PassContext& c) {
  return c.options.reciprocal_division
             ? graph_rewrite(sink, pm_reciprocal_division(), {.name = "divide by reciprocals"})
             : sink;
}

UOp prune_pass(UOp sink, PassContext& c) { return c.renderer.has_locals() ? sink : prune_masked_tiles(sink); }

UOp images_pass(UOp sink, PassContext& c) {
  const ImageLimits& images = c.renderer.target().images;
  return images.width ? use_images(sink, images) : sink;
}

UOp lower_pass(UOp sink, PassContext& c) {
  return lower_to_target(sink, c.renderer, ops_to_use(c), c.options.emulated);
}

const std::vector<Pass>& passes() {
  using C = PassContext&;
  constexpr int kAxes = kUnlessByHand | kWithChosenAxes;
  // clang-format off
  static const std::vector<Pass> table{
      {"scalar lanes", scalar_lanes_pass},
      {"attention", attention_pass, nullptr, kUnlessByHand},
      {"symbolic", nullptr, sym},
      {"divide by reciprocals", reciprocals_pass},
      {"plan", plan_pass, nullptr, kUnlessByHand},
      {"apply opts", opts_pass, nullptr, kUnlessByHand},
      {"stage operands", [](UOp s, C c) { return stage_operands(s, *c.ranges); }, nullptr, kAxes},
      {"guard padding", [](UOp s, C c) { return guard_padding(s, *c.ranges); }, nullptr, kAxes},
      {"accumulate blocks", [](UOp s, C c) { return accumulate_blocks(s, *c.ranges); }, nullptr, kAxes},
      {"place reused values", [](UOp s, C c) { return place_reused_values(s, *c.ranges); }, nullptr, kAxes},
      {"substitute ranges", [](UOp s, C c) { return substitute_ranges(s, *c.ranges); }, nullptr, kAxes},
      {"distribute fragments", [](UOp s, C c) { return distribute_fragments(s, *c.ranges, c.names); }, nullptr, kAxes},
      {"lower stages", [](UOp s, C c) { return lower_stages(s, c.names, c.renderer.target()); }, nullptr, kAxes},
      {"join panels", join_panels, nullptr, kAxes},
      {"shorten reduces", [](UOp s, C) { return shorten_reduces(s); }, nullptr, kAxes},
      {"hoist factors", [](UOp s, C) { return factor_reduces(s); }, nullptr, kUnlessByHand},
      {"symbolic after opts", nullptr, sym},
      {"grid indices", [](UOp s, C c) { return add_grid(s, c.renderer.target(), c.names); }, nullptr, kUnlessByHand},
      {"move gates to memory ops", [](UOp s, C) { return move_gates(s); }, nullptr, kLastKernel},
      {"separate reduces", [](UOp s, C c) { return separate_reduces(s, c.names); }, nullptr, kUnlessByHand},
      {"prune masked tiles", prune_pass, nullptr, kUnlessNoopt | kUnlessByHand},
      {"expand", [](UOp s, C c) { return expand(s, c.renderer); }, nullptr, kUnlessByHand},
      {"prefetch", [](UOp s, C c) { return add_prefetches(s, c.renderer); }, nullptr, kUnlessByHand},
      {"late symbolic", nullptr, pm_expanded},
      {"use images", images_pass, nullptr, kUnlessByHand},
      {"lower to target", lower_pass, nullptr, kLowered},
      {"canonical lane indices", lanes_pass, nullptr, kLowered},
  };
  // clang-format on
  return table;
}

/// A user's name for a kernel as a name in C: other characters become their code.
std::string function_name(const std::string& name) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : name) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_') out += c;
    else {
      out += kHex[static_cast<uint8_t>(c) >> 4];
      out += kHex[c & 15];
    }
  }
  return out.empty() || (out[0] >= '0' && out[0] <= '9') ? "k_" + out : out;
}

void print_graph(const char* title, const UOps& nodes, double ms) {
  std::ostringstream text;
  text << "--- " << title << ": " << nodes.size() << " nodes, " << ms << " ms\n";
  for (UOp u : nodes) text << "  %" << u.id() << " = " << u << '\n';
  note_lines(text.str());
}
}  // namespace

CodegenOptions CodegenOptions::from_env() {
  CodegenOptions o;
  o.noopt = env::NOOPT.get() != 0;
  o.beam = static_cast<int>(env::BEAM.get());
  o.tensor_cores = env::TC.get() == 0 ? 0 : env::ROUND_PRODUCTS ? 1 : env::ALLOW_TF32 ? 3 : 2;
  o.tensor_core = static_cast<int>(env::TC_SELECT.get());
  o.no_locals = env::NOLOCALS.get() != 0;
  o.transcendental = static_cast<int>(env::TRANSCENDENTAL.get());
  o.reciprocal_division = env::RECIPROCAL_DIV.get() != 0;
  o.emulated = dtypes::set_from_names(env::EMULATED_DTYPES.get());
  return o;
}

Hash128 CodegenOptions::hash() const {
  Hash128 h;
  h.add(static_cast<uint64_t>(noopt));
  h.add(static_cast<uint64_t>(beam));
  h.add(static_cast<uint64_t>(tensor_cores));
  h.add(static_cast<uint64_t>(tensor_core));
  h.add(static_cast<uint64_t>(transcendental));
  h.add(uint64_t{reciprocal_division});
  h.add(uint64_t{emulated.bits});
  h.add(uint64_t{no_locals});
  h.add(opts.has_value());
  if (opts) add_to_hash(h, *opts);
  h.add(stop_after);
  return h;
}

namespace {
/// A kernel given as C: its function, and one with the ABI of kernels that calls it.
void describe_source(Program& p, const std::string& source, UOp sink) {
  const std::string& function = sink.arg<KernelInfo>().name;
  std::string arguments;
  for (UOp u : sink.srcs()) {
    if (!u.is(Ops::PARAM)) continue;
    const int64_t slot = u.arg<ParamArg>().slot;
    p.nbuffers = std::max(p.nbuffers, static_cast<int>(slot) + 1);
    arguments += (arguments.empty() ? "" : ", ") + ("buffers[" + std::to_string(slot) + "]");
    p.estimates.mem += static_cast<double>(shape_of(u).numel()) * static_cast<double>(u.dtype().itemsize());
  }
  p.ast = sink;
  p.name = "kernel_" + function;
  p.reads.assign(static_cast<size_t>(p.nbuffers), true);
  p.writes = p.reads;
  p.source = source + "\nvoid " + p.name +
             "(void* const* buffers, const long long* vars, long long begin, long long end) {\n  (void)vars, "
             "(void)begin, (void)end;\n  " +
             function + "(" + arguments + ");\n}\n";
}

/// Runs the passes over one kernel.
class Pipeline {
 public:
  Pipeline(UOp sink, const Renderer& renderer, const CodegenOptions& options)
      : context_{renderer, options, KernelContext(sink)},
        sink_(sink),
        last_kernel_(sink),
        noopt_(options.noopt && !options.opts && !sink.arg<KernelInfo>().opts_to_apply &&
               !sink.arg<KernelInfo>().attention),
        by_hand_(is_ordered_by_hand(sink)) {}

  /// Returns true when the options stop it behind one of them.
  bool run() {
    if (spec_) verify(sink_, spec_kernel(), "schedule");
    for (const Pass& pass : passes()) {
      Cancellation::check("compile");
      if (applies(pass)) run(pass);
      if (context_.options.stop_after == pass.name) return true;
      if (pass.flags & kLastKernel) last_kernel_ = sink_;
    }
    return false;
  }

  UOp sink() const { return sink_; }
  UOp last_kernel() const { return last_kernel_; }
  Opts applied() const { return context_.plan ? context_.plan->opts : Opts{}; }
  PlanSummary summary() const {
    if (!context_.plan) return {};
    const KernelPlan& p = *context_.plan;
    return {p.variant, p.form, p.cycles, p.account};
  }

 private:
  bool applies(const Pass& p) const {
    return !(p.flags & kUnlessNoopt && noopt_) && !(p.flags & kUnlessByHand && by_hand_) &&
           !(p.flags & kWithChosenAxes && !context_.ranges);
  }
  void run(const Pass& pass) {
    using Clock = std::chrono::steady_clock;
    const recording::Span span("pass", pass.name);
    const auto start = Clock::now();
    if (pass.run) sink_ = pass.run(sink_, context_);
    else sink_ = graph_rewrite(sink_, pass.rules(), {.name = pass.name});
    record_graph("after", sink_);
    if (spec_ && !(pass.flags & kLowered)) verify(sink_, spec_kernel(), pass.name);
    if (env::DEBUG.get() >= 5)
      print_graph(pass.name, sink_.toposort(), std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }

  PassContext context_;
  UOp sink_, last_kernel_;
  const bool noopt_, by_hand_, spec_ = env::SPEC.get() != 0;
};
}  // namespace

namespace {
/// Records what became of a kernel.
void record_result(const recording::Span& span, const Program& p) {
  span.value("name", p.name);
  span.value("opts", to_text(p.applied_opts));
  span.value("operations", str(p.estimates.ops));
  span.value("bytes", str(p.estimates.mem));
  record_program("program", p.insts);
  span.text("source", "", p.source);
}
}  // namespace

std::shared_ptr<Program> to_program(const Kernel& kernel, const Renderer& renderer, const CodegenOptions& options) {
  auto program = std::make_shared<Program>();
  program->arena = std::make_shared<Arena>();
  ArenaScope scope(*program->arena);
  UOp sink = import_kernel(kernel.sink);
  TG_ASSERT(sink.is(Ops::SINK) && sink.arg_kind() == ArgKind::kKernel, "a kernel is a SINK with KernelInfo, not ",
            sink);
  if (const std::string* source = source_of(sink)) {
    describe_source(*program, *source, sink);
    return program;
  }
  const recording::Span span("kernel", kernel.key.to_hex());
  span.value("target", renderer.target().key());
  record_graph("kernel", sink);
  Pipeline pipeline(sink, renderer, options);
  const bool stopped = pipeline.run();
  program->ast = stopped ? pipeline.sink() : pipeline.last_kernel();
  if (stopped) return program;
  const std::string& name = sink.arg<KernelInfo>().name;
  program->name = name.empty() ? kernel_name(program->ast) : function_name(name);
  program->applied_opts = pipeline.applied();
  program->plan = pipeline.summary();
  program->insts = linearize(pipeline.sink());
  if (env::SPEC.get() != 0) verify_program(program->insts, "linearize");
  program->estimates = estimate(program->insts);
  describe_parameters(*program, sink);
  if (env::DEBUG.get() >= 6) print_graph(program->name.c_str(), program->insts, 0);
  program->source = renderer.render(*program);
  if (span.recording()) record_result(span, *program);
  return program;
}

}  // namespace tg
