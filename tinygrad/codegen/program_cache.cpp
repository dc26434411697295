/// \file The program cache.
#include "tinygrad/codegen/program_cache.h"

#include <list>
#include <mutex>
#include <unordered_map>

namespace tg {
namespace {
struct KeyHash {
  size_t operator()(const ProgramKey& k) const noexcept {
    Hash128 h;
    h.add(k.kernel), h.add(k.target), h.add(k.options);
    return h.lo;
  }
};
using Entry = std::pair<ProgramKey, std::shared_ptr<const Program>>;
struct Cache {
  std::mutex mutex;
  std::list<Entry> entries;  // most recently used first
  std::unordered_map<ProgramKey, std::list<Entry>::iterator, KeyHash> index;
  size_t limit = 4096;

  void trim() {
    while (entries.size() > limit) index.erase(entries.back().first), entries.pop_back();
  }
};
Cache& cache() {
  static Cache c;
  return c;
}
}  // namespace

ProgramKey program_key(const Kernel& kernel, const Renderer& renderer, const CodegenOptions& options) {
  ProgramKey k{kernel.key, {}, options.hash()};
  k.target.add(renderer.target().key());
  return k;
}

std::shared_ptr<const Program> cached_program(const Kernel& kernel, const Renderer& renderer, const CodegenOptions& options) {
  ProgramKey key = program_key(kernel, renderer, options);
  Cache& c = cache();
  {
    std::lock_guard lock(c.mutex);
    if (auto it = c.index.find(key); it != c.index.end()) {
      c.entries.splice(c.entries.begin(), c.entries, it->second);
      return it->second->second;
    }
  }
  std::shared_ptr<const Program> made = to_program(kernel, renderer, options);
  std::lock_guard lock(c.mutex);
  if (auto it = c.index.find(key); it != c.index.end()) return it->second->second;  // another thread was faster
  c.entries.emplace_front(key, made), c.index[key] = c.entries.begin();
  c.trim();
  return made;
}

void clear_program_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.index.clear(), c.entries.clear();
}
size_t program_cache_size() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  return c.entries.size();
}
void set_program_cache_limit(size_t programs) {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.limit = programs, c.trim();
}

}  // namespace tg
