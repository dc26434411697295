/// \file Program cache and parallel compilation.
#include "tinygrad/engine/compile.h"

#include <algorithm>
#include <iostream>
#include <list>
#include <mutex>
#include <unordered_map>

#include "tinygrad/base/env.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/stop.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/engine/beam.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/process_replay.h"
#include "tinygrad/engine/program_store.h"
#include "tinygrad/engine/report.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/thread_pool.h"
#include "tinygrad/schedule/custom.h"
#include "tinygrad/target/tensor_core.h"

namespace tg {

std::atomic<int64_t> GlobalCounters::kernels{0}, GlobalCounters::copies{0}, GlobalCounters::compiled{0},
    GlobalCounters::ops{0}, GlobalCounters::mem{0}, GlobalCounters::nanoseconds{0}, GlobalCounters::runs{0},
    GlobalCounters::run_ns{0}, GlobalCounters::compile_ns{0}, GlobalCounters::disk_hits{0};
void GlobalCounters::reset() {
  kernels = copies = compiled = ops = mem = nanoseconds = runs = run_ns = compile_ns = disk_hits = 0;
}

namespace {
constexpr size_t kMaxPrograms = 4096;  // some 30 KB each; no model has as many kernels

struct KeyHash {
  size_t operator()(const Hash128& h) const { return h.lo; }
};

/// Loaded kernels, least recently used first out.
class ProgramCache {
 public:
  CompiledKernelRef get(const Hash128& key) {
    std::lock_guard lock(mutex_);
    auto it = map_.find(key);
    if (it == map_.end()) return {};
    order_.splice(order_.begin(), order_, it->second);
    return it->second->second;
  }
  void put(const Hash128& key, CompiledKernelRef kernel) {
    std::lock_guard lock(mutex_);
    if (map_.contains(key)) return;
    order_.emplace_front(key, std::move(kernel));
    map_[key] = order_.begin();
    if (map_.size() > kMaxPrograms) {
      map_.erase(order_.back().first);
      order_.pop_back();
    }
  }
  void clear() {
    std::lock_guard lock(mutex_);
    map_.clear();
    order_.clear();
  }

 private:
  using Entry = std::pair<Hash128, CompiledKernelRef>;
  std::mutex mutex_;
  std::list<Entry> order_;
  std::unordered_map<Hash128, std::list<Entry>::iterator, KeyHash> map_;
};
ProgramCache& cache() {
  static auto* c = new ProgramCache;
  return *c;
}

/// One renderer per target, made when first needed.
const Renderer& renderer_for(const Target& target) {
  static std::mutex mutex;
  static auto* made = new std::unordered_map<std::string, std::unique_ptr<Renderer>>;
  std::lock_guard lock(mutex);
  auto& r = (*made)[target.key()];
  if (!r) r = make_renderer(target);
  return *r;
}

/// What launches need of a program that has been compiled: the graph of codegen, most of its memory, goes. The source
/// stays for captures alone.
std::shared_ptr<const Program> launchable(const Program& p, bool source) {
  static const auto* nothing = new ArenaRef(std::make_shared<Arena>());
  auto out = std::make_shared<Program>();
  out->name = p.name;
  out->applied_opts = p.applied_opts;
  out->nbuffers = p.nbuffers;
  out->reads = p.reads;
  out->writes = p.writes;
  out->vars = p.vars;
  out->estimates = p.estimates;
  out->binary = p.binary;
  if (source) out->source = p.source;
  const UOp sizes[] = {p.thread_extent, p.global_size[0], p.global_size[1], p.global_size[2],
                       p.local_size[0], p.local_size[1],  p.local_size[2]};
  if (std::none_of(std::begin(sizes), std::end(sizes), [](UOp u) { return bool(u); })) {
    out->arena = *nothing;
    return out;
  }
  out->arena = std::make_shared<Arena>();
  ArenaScope scope(*out->arena);
  auto copied = [&](UOp u) { return u ? import_graph(p.arena->graph(), u) : u; };
  out->thread_extent = copied(p.thread_extent);
  for (int k = 0; k < 3; k++) {
    out->global_size[k] = copied(p.global_size[k]);
    out->local_size[k] = copied(p.local_size[k]);
  }
  return out;
}

CompiledKernelRef compile_one(const Hash128& key, const Kernel& kernel, Device& device, const Target& target,
                              const CodegenOptions& options) {
  Stop::check("compile");
  profile::Span span(profile::kCompile, "kernel");
  auto compiled = std::make_shared<CompiledKernel>();
  const int64_t debug = env::DEBUG.get();
  const bool native = device.compiles();
  // From DEBUG=3 on one wants to see codegen at work; a capture needs the source.
  auto program = native && debug < 3 && !env::CAPTURE_PROCESS_REPLAY ? load_stored_program(key.to_hex()) : nullptr;
  if (program) {
    try {
      compiled->executable = device.load(program->binary, program->name);
      GlobalCounters::disk_hits++;
    } catch (const FormatError&) { program = nullptr; }
  }
  const bool stored = program != nullptr;
  if (!program) {
    TG_CHECK(DeviceError, native || !source_of(kernel.sink), "[custom_kernel] got a kernel in C for ", device.kind(),
             ", which executes UOps: write it in UOps");
    program = to_program(kernel, renderer_for(target), options);
    GlobalCounters::compiled++;
    if (debug >= 4 && !program->source.empty()) std::cout << program->source << std::endl;
    if (native) {
      Stop::check("compile");
      Target used = target;
      if (source_of(kernel.sink)) used.renderer = "CLANG";  // the user's C
      Compiler& compiler = device.compiler(used);
      program->binary = compiler.compile_cached(program->source);
      if (debug >= 7) std::cout << compiler.assembly(program->source) << std::endl;
      store_program(key.to_hex(), *program);
    }
    compiled->executable = device.load(program);
  }
  if (span.recording()) {
    span.rename(program->name);
    span.details(stored ? "from the disk cache" : "");
  }
  compiled->program =
      native && !stored ? launchable(*program, static_cast<bool>(env::CAPTURE_PROCESS_REPLAY)) : std::move(program);
  return compiled;
}

void check_tensor_core(const CodegenOptions& options, const Target& target) {
  if (options.tensor_core < 0) return;
  const std::vector<const TensorCore*> known = renderer_for(target).tensor_cores();
  if (std::none_of(known.begin(), known.end(),
                   [&](const TensorCore* t) { return t - tensor_core_table().data() == options.tensor_core; }))
    env::not_honoured("TC_SELECT", str("got ", options.tensor_core, ", which is no instruction of ", target.key(),
                                       ": kernels do without"));
}

/// Everything that says which compiler works here, besides the target.
void add_compiler(Hash128& h) {
  h.add(env::CC.get());
  h.add(env::TG_LLVM_PLUGIN.get());
}
}  // namespace

Hash128 codegen_settings_hash() {
  const CodegenOptions options = CodegenOptions::from_env();
  Hash128 h = options.hash();
  add_compiler(h);
  add_beam_settings(h, options);
  return h;
}
void clear_kernel_cache() { cache().clear(); }

std::vector<CompiledKernelRef> compile_kernels(std::span<const KernelRef> kernels, Device& device,
                                               const std::function<std::string(size_t)>& metadata) {
  const Target& target = device.target();
  CodegenOptions options = CodegenOptions::from_env();
  Hash128 base;
  base.add(target.key());
  base.add(device.kind());
  base.add(options.hash());
  add_compiler(base);
  add_beam_settings(base, options);
  const bool capture = static_cast<bool>(env::CAPTURE_PROCESS_REPLAY);
  std::vector<CompiledKernelRef> out(kernels.size());
  std::unordered_map<Hash128, size_t, KeyHash> first;  // key -> first position that needs it
  std::vector<std::pair<Hash128, size_t>> missing;
  std::vector<size_t> again;
  for (size_t i = 0; i < kernels.size(); i++) {
    Hash128 key = base;
    key.add(kernels[i]->key);
    if ((out[i] = cache().get(key)) && !(capture && out[i]->program->source.empty())) continue;
    if (auto [it, fresh] = first.try_emplace(key, i); fresh) missing.emplace_back(key, i);
    else again.push_back(i);
  }
  if (!missing.empty()) {
    check_tensor_core(options, target);
    // The key on disk also names the compiler's version: the table outlives it.
    Hash128 tool;
    if (device.compiles()) tool.add(device.compiler(target).cache_key());
    // Great kernels first, so that no thread is left with one at the end.
    const auto nodes = [&](const std::pair<Hash128, size_t>& m) {
      return kernels[m.second]->arena->graph().live_nodes();
    };
    std::sort(missing.begin(), missing.end(),
              [&](auto& a, auto& b) { return nodes(a) != nodes(b) ? nodes(a) > nodes(b) : a.second < b.second; });
    // Searches come first, one at a time: nothing else may run while candidates are timed.
    std::vector<std::optional<std::vector<Opt>>> searched(missing.size());
    if (options.beam > 0)
      for (size_t m = 0; m < missing.size(); m++)
        searched[m] = beam_opts(*kernels[missing[m].second], device, renderer_for(target), options);
    const env::Snapshot settings;
    const Stop stop = Stop::current();
    std::atomic<size_t> next{0};
    auto work = [&](int64_t, int64_t) {
      const env::Adopt adopt(settings);
      const Stop::Adopt stoppable(stop);
      for (size_t m; (m = next++) < missing.size();) {
        auto& [key, i] = missing[m];
        Hash128 stored = key;
        stored.add(tool);
        CodegenOptions used = options;
        if (searched[m]) {
          used.opts = std::move(searched[m]);
          stored.add(used.hash());
        }
        try {
          out[i] = compile_one(stored, *kernels[i], device, target, used);
        } catch (...) {
          next = missing.size();  // the others need not begin
          const std::string& name = kernels[i]->sink.arg<KernelInfo>().name;
          rethrow_with_context(name.empty() ? "a kernel" : "kernel " + name, metadata ? metadata(i) : "");
        }
        cache().put(key, out[i]);
      }
    };
    // Printing of passes and sources must not interleave.
    const bool serial = env::DEBUG.get() >= 4 || missing.size() == 1;
    const int64_t asked = env::PARALLEL.get();
    const auto threads = serial ? 1 : asked > 0 ? std::min<int64_t>(asked, 1024) : env::num_cpu_threads();
    if (threads == 1) work(0, 1);
    else ThreadPool::global().parallel_for(0, threads, 1, work, static_cast<int>(threads));
  }
  if (capture)
    for (size_t i = 0; i < kernels.size(); i++)
      if (out[i]) capture_kernel(*kernels[i], target, *out[i]->program);
  for (size_t i : again) {
    Hash128 key = base;
    key.add(kernels[i]->key);
    out[i] = out[first.at(key)];
  }
  return out;
}

}  // namespace tg
