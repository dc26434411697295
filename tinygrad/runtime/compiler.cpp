/// \file The disk cache in front of every compiler.
#include "tinygrad/runtime/compiler.h"

#include "tinygrad/base/disk_cache.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/hash.h"

namespace tg {

std::vector<uint8_t> Compiler::compile_cached(const std::string& source) {
  if (!env::CCACHE) return compile(source);
  Hash128 hash;
  hash.add(cache_key());
  hash.add(source);
  const std::string table = cache_table(), key = hash.to_hex();
  if (auto stored = disk_cache::get(table, key); stored && valid(*stored)) return std::move(*stored);
  std::vector<uint8_t> binary = compile(source);
  disk_cache::put(table, key, binary);
  return binary;
}

}  // namespace tg
