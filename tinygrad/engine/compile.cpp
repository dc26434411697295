/// \file Program cache and parallel compilation.
#include "tinygrad/engine/compile.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/output.h"
#include "tinygrad/base/profile.h"
#include "tinygrad/base/recording.h"
#include "tinygrad/base/task_progress.h"
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

std::atomic<int64_t> GlobalCounters::kernels{0}, GlobalCounters::copies{0}, GlobalCounters::collectives{0},
    GlobalCounters::sent{0}, GlobalCounters::compiled{0}, GlobalCounters::ops{0}, GlobalCounters::mem{0},
    GlobalCounters::nanoseconds{0}, GlobalCounters::runs{0}, GlobalCounters::run_ns{0}, GlobalCounters::compile_ns{0},
    GlobalCounters::disk_hits{0}, GlobalCounters::searched{0};
void GlobalCounters::reset() {
  kernels = copies = collectives = sent = compiled = ops = mem = nanoseconds = runs = run_ns = compile_ns = disk_hits =
      searched = 0;
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

/// Returns the renderer of a target, made when first needed.
const Renderer& renderer_for(const Target& target) {
  static std::mutex mutex;
  static auto* made = new std::unordered_map<std::string, std::unique_ptr<Renderer>>;
  std::lock_guard lock(mutex);
  auto& r = (*made)[target.key()];
  if (!r) r = make_renderer(target);
  return *r;
}

/// Copies what launches need of a compiled program, without the graph of codegen, which is most of its memory. The
/// source stays for captures alone.
std::shared_ptr<const Program> launchable(const Program& p, bool source) {
  static const auto* nothing = new ArenaRef(std::make_shared<Arena>());
  auto out = std::make_shared<Program>();
  out->name = p.name;
  out->applied_opts = p.applied_opts;
  out->nbuffers = p.nbuffers;
  out->reads = p.reads;
  out->writes = p.writes;
  out->images = p.images;
  out->vars = p.vars;
  out->estimates = p.estimates;
  out->binary = p.binary;
  out->shared_bytes = p.shared_bytes;
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
  Cancellation::check("compile");
  profile::Span span(profile::kCompile, "kernel");
  auto compiled = std::make_shared<CompiledKernel>();
  const int64_t debug = env::DEBUG.get();
  const bool native = device.compiles();
  // From DEBUG=3 on, and in a recording, one wants to see codegen at work; a capture needs the source.
  const bool look_up = native && debug < 3 && !env::VIZ && !env::CAPTURE_PROCESS_REPLAY;
  auto program = look_up ? load_stored_program(key.to_hex()) : nullptr;
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
    if (debug >= 4 && !program->source.empty()) print_lines(program->source + "\n");
    if (native) {
      Cancellation::check("compile");
      Compiler& compiler = source_of(kernel.sink) ? device.source_compiler(target) : device.compiler(target);
      program->binary = compiler.compile_cached(program->source);
      if (debug >= 7) print_lines(compiler.assembly(program->source) + "\n");
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

/// Adds everything that says which compiler works here, besides the target.
void add_compiler(Hash128& h) {
  h.add(env::CC.get());
  h.add(env::TG_LLVM_PLUGIN.get());
}
/// One compile_kernels().
class Compilation {
 public:
  Compilation(std::span<const KernelRef> kernels, Device& device, const std::function<std::string(size_t)>& metadata)
      : kernels_(kernels), device_(device), metadata_(metadata), out_(kernels.size()) {}

  std::vector<CompiledKernelRef> run() {
    find_known();
    if (!missing_.empty()) {
      check_tensor_core(options_, target_);
      order_missing();
      search();
      compile_missing();
    }
    if (capture_)
      for (size_t i = 0; i < kernels_.size(); i++)
        if (out_[i]) capture_kernel(*kernels_[i], target_, *out_[i]->program);
    for (auto [i, first] : repeated_) out_[i] = out_[first];
    return std::move(out_);
  }

 private:
  struct Missing {
    Hash128 key;
    size_t kernel;
  };

  /// Hashes everything that decides the code besides the kernel.
  Hash128 base_key() const {
    Hash128 h;
    h.add(target_.key());
    h.add(device_.kind());
    h.add(options_.hash());
    add_compiler(h);
    add_beam_settings(h, options_);
    return h;
  }

  /// Loaded kernels run on any device of their kind that works on host memory, otherwise on the one that loaded them.
  Hash128 loaded_key(Hash128 key) const {
    if (!device_.host_visible()) key.add(device_.name());
    return key;
  }

  /// Finds loaded kernels; of equal ones that are missing the first is compiled.
  void find_known() {
    const Hash128 base = base_key();
    std::unordered_map<Hash128, size_t, KeyHash> first;
    for (size_t i = 0; i < kernels_.size(); i++) {
      Hash128 key = base;
      key.add(kernels_[i]->key);
      if ((out_[i] = cache().get(loaded_key(key))) && !(capture_ && out_[i]->program->source.empty())) continue;
      if (auto [it, fresh] = first.try_emplace(key, i); fresh) missing_.push_back({key, i});
      else repeated_.emplace_back(i, it->second);
    }
  }

  /// Puts the largest kernels first, so that no thread is left with one at the end.
  void order_missing() {
    const auto nodes = [&](const Missing& m) { return kernels_[m.kernel]->arena->graph().live_nodes(); };
    std::sort(missing_.begin(), missing_.end(), [&](const Missing& a, const Missing& b) {
      return nodes(a) != nodes(b) ? nodes(a) > nodes(b) : a.kernel < b.kernel;
    });
  }

  /// Searches before anything is compiled, one kernel at a time: nothing else may run while candidates are timed.
  void search() {
    searched_.resize(missing_.size());
    if (options_.beam <= 0) return;
    TaskProgress progress("searching", static_cast<int64_t>(missing_.size()));
    for (size_t m = 0; m < missing_.size(); m++, progress.advance())
      searched_[m] = beam_opts(*kernels_[missing_[m].kernel], device_, renderer_for(target_), options_);
  }

  void compile_missing() {
    // The key on disk also names the compiler's version: the table outlives it.
    if (device_.compiles()) tool_.add(device_.compiler(target_).cache_key());
    const env::Snapshot settings;
    const Cancellation stop = Cancellation::current();
    const uint64_t span = recording::Span::current();
    TaskProgress progress("compiling", static_cast<int64_t>(missing_.size()));
    auto work = [&](int64_t, int64_t) {
      const env::Adopt adopt(settings);
      const recording::Inside inside(span);
      const Cancellation::Adopt stoppable(stop);
      for (size_t m; (m = next_++) < missing_.size(); progress.advance()) compile(missing_[m], searched_[m]);
    };
    // Printing of passes and sources must not interleave.
    const bool serial = env::DEBUG.get() >= 4 || missing_.size() == 1;
    const int64_t asked = env::PARALLEL.get();
    const auto threads = serial ? 1 : asked > 0 ? std::min<int64_t>(asked, 1024) : env::num_cpu_threads();
    if (threads == 1) work(0, 1);
    else ThreadPool::global().parallel_for(0, threads, 1, work, static_cast<int>(threads));
  }

  void compile(const Missing& m, std::optional<Opts>& searched) {
    const Kernel& kernel = *kernels_[m.kernel];
    Hash128 stored = m.key;
    stored.add(tool_);
    CodegenOptions used = options_;
    if (searched) {
      used.opts = std::move(searched);
      stored.add(used.hash());
    }
    try {
      out_[m.kernel] = compile_one(stored, kernel, device_, target_, used);
    } catch (...) {
      next_ = missing_.size();  // the others need not begin
      const std::string& name = kernel.sink.arg<KernelInfo>().name;
      rethrow_with_context(name.empty() ? "a kernel" : "kernel " + name, metadata_ ? metadata_(m.kernel) : "");
    }
    cache().put(loaded_key(m.key), out_[m.kernel]);
  }

  std::span<const KernelRef> kernels_;
  Device& device_;
  const std::function<std::string(size_t)>& metadata_;
  const Target& target_ = device_.target();
  const CodegenOptions options_ = CodegenOptions::from_env();
  const bool capture_ = static_cast<bool>(env::CAPTURE_PROCESS_REPLAY);
  std::vector<CompiledKernelRef> out_;
  std::vector<Missing> missing_;
  std::vector<std::optional<Opts>> searched_;        // by missing kernel: what BEAM chose
  std::vector<std::pair<size_t, size_t>> repeated_;  // a kernel, and the one equal to it that is compiled
  Hash128 tool_;
  std::atomic<size_t> next_{0};
};
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
  const Target& asked = device.target();
  try {
    return Compilation(kernels, device, metadata).run();
  } catch (const CompileError&) {
    // A device whose compiler cannot be loaded chooses another one, where it has one.
    if (device.target().key() == asked.key()) throw;
  }
  return Compilation(kernels, device, metadata).run();
}

}  // namespace tg
