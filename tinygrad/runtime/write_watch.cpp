/// \file The table of watched memory.
#include "tinygrad/runtime/write_watch.h"

#include <mutex>
#include <unordered_map>

namespace tg {
namespace {
using Flag = std::shared_ptr<std::atomic<bool>>;
struct Table {
  std::mutex mutex;
  std::unordered_multimap<const Buffer*, Flag> flags;
};
Table& table() {
  static auto* t = new Table;
  return *t;
}
}  // namespace

void WriteWatch::add(const BufferRef& b) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto [first, last] = t.flags.equal_range(&b->base());
  for (; first != last; ++first)
    if (first->second == written_) return;
  t.flags.emplace(&b->base(), written_);
  write_watch::watched++;
}
WriteWatch::~WriteWatch() {
  if (!write_watch::watched) return;
  Table& t = table();
  std::lock_guard lock(t.mutex);
  write_watch::watched -= static_cast<int>(std::erase_if(t.flags, [&](auto& f) { return f.second == written_; }));
}

void write_watch::note_slow(const Buffer& b) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto [first, last] = t.flags.equal_range(&b.base());
  for (; first != last; ++first) *first->second = true;
}

}  // namespace tg
