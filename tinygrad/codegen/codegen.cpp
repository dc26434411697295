/// \file The pipeline of codegen: one table of passes, one loop that runs, times, prints and verifies them.
#include "tinygrad/codegen/codegen.h"

#include <chrono>
#include <cmath>
#include <iostream>

#include "tinygrad/base/env.h"
#include "tinygrad/base/stop.h"
#include "tinygrad/codegen/access.h"
#include "tinygrad/codegen/decomp.h"
#include "tinygrad/codegen/expand.h"
#include "tinygrad/codegen/factor.h"
#include "tinygrad/codegen/gates.h"
#include "tinygrad/codegen/gpudims.h"
#include "tinygrad/codegen/heuristic.h"
#include "tinygrad/codegen/keep.h"
#include "tinygrad/codegen/linearize.h"
#include "tinygrad/codegen/online.h"
#include "tinygrad/codegen/prefetch.h"
#include "tinygrad/codegen/program_info.h"
#include "tinygrad/codegen/prune_masked_tiles.h"
#include "tinygrad/codegen/separate_reduces.h"
#include "tinygrad/codegen/words.h"
#include "tinygrad/schedule/custom.h"
#include "tinygrad/uop/rebuild.h"
#include "tinygrad/uop/spec.h"
#include "tinygrad/uop/symbolic.h"

namespace tg {
namespace {
/// What passes share.
struct PassContext {
  const Renderer& renderer;
  const CodegenOptions& options;
  std::vector<Opt> applied;
  bool online = false;                  ///< the loops are those of blocks already
  UOp predicted{};                      ///< a kernel whose best candidate is known already
  std::vector<Candidate> candidates{};  ///< that one
};

/// A pass: a function of the SINK, or a table with the direction it is applied in.
struct Pass {
  const char* name;
  UOp (*run)(UOp sink, PassContext& c);
  const PatternMatcher<>* (*rules)(const Renderer& r) = nullptr;
  bool skip_noopt = false;
  bool moves_loops = false;  ///< not for kernels whose author has ordered them
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

/// First of all, so that it sees what the scheduler has seen.
UOp online_pass(UOp sink, PassContext& c) {
  const std::optional<OnlineForm> form = c.renderer.has_locals() ? std::nullopt : online_form(sink);
  c.online = form.has_value();
  return form ? online_blocks(sink, *form, c.renderer) : sink;
}

UOp better_ranges(UOp sink, PassContext& c) {
  sink = simplify_ranges(sink);
  if (c.renderer.has_locals()) return sink;
  UOp merged = merge_rows(sink);
  if (merged == sink) return sink;
  // The better of the two by the cost model: long rows do without.
  auto best = [&](UOp s) { return candidates(KernelAxes(s, c.renderer), s, c.renderer, 1); };
  auto cycles = [](const std::vector<Candidate>& list) { return list.empty() ? INFINITY : list[0].cycles; };
  std::vector<Candidate> with = best(merged), without = best(sink);
  const bool better = cycles(with) < cycles(without);
  c.candidates = std::move(better ? with : without);
  return c.predicted = better ? merged : sink;
}

UOp ranges_pass(UOp sink, PassContext& c) { return c.online ? sink : keep_values(better_ranges(sink, c), c.renderer); }

UOp opts_pass(UOp sink, PassContext& c) {
  if (c.online) return sink;
  const KernelInfo& info = sink.arg<KernelInfo>();
  // Integers in two words stay scalars: there is no sum of such lanes.
  const bool kept = has_kept(sink);
  if (emulates_longs(sink, c.renderer, c.options.emulated) && !c.renderer.has_locals())
    return kept ? KernelAxes(sink, c.renderer).finish() : sink;
  const std::vector<Opt>* given = info.opts_to_apply ? &*info.opts_to_apply
                                  : c.options.opts   ? &*c.options.opts
                                                     : nullptr;
  if (!given && c.options.noopt && !c.renderer.has_locals()) return sink;
  KernelAxes kernel(sink, c.renderer);
  if (c.options.no_locals && c.renderer.has_locals()) kernel.apply({OptOp::kNoLocals, 0, 0});
  if (given)
    for (const Opt& o : *given) kernel.apply(o);
  else if (!c.options.noopt) {
    choose_tensor_core(kernel, c.renderer, c.options.tensor_cores, c.options.tensor_core);
    if (!choose_words(kernel, c.renderer))
      apply_heuristic(kernel, kernel.sink(), c.renderer, kernel.sink() == c.predicted ? &c.candidates : nullptr);
  }
  c.applied = kernel.applied();
  return c.applied.empty() && !c.renderer.has_locals() && !kept ? sink : kernel.finish();
}

OpSet ops_to_use(const PassContext& c) {
  OpSet ops = c.renderer.ops();
  if (c.options.transcendental >= 2)
    for (Ops op : {Ops::EXP2, Ops::LOG2, Ops::SIN, Ops::POW}) ops = ops.without(op);
  return ops;
}

const std::vector<Pass>& passes() {
  static const std::vector<Pass> table{
      {"online", online_pass, nullptr, false, true},
      {"symbolic", nullptr, [](const Renderer&) { return &sym(); }},
      {"ranges", ranges_pass, nullptr, true, true},
      {"opts", opts_pass, nullptr, false, true},
      {"factor", [](UOp s, PassContext&) { return factor_reduces(s); }, nullptr, false, true},
      {"symbolic after opts", nullptr, [](const Renderer&) { return &sym(); }},
      {"grid", [](UOp s, PassContext&) { return add_grid(s); }, nullptr, false, true},
      {"gates", [](UOp s, PassContext&) { return move_gates(s); }},
      {"separate reduces", [](UOp s, PassContext&) { return separate_reduces(s); }, nullptr, false, true},
      {"skip", [](UOp s, PassContext& c) { return c.renderer.has_locals() ? s : prune_masked_tiles(s); }, nullptr, true,
       true},
      {"expand", [](UOp s, PassContext& c) { return expand(s, c.renderer); }, nullptr, false, true},
      {"prefetch", [](UOp s, PassContext& c) { return add_prefetches(s, c.renderer); }, nullptr, false, true},
      {"late symbolic", nullptr, [](const Renderer&) { return &pm_expanded(); }},
      {"lower to target",
       [](UOp s, PassContext& c) { return lower_to_target(s, c.renderer, ops_to_use(c), c.options.emulated); }},
      {"lanes", lanes_pass},
      {"renderer", nullptr, [](const Renderer& r) { return r.extra_matcher(); }},
  };
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
  std::cerr << "--- " << title << ": " << nodes.size() << " nodes, " << ms << " ms\n";
  for (UOp u : nodes) std::cerr << "  %" << u.id() << " = " << u << '\n';
}
}  // namespace

CodegenOptions CodegenOptions::from_env() {
  CodegenOptions o;
  o.noopt = env::NOOPT.get() != 0;
  o.beam = static_cast<int>(env::BEAM.get());
  o.tensor_cores = env::TC.get() == 0 ? 0 : env::ROUND_PRODUCTS ? 1 : 2;
  o.tensor_core = static_cast<int>(env::TC_SELECT.get());
  o.no_locals = env::NOLOCALS.get() != 0;
  o.transcendental = static_cast<int>(env::TRANSCENDENTAL.get());
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
  h.add(uint64_t{emulated.bits});
  h.add(uint64_t{no_locals});
  h.add(opts.has_value());
  if (opts)
    for (const Opt& o : *opts) {
      h.add(static_cast<uint64_t>(o.op));
      h.add(static_cast<uint64_t>(o.axis));
      h.add(static_cast<uint64_t>(o.arg));
    }
  h.add(stop_after);
  return h;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& p : passes()) names.push_back(p.name);
  return names;
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
}  // namespace

std::shared_ptr<Program> to_program(const Kernel& kernel, const Renderer& renderer, const CodegenOptions& options) {
  using Clock = std::chrono::steady_clock;
  auto program = std::make_shared<Program>();
  program->arena = std::make_shared<Arena>();
  ArenaScope scope(*program->arena);
  UOp sink = import_kernel(kernel.sink);
  TG_ASSERT(sink.is(Ops::SINK) && sink.arg_kind() == ArgKind::kKernel, "a kernel is a SINK with KernelInfo, not ",
            sink);
  const KernelInfo info = sink.arg<KernelInfo>();
  if (const std::string* source = source_of(sink)) {
    describe_source(*program, *source, sink);
    return program;
  }
  const int64_t debug = env::DEBUG.get();
  PassContext context{renderer, options, {}, false};
  UOp original = sink;
  program->ast = sink;
  const bool spec = env::SPEC.get() != 0;
  if (spec) verify(sink, spec_kernel(), "schedule");
  bool lowered = false;
  const bool by_hand = is_ordered_by_hand(sink);
  for (const Pass& pass : passes()) {
    if (pass.skip_noopt && options.noopt && !options.opts && !info.opts_to_apply) continue;
    if (by_hand && pass.moves_loops) continue;
    auto start = Clock::now();
    Stop::check("compile");
    if (pass.run) sink = pass.run(sink, context);
    else if (const PatternMatcher<>* rules = pass.rules(renderer))
      sink = graph_rewrite(sink, *rules, const_cast<Renderer&>(renderer), {.name = pass.name});
    lowered |= std::string_view(pass.name) == "lower to target";
    if (spec && !lowered) verify(sink, spec_kernel(), pass.name);
    if (debug >= 5)
      print_graph(pass.name, sink.toposort(), std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    if (options.stop_after == pass.name) {
      program->ast = sink;
      return program;
    }
    if (std::string_view(pass.name) == "gates") program->ast = sink;
  }
  program->name = info.name.empty() ? kernel_name(program->ast) : function_name(info.name);
  program->applied_opts = context.applied;
  program->linear = linearize(sink);
  if (spec) verify_program(program->linear, "linearize");
  program->estimates = estimate(program->linear);
  describe_parameters(*program, original);
  if (debug >= 6) print_graph(program->name.c_str(), program->linear, 0);
  program->source = renderer.render(*program);
  return program;
}

}  // namespace tg
