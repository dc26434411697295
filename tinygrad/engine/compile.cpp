/// \file Program cache and parallel compilation.
#include "tinygrad/engine/compile.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <list>
#include <mutex>
#include <unordered_map>

#include "tinygrad/base/env.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/program_store.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/thread_pool.h"

namespace tg {

std::atomic<int64_t> GlobalCounters::kernels{0}, GlobalCounters::copies{0}, GlobalCounters::compiled{0}, GlobalCounters::ops{0},
    GlobalCounters::mem{0}, GlobalCounters::nanoseconds{0};
void GlobalCounters::reset() { kernels = copies = compiled = ops = mem = nanoseconds = 0; }

namespace {
constexpr size_t kMaxPrograms = 16384;

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
    order_.emplace_front(key, std::move(kernel)), map_[key] = order_.begin();
    if (map_.size() > kMaxPrograms) map_.erase(order_.back().first), order_.pop_back();
  }
  void clear() {
    std::lock_guard lock(mutex_);
    map_.clear(), order_.clear();
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

CompiledKernelRef compile_one(const Hash128& key, const Kernel& kernel, Device& device, const Target& target, const CodegenOptions& options) {
  auto compiled = std::make_shared<CompiledKernel>();
  const int64_t debug = env::DEBUG.get();
  const bool native = device.compiles();
  // From DEBUG=3 on one wants to see codegen at work.
  auto program = native && debug < 3 ? load_stored_program(key.to_hex()) : nullptr;
  if (program) {
    try {
      compiled->executable = device.load(program->binary, program->name);
    } catch (const FormatError&) { program = nullptr; }
  }
  if (!program) {
    program = to_program(kernel, renderer_for(target), options);
    GlobalCounters::compiled++;
    if (debug >= 4 && !program->source.empty()) std::cout << program->source << std::endl;
    if (native) {
      Compiler& compiler = device.compiler(target);
      program->binary = compiler.compile_cached(program->source);
      if (debug >= 7) std::cout << compiler.assembly(program->source) << std::endl;
      store_program(key.to_hex(), *program);
    }
    compiled->executable = device.load(program);
  }
  compiled->program = std::move(program);
  return compiled;
}
}  // namespace

Hash128 codegen_settings_hash() { return CodegenOptions::from_env().hash(); }
void clear_kernel_cache() { cache().clear(); }

std::vector<CompiledKernelRef> compile_kernels(std::span<const KernelRef> kernels, Device& device) {
  const Target& target = device.target();
  CodegenOptions options = CodegenOptions::from_env();
  Hash128 base;
  base.add(target.key()), base.add(device.kind()), base.add(options.hash());
  std::vector<CompiledKernelRef> out(kernels.size());
  std::unordered_map<Hash128, size_t, KeyHash> first;  // key -> first position that needs it
  std::vector<std::pair<Hash128, size_t>> missing;
  std::vector<size_t> again;
  for (size_t i = 0; i < kernels.size(); i++) {
    Hash128 key = base;
    key.add(kernels[i]->key);
    if ((out[i] = cache().get(key))) continue;
    if (auto [it, fresh] = first.try_emplace(key, i); fresh) missing.emplace_back(key, i);
    else again.push_back(i);
  }
  if (!missing.empty()) {
    env::Snapshot settings;
    auto work = [&](int64_t begin, int64_t end) {
      env::Adopt adopt(settings);
      for (int64_t m = begin; m < end; m++) {
        auto& [key, i] = missing[static_cast<size_t>(m)];
        out[i] = compile_one(key, *kernels[i], device, target, options);
        cache().put(key, out[i]);
      }
    };
    // Printing of passes and sources must not interleave.
    bool serial = env::DEBUG.get() >= 4 || missing.size() == 1;
    if (serial) work(0, static_cast<int64_t>(missing.size()));
    else ThreadPool::global().parallel_for(0, static_cast<int64_t>(missing.size()), 1, work);
  }
  for (size_t i : again) {
    Hash128 key = base;
    key.add(kernels[i]->key);
    out[i] = out[first.at(key)];
  }
  return out;
}

}  // namespace tg
