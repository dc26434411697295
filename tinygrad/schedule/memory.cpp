/// \file Memory plan: internal buffers whose lives do not overlap share one arena per device.
#include "tinygrad/schedule/memory.h"

#include <algorithm>
#include <map>

#include "tinygrad/base/at.h"
#include "tinygrad/base/contains.h"

namespace tg {
namespace {
constexpr int64_t kAlign = 256;

/// Free ranges of an arena that grows at its end: best fit, neighbours joined.
class FreeList {
 public:
  int64_t take(int64_t bytes) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->second >= bytes && (best == free_.end() || it->second < best->second)) best = it;
    if (best == free_.end()) {
      // Grow; a free range at the end is used for its part.
      int64_t at = end_;
      if (!free_.empty())
        if (auto last = std::prev(free_.end()); last->first + last->second == end_) {
          at = last->first;
          free_.erase(last);
        }
      end_ = at + bytes;
      return at;
    }
    auto [at, size] = *best;
    free_.erase(best);
    if (size > bytes) free_[at + bytes] = size - bytes;
    return at;
  }
  void give(int64_t at, int64_t bytes) {
    auto it = free_.emplace(at, bytes).first;
    auto next = std::next(it);
    if (next != free_.end() && at + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin())
      if (auto prev = std::prev(it); prev->first + prev->second == at) {
        prev->second += it->second;
        free_.erase(it);
      }
  }
  int64_t end() const { return end_; }

 private:
  std::map<int64_t, int64_t> free_;
  int64_t end_ = 0;
};
}  // namespace

void plan_memory(Schedule& s, std::span<const int32_t> kept_to) {
  size_t n = s.buffers.size(), calls = s.calls.size();
  std::vector<int64_t> first(n, -1), last(n, -1);
  for (size_t c = 0; c < calls; c++)
    for (int32_t b : s.calls[c].buffers) {
      auto k = static_cast<size_t>(b);
      if (first[k] < 0) first[k] = static_cast<int64_t>(c);
      last[k] = static_cast<int64_t>(c);
    }
  // What a collective reads stays until its result is needed: kernels go on meanwhile.
  for (size_t c = 0; c < calls; c++) {
    if (s.calls[c].kind != ScheduleCall::kCollective) continue;
    size_t user = c + 1;
    while (user < calls && !contains(s.calls[user].buffers, s.calls[c].buffers[0])) user++;
    for (int32_t b : s.calls[c].buffers)
      at(last, b) = std::max(at(last, b), static_cast<int64_t>(std::min(user, calls - 1)));
  }
  std::vector<std::vector<int32_t>> dies(calls);
  for (size_t b = 0; b < n; b++)
    if (last[b] >= 0 && s.buffers[b].kind == ScheduleBuffer::kInternal)
      at(dies, kept_to.empty() ? last[b] : kept_to[static_cast<size_t>(last[b])]).push_back(static_cast<int32_t>(b));
  std::map<std::string, FreeList> arenas;
  auto bytes = [&](const ScheduleBuffer& b) { return (b.size * b.dtype.itemsize() + kAlign - 1) / kAlign * kAlign; };
  for (size_t c = 0; c < calls; c++) {
    for (int32_t k : s.calls[c].buffers) {
      ScheduleBuffer& b = at(s.buffers, k);
      if (b.kind == ScheduleBuffer::kInternal && b.offset < 0 && b.size > 0) b.offset = arenas[b.device].take(bytes(b));
    }
    for (int32_t k : dies[c])
      if (ScheduleBuffer& b = at(s.buffers, k); b.offset >= 0) arenas[b.device].give(b.offset, bytes(b));
  }
  for (auto& [device, list] : arenas) s.arenas.emplace_back(device, list.end());
}

}  // namespace tg
